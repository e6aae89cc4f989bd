//! Connections to desks, kept for the next request.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use hotdesk_provider::{Address, Door};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a quiet connection is kept. A desk's server closes after 60 s; meeting one that is just being closed costs a retry.
const KEEP: Duration = Duration::from_secs(30);
/// The same for programs in a desk, of which some close after 5 s.
const KEEP_PORT: Duration = Duration::from_secs(4);
/// Quiet connections for one place. An agent has one request under way, rarely a few.
const KEEP_EACH: usize = 8;
/// A Unix socket answers at once or not at all; a container's network nearly so.
const CONNECT: Duration = Duration::from_secs(5);
/// What a desk says about a port that it can't reach.
const PROBLEM_BYTES: usize = 64 << 10;

pub(super) type Sender = http1::SendRequest<Body>;

/// Where a connection leads: a desk's server, or a port in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Way {
    pub(super) address: Address,
    pub(super) port: Option<u16>,
}

impl Way {
    fn keep(&self) -> Duration {
        if self.port.is_some() { KEEP_PORT } else { KEEP }
    }
}

#[derive(Default)]
pub(crate) struct Pool {
    quiet: Mutex<HashMap<Way, Vec<(Sender, Instant)>>>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoWay {
    /// The desk's server can't be reached.
    Desk(io::Error),
    /// Nothing listens on the port, as the desk says.
    Port(String),
}

impl Pool {
    /// A kept connection, the freshest first.
    pub(super) fn take(&self, way: &Way) -> Option<Sender> {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = quiet.get_mut(way)?;
        while let Some((sender, since)) = kept.pop() {
            if !sender.is_closed() && since.elapsed() < way.keep() {
                return Some(sender);
            }
        }
        None
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn give(&self, way: Way, sender: Sender) {
        if sender.is_closed() {
            return;
        }
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = quiet.entry(way).or_default();
        if kept.len() >= KEEP_EACH {
            kept.remove(0);
        }
        kept.push((sender, Instant::now()));
    }

    /// Closes what nobody used for a while.
    pub(crate) fn prune(&self) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.retain(|way, kept| {
            kept.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < way.keep());
            !kept.is_empty()
        });
    }
}

/// A new connection.
pub(super) async fn connect(door: &Door, way: &Way) -> Result<Sender, NoWay> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in 5 s");
    let connect = async {
        let stream = door.address.connect().await.map_err(NoWay::Desk)?;
        let mut sender = handshake(TokioIo::new(stream)).await?;
        let Some(port) = way.port else { return Ok(sender) };
        let upgraded = enter_port(&mut sender, door, port).await?;
        handshake(upgraded).await
    };
    tokio::time::timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(NoWay::Desk(late())))
}

async fn handshake<S>(stream: S) -> Result<Sender, NoWay>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
    tokio::spawn(async move {
        // Ends when either side has enough; whoever has a request on it is told.
        if let Err(e) = connection.with_upgrades().await {
            tracing::trace!(error = %e, "a connection to a desk ended");
        }
    });
    Ok(sender)
}

/// From the desk's server on to a port of its loopback.
async fn enter_port(sender: &mut Sender, door: &Door, port: u16) -> Result<hyper::upgrade::Upgraded, NoWay> {
    let mut request = Request::get(format!("/v1/ports/{port}"))
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "tcp")
        .body(Body::empty())
        .map_err(|e| NoWay::Desk(io::Error::other(e)))?;
    door.dress(request.headers_mut());
    let answer = sender.send_request(request).await.map_err(failed)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), PROBLEM_BYTES).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        let detail = serde_json::from_slice::<hotdesk_api::Problem>(&body).map(|problem| problem.detail);
        return Err(NoWay::Port(detail.unwrap_or_else(|_| format!("the desk answered {status}"))));
    }
    hyper::upgrade::on(answer).await.map_err(failed)
}

fn failed(error: hyper::Error) -> NoWay {
    NoWay::Desk(io::Error::other(error))
}
