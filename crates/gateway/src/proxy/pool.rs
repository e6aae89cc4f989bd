//! Connections to desks, kept for the next request.

use axum::body::Body;
use hotdesk_desk_client::{Error, enter_port, handshake};
use hotdesk_provider::{Address, Door};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a quiet connection is kept. A desk's server closes after 60 s; meeting one that is just being closed costs a retry.
const KEEP: Duration = Duration::from_secs(30);
/// The same for programs in a desk, of which some close after 5 s.
const KEEP_PORT: Duration = Duration::from_secs(4);
/// Quiet connections for one place. An agent has one request under way, rarely a few; but a burst that closed each of its connections
/// would fill the desk's count with those whose end it has not noticed yet.
const KEEP_EACH: usize = 64;
/// Connections to one desk at a time. Its server takes 512 and refuses the next, so more requests wait here for their turn; the
/// rest is for quiet ones, for tunnels, and for whoever asks a desk without us: its keeper, and the programs in it.
const EACH: usize = 256;
/// How long a request waits for one of them.
const TURN: Duration = Duration::from_secs(30);
/// A Unix socket answers at once or not at all; a container's network nearly so.
const CONNECT: Duration = Duration::from_secs(5);

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
    /// Of each desk, for as long as there are connections to it.
    places: Mutex<HashMap<Address, Arc<Semaphore>>>,
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

    /// A new connection, when it is this request's turn.
    pub(super) async fn connect(&self, door: &Door, way: &Way) -> Result<Sender, NoWay> {
        let places = self.places().entry(way.address.clone()).or_insert_with(|| Arc::new(Semaphore::new(EACH))).clone();
        let place = match tokio::time::timeout(TURN, places.acquire_owned()).await {
            Ok(Ok(place)) => place,
            _ => {
                return Err(NoWay::Desk(io::Error::new(io::ErrorKind::TimedOut, "it is busy with as many requests as it takes")));
            }
        };
        new(door, way, Some(place)).await
    }

    /// Keeps a connection whose answer was read to its end, unless somebody waits for its place.
    pub(super) fn give(&self, way: Way, sender: Sender) {
        let crowded = self.places().get(&way.address).is_some_and(|places| places.available_permits() == 0);
        if sender.is_closed() || crowded {
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
        drop(quiet);
        // Whoever has a place, or waits for one, holds them too.
        self.places().retain(|_, places| Arc::strong_count(places) > 1);
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Address, Arc<Semaphore>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new connection that waits for nobody: for tunnels, which are few and long.
pub(super) async fn connect(door: &Door, way: &Way) -> Result<Sender, NoWay> {
    new(door, way, None).await
}

async fn new(door: &Door, way: &Way, place: Option<OwnedSemaphorePermit>) -> Result<Sender, NoWay> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in 5 s");
    let connect = async {
        let stream = door.address.connect().await.map_err(NoWay::Desk)?;
        let Some(port) = way.port else { return handshake(TokioIo::new(stream), place).await.map_err(failed) };
        let port = enter_port(stream, port, |headers| door.dress(headers)).await.map_err(|error| match error {
            Error::Refused(refusal) => NoWay::Port(refusal.to_string()),
            other => NoWay::Desk(io::Error::other(other)),
        })?;
        handshake(port, place).await.map_err(failed)
    };
    tokio::time::timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(NoWay::Desk(late())))
}

fn failed(error: hyper::Error) -> NoWay {
    NoWay::Desk(io::Error::other(error))
}
