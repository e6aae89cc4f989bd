//! A few open connections that make input, kept for whoever needs hands next.
//!
//! Opening a connection costs about ten times as much as a click, so programs borrow one.

use super::hands::Hands;
use crate::error::Result;
use crate::place::Display;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use x11rb::connection::Connection;

/// Idle connections that are kept. More programs than this at once are rare, and each connection
/// costs the X server a client slot (it has 256 by default).
const MOST_IDLE: usize = 4;

pub(super) struct Pool {
    display: Display,
    idle: Mutex<Vec<Hands>>,
}

impl Pool {
    pub(super) fn new(display: Display) -> Arc<Self> {
        Arc::new(Self { display, idle: Mutex::new(Vec::new()) })
    }

    /// An open connection, known to be alive a moment ago. Blocks for about one round trip.
    pub(super) fn take(self: &Arc<Self>) -> Result<PooledHands> {
        loop {
            let idle = self.idle().pop();
            let hands = match idle {
                // The X server may have died and come back since this one was last used.
                Some(hands) if hands.sync().is_err() => continue,
                Some(hands) => {
                    forget_events(&hands);
                    hands
                }
                None => Hands::connect(&self.display)?,
            };
            return Ok(PooledHands { hands: Some(hands), pool: self.clone() });
        }
    }

    fn give_back(&self, hands: Hands) {
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push(hands);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Hands>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notices about the keyboard's map reach every client and would pile up in the connection.
fn forget_events(hands: &Hands) {
    while let Ok(Some(_)) = hands.connection.poll_for_event() {}
}

/// Hands on loan: they go back to the pool when dropped, unless their connection is broken.
pub struct PooledHands {
    hands: Option<Hands>,
    pool: Arc<Pool>,
}

impl Deref for PooledHands {
    type Target = Hands;

    fn deref(&self) -> &Hands {
        match &self.hands {
            Some(hands) => hands,
            None => unreachable!("hands are only taken out when dropped"),
        }
    }
}

impl Drop for PooledHands {
    fn drop(&mut self) {
        if let Some(hands) = self.hands.take().filter(|hands| !hands.is_broken()) {
            self.pool.give_back(hands);
        }
    }
}
