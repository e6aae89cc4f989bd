//! Connections: taken, bounded in number, guarded against clients that do not read, ended cleanly.

use super::cut::Crowd;
use super::limits;
use super::listen::{Listener, Stream};
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

/// All connections of one server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections {
    app: Router,
    places: Arc<Semaphore>,
    running: TaskTracker,
    crowd: Crowd,
    /// Ends connections that are still busy when the time for a clean end is over.
    abort: CancellationToken,
}

impl Connections {
    pub(super) fn new(app: Router, crowd: Crowd) -> Self {
        Self {
            app,
            places: Arc::new(Semaphore::new(limits::CONNECTIONS)),
            running: TaskTracker::new(),
            crowd,
            abort: CancellationToken::new(),
        }
    }

    /// Takes connections until `shutdown`.
    pub(super) async fn accept(self, listener: Listener, shutdown: CancellationToken) {
        let reach = listener.reach();
        loop {
            let stream = tokio::select! {
                _ = shutdown.cancelled() => return,
                stream = listener.accept() => stream,
            };
            match stream {
                Ok(Stream::Tcp(stream)) => self.start(stream, reach, shutdown.clone()),
                Ok(Stream::Unix(stream)) => self.start(stream, reach, shutdown.clone()),
                // The client is gone already.
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
                Err(e) => {
                    // Most likely out of file descriptors: trying at once would only burn the processor.
                    tracing::warn!(error = %e, "can't take a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn start<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        reach: super::listen::Reach,
        shutdown: CancellationToken,
    ) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            self.running.spawn(refuse(stream));
            return;
        };
        let (app, abort) = (self.app.clone(), self.abort.clone());
        let (connection_id, stream) = self.crowd.enter(stream);
        let (serving, leave) = self.crowd.serve();
        self.running.spawn(async move {
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let mut request: Request = request.map(axum::body::Body::new);
                request.extensions_mut().insert(reach);
                request.extensions_mut().insert(connection_id);
                app.clone().call(request)
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits::HEAD_TIME)
                .max_header_size(limits::HEAD_BYTES)
                .max_headers(limits::HEADERS)
                .serve_connection(TokioIo::new(Patient::new(stream, limits::WRITE_TIME, Some(place))), service)
                .with_upgrades();
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                _ = async { tokio::select! { _ = shutdown.cancelled() => {}, _ = leave.cancelled() => {} } } => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        ended = &mut connection => ended,
                        _ = abort.cancelled() => Ok(()),
                    }
                }
            };
            drop(serving);
            if let Err(e) = ended {
                tracing::debug!(error = %e, "a connection ended early");
            }
        });
    }

    /// Waits for running requests, at most for `limit`.
    pub(super) async fn finish(self, limit: Duration) {
        self.running.close();
        if tokio::time::timeout(limit, self.running.wait()).await.is_err() {
            tracing::warn!(connections = self.running.len(), "requests still run; they are cut off");
            self.abort.cancel();
            // Each of them ends at its next wait.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.running.wait()).await;
        }
    }
}

/// Says no at once, so that nobody waits for a place.
async fn refuse<S: AsyncWrite + Unpin>(mut stream: S) {
    const BODY: &str = r#"{"code":"too_many","status":503,"title":"The limit is reached","detail":"the desk has as many connections as it allows","hint":"close connections that are not needed, then ask again","retry":true}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let answered = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), answered).await;
}

/// A stream whose writes fail when the other side reads nothing for a time.
struct Patient<S> {
    stream: S,
    time: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
    /// Kept here because a WebSocket's stream lives on when its HTTP connection is over.
    _place: Option<OwnedSemaphorePermit>,
}

impl<S> Patient<S> {
    fn new(stream: S, time: Duration, place: Option<OwnedSemaphorePermit>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (here, _there) = tokio::io::duplex(16);
        let mut patient = Patient::new(here, Duration::from_secs(60), None);
        let error = patient.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
