//! The audit log on its way to the store: who asked for what, and how it ended.
//!
//! Lines wait in a queue until the store has taken them, also while it is away. Whatever must be written down takes a place in the queue
//! before it is done, and is refused if there is none: so nothing is done that nobody can read about later.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fleet::Fleet;
use crate::store::Audit;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// Lines that may wait: minutes of a busy fleet.
pub(crate) const KEPT: usize = 10_000;
const AT_ONCE: usize = 500;
/// Between two tries to write.
const PAUSE: Duration = Duration::from_secs(1);

/// A place for one line. A line that is not written gives its place back.
pub struct AuditPlace(mpsc::OwnedPermit<Audit>);

impl AuditPlace {
    pub fn write(self, line: Audit) {
        self.0.send(line);
    }
}

impl Fleet {
    /// A place for a line that must be written; taken before that is done which it is about. A line may be lost when the machine dies.
    pub fn audit_place(&self) -> Result<AuditPlace> {
        let full =
            |_| Error::Store("the audit log can't be written, and nothing is done without it; ask again in a moment".into());
        self.engine.audit.clone().try_reserve_owned().map(AuditPlace).map_err(full)
    }

    /// A line about somebody who was not let in. These leave room for the others, and are dropped where there is none.
    pub fn audit_stranger(&self, line: Audit) {
        if self.engine.audit.capacity() > KEPT / 2 && self.engine.audit.try_send(line).is_ok() {
            return;
        }
        tracing::warn!("the audit log can't keep up; a line about a refused request was dropped");
    }
}

/// Writes the lines, many at once, until the fleet closes.
pub(crate) async fn write(engine: Arc<Engine>, lines: Arc<Mutex<mpsc::Receiver<Audit>>>) {
    let mut lines = lines.lock().await;
    let mut batch = Vec::new();
    loop {
        let closing = tokio::select! {
            n = lines.recv_many(&mut batch, AT_ONCE) => n == 0,
            () = engine.closing.cancelled() => {
                while let Ok(line) = lines.try_recv() {
                    batch.push(line);
                }
                true
            }
        };
        while !batch.is_empty() {
            let Err(e) = engine.store.audit_all(&batch).await else {
                batch.clear();
                break;
            };
            tracing::error!(error = %e, lines = batch.len(), "the audit log was not written");
            if engine.store.ping().await.is_ok() {
                // The store is there, so it is one of the lines. It must not keep the others.
                one_by_one(&engine, &mut batch).await;
            } else if closing {
                break;
            }
            tokio::select! {
                () = engine.closing.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        if closing {
            return;
        }
    }
}

/// Writes what can be written; what the store refuses though it answers is dropped and told.
async fn one_by_one(engine: &Engine, batch: &mut Vec<Audit>) {
    let mut left = Vec::new();
    for line in batch.drain(..) {
        if let Err(e) = engine.store.audit_all(std::slice::from_ref(&line)).await {
            match engine.store.ping().await {
                Ok(()) => tracing::error!(error = %e, ?line, "a line of the audit log can't be written and is dropped"),
                Err(_) => left.push(line),
            }
        }
    }
    *batch = left;
}
