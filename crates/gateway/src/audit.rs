//! Who changed what: one line for each changing request to the fleet.
//!
//! A desk is driven by many small requests; of those, the first of each minute, key and desk is written down, and every tunnel
//! that is opened. That tells who drove which desk when, without a line for each click.

use hotdesk_fleet::Fleet;
use hotdesk_fleet::store::Audit;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// Key of a request that had no good one.
pub(crate) const NOBODY: &str = "-";

pub(crate) struct AuditLog {
    fleet: Fleet,
    /// When a key's use of a desk was last written down.
    driven: Mutex<HashMap<(String, String), Instant>>,
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

    /// Whether the use of a desk by a key is to be written down now.
    pub(crate) fn is_due(&self, key: &str, desk: &str) -> bool {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match driven.get_mut(&(key.to_owned(), desk.to_owned())) {
            Some(last) if now.duration_since(*last) < WINDOW => false,
            Some(last) => {
                *last = now;
                true
            }
            None => {
                driven.insert((key.to_owned(), desk.to_owned()), now);
                true
            }
        }
    }

    pub(crate) fn prune(&self) {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        driven.retain(|_, last| last.elapsed() < WINDOW);
    }
}
