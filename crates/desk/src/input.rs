//! Hands: one engine for pointer, buttons, wheel and keys, used by every dialect.
//!
//! A list of actions is checked as a whole (`plan`), waits for its turn and is then done by one
//! thread (`worker`), so that two lists never mix:
//!
//! ```text
//!   perform ── plan ──▶ queue ──▶ worker ── session, turn ─┬─ hands (XTEST)
//!                                                          ├─ keyboard (which key makes what)
//!   pyautogui ───────── pool ───▶ hands                    └─ spare (keys for what has none)
//!   viewers ──────────── live ──▶ hands
//! ```

pub mod hands;
mod keyboard;
mod keys;
pub mod live;
mod motion;
mod plan;
mod pool;
mod session;
mod spare;
mod turn;
mod worker;

pub use pool::PooledHands;

/// A name of a key that lists of actions know.
pub(crate) fn key_name(keysym: u32) -> String {
    keys::name(keysym)
}

#[cfg(test)]
pub(crate) fn tests_keysym(name: &str) -> u32 {
    keys::keysym(name).unwrap()
}

use crate::error::{Error, Result};
use crate::lease::{Gate, LetGo};
use crate::place::Place;
use crate::x11::ANSWER_LIMIT;
use hotdesk_api::action::{Action, KeyNames, Point, Receipt};
use hotdesk_api::trace::Deed;
use std::sync::Arc;
use worker::Worker;

/// The input engine. Cheap to clone.
#[derive(Clone)]
pub struct Input {
    pool: Arc<pool::Pool>,
    worker: Arc<Worker>,
    gate: Gate,
}

impl Input {
    pub fn new(place: Arc<Place>) -> Self {
        let pool = pool::Pool::new(place.display.clone());
        let worker = Arc::new(Worker::new(place.display.clone()));
        Self { pool, worker, gate: Gate::default() }
    }

    /// The same behind a gate.
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Does a list of actions in order. Two lists never mix.
    pub async fn perform(&self, actions: Vec<Action>) -> Result<()> {
        self.run(actions).await.map(drop)
    }

    /// Like `perform`, and tells how long each action took.
    ///
    /// Nothing is done when the list is refused (`Invalid`) or the display is down (`Unavailable`).
    /// When it fails after an action had an effect, the error is a `Conflict` that says how far it came.
    pub async fn run(&self, actions: Vec<Action>) -> Result<Vec<Receipt>> {
        let told = if self.gate.records() { &actions[..] } else { &[] };
        let deeds = told.iter().cloned().map(Deed::Hands).collect();
        let plan = plan::Plan::new(actions)?;
        self.gate.turn(|| deeds, |pass| self.worker.run(plan, pass)).await
    }

    /// Stops the lists that are running or waiting, then releases every key and button.
    pub async fn release_all(&self) -> Result<()> {
        self.worker.release_all().await
    }

    /// Where the pointer is.
    pub async fn pointer(&self) -> Result<Point> {
        let pool = self.pool.clone();
        let question = tokio::task::spawn_blocking(move || pool.take()?.pointer());
        match tokio::time::timeout(ANSWER_LIMIT, question).await {
            Ok(answer) => answer.map_err(Error::internal)?.map(|(x, y)| Point { x: x.into(), y: y.into() }),
            Err(_) => Err(Error::display_down("it does not answer")),
        }
    }

    /// A connection of one's own that makes input, without waiting for anybody else's turn.
    ///
    /// Blocks for about one round trip: not for async code.
    pub fn hands(&self) -> Result<PooledHands> {
        self.pool.take()
    }

    /// The names that keys have.
    pub fn key_names(&self) -> KeyNames {
        KeyNames {
            names: keys::plain_names().map(str::to_owned).collect(),
            keysyms: keys::keysym_names().map(str::to_owned).collect(),
        }
    }
}

impl LetGo for Input {
    /// Stops what is under way, too. A display that is down holds nothing.
    async fn let_go(&self) {
        if let Err(reason) = self.release_all().await {
            tracing::debug!(%reason, "nothing could be released");
        }
    }
}

#[cfg(test)]
mod tests;
