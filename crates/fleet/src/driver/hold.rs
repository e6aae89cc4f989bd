//! The right to act on a desk: one in this process at a time, one orchestrator of the fleet at a time.
//!
//! The store's lease lasts [`LEASE`] and is renewed while it is held. If it can't be renewed, whoever acts stops after [`FENCE`], which is
//! before anybody else may begin.

use crate::clock::ms;
use crate::engine::Engine;
use crate::error::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// How long a desk waits for the next orchestrator when its own dies in the midst of a step.
pub(crate) const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(2);
/// The pause after the store did not answer.
const AGAIN: Duration = Duration::from_millis(200);
/// The rest of the lease is for clocks that run unequal and for calls that are just being made.
const FENCE: Duration = Duration::from_millis(4500);

/// Locks of the desks that are acted on in this process.
#[derive(Default)]
pub(crate) struct Holds(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Holds {
    /// The desks that are acted on.
    pub(crate) fn held(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

/// The right to act on one desk.
pub(crate) struct Held {
    engine: Arc<Engine>,
    id: String,
    guard: Option<OwnedMutexGuard<()>>,
    renewed: Mutex<Instant>,
}

impl Engine {
    /// Waits for its turn in this process, then asks for the lease. `None` if another orchestrator has it.
    pub(crate) async fn hold(self: &Arc<Self>, id: &str) -> Result<Option<Held>> {
        let lock = {
            let mut holds = self.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(holds.entry(id.to_owned()).or_default())
        };
        let guard = lock.lock_owned().await;
        let asked = Instant::now();
        let mut held = Held { engine: Arc::clone(self), id: id.into(), guard: Some(guard), renewed: Mutex::new(asked) };
        if !self.alone {
            match self.store.lease(id, &self.owner, ms(LEASE)).await {
                Ok(true) => {}
                other => {
                    held.forget();
                    return other.map(|_| None);
                }
            }
        }
        Ok(Some(held))
    }
}

impl Held {
    /// Renews the lease for as long as it can; returns when it is lost.
    pub(crate) async fn lost(&self) {
        if self.engine.alone {
            return std::future::pending().await;
        }
        let renewed = || *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Waits first: most steps are over by then, and a question that is dropped half-way costs its connection.
            tokio::time::sleep_until(renewed() + RENEW).await;
            loop {
                let asked = Instant::now();
                let lease = self.engine.store.lease(&self.id, &self.engine.owner, ms(LEASE));
                match tokio::time::timeout_at(renewed() + FENCE, lease).await {
                    Ok(Ok(true)) => {
                        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = asked;
                        break;
                    }
                    Ok(Ok(false)) | Err(_) => return,
                    Ok(Err(e)) => {
                        tracing::warn!(desk = self.id, error = %e, "the lease of the desk was not renewed; trying again")
                    }
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Gives the right back, so that nobody has to wait for its end.
    pub(crate) async fn release(mut self) {
        if !self.engine.alone
            && let Err(e) = self.engine.store.release(&self.id, &self.engine.owner).await
        {
            tracing::debug!(desk = self.id, error = %e, "the lease was not given back; it runs out by itself");
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.guard = None;
        let mut holds = self.engine.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        if holds.get(&self.id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            holds.remove(&self.id);
        }
    }
}

impl Drop for Held {
    /// Dropped in the midst: the lease is given back all the same.
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        if self.engine.alone || self.engine.killed.is_cancelled() {
            drop(guard);
            self.forget();
            return;
        }
        // The next one in this process must not begin before the lease is given back, or it would lose the one it takes.
        let (engine, id) = (Arc::clone(&self.engine), self.id.clone());
        self.engine.spawn("lease", async move {
            let _ = engine.store.release(&id, &engine.owner).await;
            drop(guard);
        });
    }
}
