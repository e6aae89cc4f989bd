//! The desk's HTTP server: the OSWorld dialect at the root, the native API under `/v1`.
//!
//! ```text
//!   connection   accept, TCP_NODELAY, header and write time limits, number of connections
//!       └ limits     a request body has to keep coming
//!           └ guard      who may ask: token, Host, Origin
//!               ├ v1         /v1/… and /health      errors are application/problem+json
//!               └ osworld    everything else        errors as its own server gives them
//! ```

pub mod guard;
pub mod limits;
pub mod listen;
pub mod openapi;
pub mod osworld;
pub mod problems;
pub mod ranges;
pub mod token;
pub mod v1;

mod connection;
pub(crate) mod cut;
#[cfg(test)]
pub(crate) mod tests;

use crate::error::{Error, Result};
use crate::{Config, Desk};
use axum::extract::{DefaultBodyLimit, Request};
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use guard::Guard;
use listen::{Address, Listener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;

/// How long requests that run may go on after the server was told to stop. A container's runtime
/// kills after 10 s; the session below needs some of it for itself.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(1500);

/// The socket for programs of the desk, in its runtime directory.
pub(crate) const PROGRAMS_SOCKET: &str = "hotdesk.sock";

/// Offers the desk on its addresses until `shutdown`.
pub async fn serve(desk: Desk, shutdown: CancellationToken) -> Result<()> {
    Server::bind(desk).await?.run(shutdown).await;
    Ok(())
}

/// A server that listens but does not answer yet.
pub struct Server {
    listeners: Vec<Listener>,
    app: Router,
    crowd: cut::Crowd,
}

impl Server {
    /// Takes the desk's addresses, and makes a token if one of them needs one.
    pub async fn bind(desk: Desk) -> Result<Self> {
        let addresses = addresses(&desk.config);
        if addresses.is_empty() {
            return Err(Error::Invalid("there is no address to listen on".into()));
        }
        let guard = Guard::for_desk(&desk, &addresses)?;
        let mut listeners = Vec::new();
        for address in &addresses {
            listeners.push(Listener::bind(address).await?);
        }
        // Programs of a session of ours reach us by a file that is theirs alone.
        if desk.config.attach.is_none() {
            match Listener::bind_for_programs(&desk.place.runtime_dir.join(PROGRAMS_SOCKET)).await {
                Ok(listener) => listeners.push(listener),
                Err(e) => tracing::warn!(error = %e, "programs of the desk can't ask it for anything"),
            }
        }
        let crowd = desk.freeze.crowd().clone();
        Ok(Self { listeners, app: guarded_app(desk, guard), crowd })
    }

    /// A server on a socket that somebody else has opened, for whoever may reach that.
    pub fn on(desk: Desk, socket: std::os::unix::net::UnixListener) -> Result<Self> {
        let listener = Listener::given(socket).map_err(Error::internal)?;
        let crowd = desk.freeze.crowd().clone();
        let guard = Guard::without_making_a_token(&desk.config, &[]);
        Ok(Self { listeners: vec![listener], app: guarded_app(desk, guard), crowd })
    }

    /// Where it listens, with the port that was chosen where 0 was asked for.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(Listener::address)
    }

    /// Answers until `shutdown`, then lets running requests end, for a bounded time.
    pub async fn run(self, shutdown: CancellationToken) {
        let connections = connection::Connections::new(self.app, self.crowd);
        let accepting = self.listeners.into_iter().map(|listener| {
            tracing::info!(address = %listener.address().url(), "listening");
            tokio::spawn(connections.clone().accept(listener, shutdown.clone()))
        });
        for task in accepting.collect::<Vec<_>>() {
            // A panic there was told by the panic hook already.
            let _ = task.await;
        }
        connections.finish(SHUTDOWN_LIMIT).await;
    }
}

fn addresses(config: &Config) -> Vec<Address> {
    config.listen.clone()
}

/// The whole server as one service, guarded as the desk's settings say.
pub fn app(desk: Desk) -> Router {
    let guard = Guard::without_making_a_token(&desk.config, &addresses(&desk.config));
    guarded_app(desk, guard)
}

fn guarded_app(desk: Desk, guard: Guard) -> Router {
    let native = v1::service().with_state(desk.clone()).layer(CatchPanicLayer::custom(panicked));
    let dialect = osworld::router().with_state(desk).layer(CatchPanicLayer::custom(panicked));
    // Not one merged router: each has its own words for "no such path" and "wrong method".
    Router::new()
        .fallback(move |request: Request| {
            let router = if is_native(request.uri().path()) { native.clone() } else { dialect.clone() };
            router.oneshot(request)
        })
        .layer(middleware::from_fn(crate::lease::asked))
        .layer(DefaultBodyLimit::max(limits::JSON_BODY))
        .layer(middleware::from_fn_with_state(Arc::new(guard), guard::check))
        .layer(middleware::from_fn(limits::body_keeps_coming))
        .layer(middleware::from_fn(log))
}

fn is_native(path: &str) -> bool {
    path == "/health" || path == "/v1" || path.starts_with("/v1/")
}

fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let reason =
        cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    tracing::error!(reason, "a request panicked");
    Error::internal("an error in hotdesk ended this request; its log has the details").into_response()
}

/// One line for each request. The query is left out: it may hold a token.
async fn log(request: Request, next: middleware::Next) -> Response {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return next.run(request).await;
    }
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), us = start.elapsed().as_micros() as u64, "answered");
    response
}
