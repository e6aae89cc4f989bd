//! Connections: taken, bounded in number, guarded against clients that do not read, ended cleanly.

use super::cut::Crowd;
use super::limits;
use super::listen::{Listener, Stream};
use axum::Router;
use axum::extract::Request;
use hotdesk_serve::Patient;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
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
            self.running.spawn(hotdesk_serve::refuse(stream, "the desk"));
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
