//! Clients that do not read, and clients for whom there is no room.

use hotdesk_api::Problem;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// How long somebody may take to hear that there is no room for him.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A stream whose writes fail when the other side reads nothing for a time.
pub struct Patient<S> {
    stream: S,
    time: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
    /// Kept here because a WebSocket's stream lives on when its HTTP connection is over.
    _place: Option<OwnedSemaphorePermit>,
}

impl<S> Patient<S> {
    pub fn new(stream: S, time: Duration, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { stream, time, stuck: None, _place: place }
    }

    fn watch<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stuck = None;
            return result;
        }
        let time = self.time;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(result, cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(result, cx)
    }

    // Said truly, so that hyper hands over large bodies as they are instead of copying them behind the head.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Says no at once, so that nobody waits for a place. `who` is full: "the desk", "the gateway".
pub async fn refuse<S: AsyncWrite + Unpin>(mut stream: S, who: &str) {
    let problem = Problem {
        code: "too_many".into(),
        status: 503,
        title: "The limit is reached".into(),
        detail: format!("{who} has as many connections as it allows"),
        hint: Some("close connections that are not needed, then ask again".into()),
        retry: true,
    };
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answered = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(LAST_WORD, answered).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (here, _there) = tokio::io::duplex(16);
        let mut patient = Patient::new(here, Duration::from_secs(60), None);
        let error = patient.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_no_room_is_told() {
        let (here, mut there) = tokio::io::duplex(4096);
        refuse(here, "the inn").await;
        let mut heard = String::new();
        there.read_to_string(&mut heard).await.unwrap();
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains(&format!("content-length: {}", body.len())), "{head}");
        let problem: Problem = serde_json::from_str(body).unwrap();
        assert_eq!((problem.code.as_str(), problem.retry), ("too_many", true));
        assert!(problem.detail.starts_with("the inn has"), "{}", problem.detail);
        // Even if he does not listen.
        let (here, _there) = tokio::io::duplex(1);
        refuse(here, "the inn").await;
    }
}
