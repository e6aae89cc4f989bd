//! Clients that do not read, and clients for whom there is no room.

use hotdesk_api::Problem;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// How long somebody may take to hear that there is no room for him.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What can be ended so that the other side sees that it broke, and does not take it for an end.
pub trait Break {
    /// Nothing where no such thing is known.
    fn break_off(&self) {}
}

impl Break for TcpStream {
    fn break_off(&self) {
        let _ = self.set_zero_linger();
    }
}

impl Break for UnixStream {}

/// Breaks a stream off when it is dropped, once it is pulled.
#[derive(Debug, Clone, Default)]
pub struct Brake(Arc<AtomicBool>);

impl Brake {
    pub fn pull(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream whose writes fail when the other side reads nothing for a time.
pub struct Patient<S: Break> {
    stream: S,
    brake: Brake,
    time: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
    /// Kept here because a WebSocket's stream lives on when its HTTP connection is over.
    _place: Option<OwnedSemaphorePermit>,
}

impl<S: Break> Drop for Patient<S> {
    fn drop(&mut self) {
        if self.brake.0.load(Ordering::Relaxed) {
            self.stream.break_off();
        }
    }
}

impl<S: Break> Patient<S> {
    pub fn new(stream: S, time: Duration, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { stream, brake: Brake::default(), time, stuck: None, _place: place }
    }

    pub fn brake(&self) -> Brake {
        self.brake.clone()
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

impl<S: AsyncRead + Break + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Break + Unpin> AsyncWrite for Patient<S> {
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
    use tokio::net::TcpListener;

    impl Break for tokio::io::DuplexStream {}

    #[tokio::test]
    async fn a_break_is_no_end() {
        for broken in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let here = Patient::new(listener.accept().await.unwrap().0, Duration::from_secs(60), None);
            if broken {
                here.brake().pull();
            }
            drop(here);
            let heard = there.read(&mut [0; 8]).await.map_err(|e| e.kind());
            assert_eq!(heard, if broken { Err(io::ErrorKind::ConnectionReset) } else { Ok(0) });
        }
    }

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
