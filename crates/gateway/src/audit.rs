//! Who changed what: one line for each changing request to the fleet.
//!
//! A desk is driven by many small requests; of those, the first of each minute, key and desk is written down (and the first that only
//! reads), and every tunnel that is opened. That tells who drove which desk when, without a line for each click. Guests, who have no
//! key, are written down by what let them in.

use crate::credentials;
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::route::Route;
use axum::http::{Method, StatusCode};
use hotdesk_fleet::Fleet;
use hotdesk_fleet::store::Audit;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// Key of a request that had no good one.
const NOBODY: &str = "-";

/// A request that was answered.
pub(crate) struct Done<'a> {
    pub(crate) route: &'a Route,
    /// None: nobody was let in, or nobody had to be.
    pub(crate) caller: Option<&'a Caller>,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) status: StatusCode,
    pub(crate) peer: Peer,
}

pub(crate) struct AuditLog {
    fleet: Fleet,
    /// When a key's use of a desk was last written down.
    driven: Mutex<HashMap<(String, String, bool), Instant>>,
}

impl AuditLog {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self { fleet, driven: Mutex::default() }
    }

    pub(crate) fn write(&self, key: &str, method: &str, path: &str, status: u16, from: String) {
        let at_ms = jiff::Timestamp::now().as_millisecond();
        let line = Audit { at_ms, key: key.into(), method: method.into(), path: path.into(), status, from };
        self.fleet.audit(line);
    }

    /// Writes down what was asked and how it ended, where that is due.
    pub(crate) fn note(&self, done: &Done<'_>) {
        let reads = done.method.is_safe();
        let due = match done.caller {
            // Those that the limit let through; the rest got 429.
            None => done.status == StatusCode::UNAUTHORIZED,
            Some(_) if done.status == StatusCode::SWITCHING_PROTOCOLS => true,
            Some(_) if done.route.audited_within => false,
            Some(Caller { who, guest: Some(guest), .. }) => self.is_due(&who.key, guest.desk(), reads),
            Some(Caller { who, .. }) if done.route.class.is_passed_on() => {
                self.is_due(&who.key, done.route.desk.as_deref().unwrap_or_default(), reads)
            }
            Some(_) => !reads,
        };
        if due {
            let key = done.caller.map_or(NOBODY, |caller| caller.who.key.as_str());
            let path = credentials::redacted(done.path);
            self.write(key, done.method.as_str(), &path, done.status.as_u16(), done.peer.to_string());
        }
    }

    /// Whether the use of a desk by a key is to be written down now.
    fn is_due(&self, key: &str, desk: &str, reads: bool) -> bool {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match driven.get_mut(&(key.to_owned(), desk.to_owned(), reads)) {
            Some(last) if now.duration_since(*last) < WINDOW => false,
            Some(last) => {
                *last = now;
                true
            }
            None => {
                driven.insert((key.to_owned(), desk.to_owned(), reads), now);
                true
            }
        }
    }

    pub(crate) fn prune(&self) {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        driven.retain(|_, last| last.elapsed() < WINDOW);
    }
}
