//! One driver per desk that has work: takes its steps in order, each of which was written down before.
//!
//! A driver is a task that comes into being when a desk enters a step ([`Engine::kick`]) and ends when the desk rests, so that idle desks cost
//! nothing. What it has to do is the record's state and nothing else; it keeps no orders of its own. While it acts it holds the desk's lease; if
//! another orchestrator has it, it waits and looks what that one made of the desk.

pub(crate) mod hold;
mod steps;

use crate::engine::{Engine, Note};
use crate::state::{self, Intent, Next};
use futures_util::FutureExt;
use hold::Held;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steps::Outcome;
use tokio::sync::Notify;
use tracing::Instrument;

/// How often is looked whether another orchestrator is done with the desk.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The drivers at work.
#[derive(Default)]
pub(crate) struct Drivers(Mutex<HashMap<String, Arc<Notify>>>);

impl Drivers {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// There is work on a desk: its driver takes it up, or looks again if it was about to rest.
    pub(crate) fn kick(self: &Arc<Self>, id: &str) {
        if self.closing.is_cancelled() {
            return;
        }
        let wake = {
            let mut drivers = self.drivers.map();
            if let Some(wake) = drivers.get(id) {
                wake.notify_one();
                return;
            }
            let wake = Arc::new(Notify::new());
            drivers.insert(id.to_owned(), Arc::clone(&wake));
            wake
        };
        let span = tracing::info_span!("driver", desk = id);
        let (engine, id) = (Arc::clone(self), id.to_owned());
        let work = async move {
            let driving = AssertUnwindSafe(drive(Arc::clone(&engine), id.clone(), wake)).catch_unwind();
            if let Err(panic) = driving.await {
                engine.panics.note("driver", &*panic);
                engine.give_up(&id).await;
            }
        };
        self.spawn("driver", work.instrument(span));
    }

    /// The driver of a desk panicked: the step failed, and the next one has a driver of its own.
    async fn give_up(self: &Arc<Self>, id: &str) {
        let failing = self.change(id, |record| {
            if !state::is_step(record.state) {
                return Ok(None);
            }
            if let Next::To(to) = state::next(record.state, Intent::Failed)? {
                record.state = to;
            }
            record.reason = "a fault of the fleet's own; its log says more, and another try may work".into();
            Ok(Some(Note::state("driver")))
        });
        if let Err(e) = failing.await {
            tracing::error!(error = %e, "the end of a step was not written down; it will be taken again");
        }
        // A step that stays to be done is taken up by the next reconciliation.
        self.drivers.map().remove(id);
    }
}

async fn drive(engine: Arc<Engine>, id: String, wake: Arc<Notify>) {
    let mut held: Option<Held> = None;
    loop {
        let step = engine.view.get(&id).map(|e| (e.record(), e)).filter(|(r, _)| state::is_step(r.state));
        let Some((record, entry)) = step.filter(|_| !engine.closing.is_cancelled()) else {
            if let Some(held) = held.take() {
                held.release().await;
            }
            // Under the lock: a kick either finds us in the map, or comes after and makes a new driver.
            let mut drivers = engine.drivers.map();
            let work = engine.view.get(&id).is_some_and(|e| state::is_step(e.record().state));
            if work && !engine.closing.is_cancelled() {
                continue;
            }
            drivers.remove(&id);
            return;
        };
        let Some(mine) = &held else {
            match engine.hold(&id).await {
                Ok(Some(mine)) => held = Some(mine),
                Ok(None) => pause(&engine, &wake, ASK_AGAIN).await,
                Err(e) => {
                    tracing::warn!(error = %e, "the store gives no lease; trying again");
                    pause(&engine, &wake, ASK_AGAIN).await;
                }
            }
            // Whoever had it may have brought the step to its end.
            if !engine.alone
                && let Err(e) = engine.refresh(&id).await
            {
                tracing::warn!(error = %e, "the store does not say how the desk is; trying again");
                held = None;
                pause(&engine, &wake, ASK_AGAIN).await;
            }
            continue;
        };
        match steps::act(&engine, mine, &entry, &record).await {
            Outcome::Went => {}
            Outcome::LostLease => {
                tracing::warn!("the lease of the desk was lost in the midst of a step");
                held = None;
            }
            Outcome::Away(again) => {
                if let Some(held) = held.take() {
                    held.release().await;
                }
                pause(&engine, &wake, again).await;
            }
        }
    }
}

/// Waits, unless there is news or the fleet closes.
async fn pause(engine: &Engine, wake: &Notify, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = wake.notified() => {}
        () = engine.closing.cancelled() => {}
    }
}
