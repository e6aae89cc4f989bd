//! Who changed what: one line for each changing request to the fleet.
//!
//! A desk is driven by many small requests; of those, the first of each minute, key and desk is written down (and the first that only
//! reads), and every tunnel that is opened. That tells who drove which desk when, without a line for each click. Guests, who have no
//! key, are written down by what let them in.
//!
//! A request that must be written down has its place in the log before it is answered, and is refused if there is none. A client that
//! leaves before the answer is written down, too.

use crate::credentials;
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::proxy;
use crate::refusal::Result;
use crate::route::Route;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use hotdesk_fleet::store::Audit;
use hotdesk_fleet::{AuditPlace, Fleet};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// Key of a request that had no good one.
const NOBODY: &str = "-";

/// Status of a request whose client left before it was answered.
const LEFT: u16 = 499;

pub(crate) struct AuditLog {
    fleet: Fleet,
    /// When a key's use of a desk was last written down.
    driven: Mutex<HashMap<(String, String, bool), Instant>>,
}

/// A line that is due. It has its place in the log before anything is done, and is written when the request is over, however it ends.
pub(crate) struct Due {
    place: Option<AuditPlace>,
    line: Audit,
    /// Only if it becomes a tunnel.
    tunnel_only: bool,
}

impl Due {
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.line.status = status.as_u16();
        if self.tunnel_only && status != StatusCode::SWITCHING_PROTOCOLS {
            self.place = None;
        }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.write(self.line.clone());
        }
    }
}

impl AuditLog {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self { fleet, driven: Mutex::default() }
    }

    /// What a request that was let in will be written down as, if that is due. Refused where it can't be written.
    pub(crate) fn begin(&self, route: &Route, caller: &Caller, request: &Parts) -> Result<Option<Due>> {
        if route.audited_within {
            return Ok(None);
        }
        let method = &request.method;
        let (key, reads) = (caller.who.key.as_str(), method.is_safe());
        let line = || line(key, method.as_str(), request.uri.path(), LEFT, caller.peer);
        // By its id, however it is spelled. Names of nothing count as one, so that they fill neither this table nor the log.
        let named = || {
            let name = proxy::decoded(route.desk.as_deref()?).ok()?;
            self.fleet.id_of(&caller.who, &name)
        };
        let desk = match &caller.guest {
            Some(guest) => Some(guest.desk().to_owned()),
            None => route.class.is_passed_on().then(|| named().unwrap_or_default()),
        };
        let place = match desk {
            Some(desk) => self.once_in_a_while(key, &desk, reads)?,
            None if !reads => Some(self.fleet.audit_place()?),
            None => None,
        };
        if place.is_some() {
            return Ok(Some(Due { place, line: line(), tunnel_only: false }));
        }
        let tunnel = request.headers.contains_key(header::UPGRADE);
        Ok(if tunnel { Some(Due { place: Some(self.fleet.audit_place()?), line: line(), tunnel_only: true }) } else { None })
    }

    /// Writes down what was done under a key.
    pub(crate) fn write(&self, key: &str, method: &str, path: &str, status: StatusCode, peer: Peer) -> Result<()> {
        self.fleet.audit_place()?.write(line(key, method, path, status.as_u16(), peer));
        Ok(())
    }

    /// Writes down that somebody had no good key. Those that the limit let through; the rest got 429.
    pub(crate) fn stranger(&self, method: &Method, path: &str, status: StatusCode, peer: Peer) {
        if status == StatusCode::UNAUTHORIZED {
            self.fleet.audit_stranger(line(NOBODY, method.as_str(), path, status.as_u16(), peer));
        }
    }

    /// A place for the use of a desk by a key, if that is to be written down now.
    fn once_in_a_while(&self, key: &str, desk: &str, reads: bool) -> Result<Option<AuditPlace>> {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        let use_of_desk = (key.to_owned(), desk.to_owned(), reads);
        if driven.get(&use_of_desk).is_some_and(|last| last.elapsed() < WINDOW) {
            return Ok(None);
        }
        let place = self.fleet.audit_place()?;
        driven.insert(use_of_desk, Instant::now());
        Ok(Some(place))
    }

    pub(crate) fn prune(&self) {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        driven.retain(|_, last| last.elapsed() < WINDOW);
    }
}

fn line(key: &str, method: &str, path: &str, status: u16, peer: Peer) -> Audit {
    Audit {
        at_ms: jiff::Timestamp::now().as_millisecond(),
        key: key.into(),
        method: method.into(),
        path: credentials::redacted(path).into_owned(),
        status,
        from: peer.to_string(),
    }
}
