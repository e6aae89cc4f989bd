//! Connections: taken, bounded in number, guarded against clients that do not read, ended cleanly.

use crate::limits;
use crate::listen::{Listener, Peer, Stream};
use crate::tls::Tls;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::BoxFuture;
use hotdesk_serve::{Brake, Break, Patient};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often a quiet HTTP/2 connection is asked whether it still lives.
const H2_PING: Duration = Duration::from_secs(30);

/// What answers a request.
pub(crate) type Answer = Arc<dyn Fn(Peer, Request) -> BoxFuture<'static, Response> + Send + Sync>;

/// All connections of one gateway. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connections {
    answer: Answer,
    acceptor: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
    running: TaskTracker,
    /// Ends connections that are still busy when the time for a clean end is over.
    abort: CancellationToken,
}

impl Connections {
    pub(crate) fn new(answer: Answer, tls: Option<&Tls>, most: usize) -> crate::error::Result<Self> {
        Ok(Self {
            answer,
            acceptor: tls.map(Tls::acceptor).transpose()?,
            places: Arc::new(Semaphore::new(limits::connections(most))),
            running: TaskTracker::new(),
            abort: CancellationToken::new(),
        })
    }

    /// Takes connections until `shutdown`.
    pub(crate) async fn accept(self, listener: Listener, shutdown: CancellationToken) {
        let machine = listener.address().is_loopback();
        loop {
            let accepted = tokio::select! {
                _ = shutdown.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((Stream::Tcp(stream), address)) => {
                    let peer = Peer { address, machine, tls: self.acceptor.is_some() };
                    self.start(stream, peer, &shutdown);
                }
                Ok((Stream::Unix(stream), address)) => {
                    self.start(stream, Peer { address, machine: false, tls: false }, &shutdown);
                }
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

    fn start<S>(&self, stream: S, peer: Peer, shutdown: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Break + Unpin + Send + 'static,
    {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            metrics::counter!(crate::metrics::REFUSED_CONNECTIONS).increment(1);
            // Plain words into a TLS connection would only confuse.
            if !peer.tls {
                self.running.spawn(hotdesk_serve::refuse(stream, "the gateway"));
            }
            return;
        };
        let this = self.clone();
        let shutdown = shutdown.clone();
        self.running.spawn(async move {
            let stream = Patient::new(stream, limits::WRITE_TIME, Some(place));
            let brake = stream.brake();
            match this.acceptor.as_ref().filter(|_| peer.tls) {
                None => this.http1(stream, brake, peer, shutdown).await,
                Some(acceptor) => match tokio::time::timeout(limits::TLS_TIME, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                        this.http2(stream, peer, shutdown).await;
                    }
                    Ok(Ok(stream)) => this.http1(stream, brake, peer, shutdown).await,
                    Ok(Err(e)) => tracing::debug!(error = %e, %peer, "no TLS connection came about"),
                    Err(_) => tracing::debug!(%peer, "a client did not finish its TLS handshake"),
                },
            }
        });
    }

    async fn http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        brake: Brake,
        peer: Peer,
        shutdown: CancellationToken,
    ) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEAD_TIME)
            .max_header_size(limits::HEAD_BYTES)
            .max_headers(limits::HEADERS)
            .serve_connection(TokioIo::new(stream), service_fn(|request| self.call(peer, request)))
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            _ = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = &mut connection => ended,
                    _ = self.abort.cancelled() => Ok(()),
                }
            }
        };
        if let Err(e) = ended {
            if was_reset(&e) {
                brake.pull();
            }
            tracing::debug!(error = %e, "a connection ended early");
        }
    }

    async fn http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        peer: Peer,
        shutdown: CancellationToken,
    ) {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(H2_PING)
            .keep_alive_timeout(limits::TLS_TIME)
            .max_concurrent_streams(limits::STREAMS)
            .max_header_list_size(limits::HEAD_BYTES as u32)
            .serve_connection(TokioIo::new(stream), service_fn(|request| self.call(peer, request)));
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            _ = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = &mut connection => ended,
                    _ = self.abort.cancelled() => Ok(()),
                }
            }
        };
        if let Err(e) = ended {
            tracing::debug!(error = %e, "a connection ended early");
        }
    }

    fn call(&self, peer: Peer, request: hyper::Request<Incoming>) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let answer = (self.answer)(peer, request.map(Body::new));
        async move { Ok(answer.await) }
    }

    /// Waits for running requests, at most for `limit`.
    pub(crate) async fn finish(self, limit: Duration) {
        self.running.close();
        if tokio::time::timeout(limit, self.running.wait()).await.is_err() {
            tracing::warn!(connections = self.running.len(), "requests still run; they are cut off");
            self.abort.cancel();
            // Each of them ends at its next wait.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.running.wait()).await;
        }
    }
}

/// Whether an answer ended as if its connection had been reset: then it is, so that nobody takes it for whole.
fn was_reset(error: &hyper::Error) -> bool {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    let mut causes = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    error.is_user() && causes.any(|cause| cause.kind() == io::ErrorKind::ConnectionReset)
}
