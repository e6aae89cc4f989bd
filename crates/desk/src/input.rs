//! Hands: one engine for pointer, buttons, wheel and keys, used by every dialect.

pub mod hands;
mod pool;

pub use pool::PooledHands;

use crate::error::Result;
use crate::place::Place;
use hotdesk_api::action::{Action, Point};
use std::sync::Arc;

/// The input engine. Cheap to clone.
#[derive(Clone)]
pub struct Input {
    place: Arc<Place>,
    pool: Arc<pool::Pool>,
}

impl Input {
    pub fn new(place: Arc<Place>) -> Self {
        let pool = pool::Pool::new(place.display.clone());
        Self { place, pool }
    }

    /// A connection of one's own that makes input, without waiting for anybody else's turn.
    ///
    /// Blocks for about one round trip: not for async code.
    pub fn hands(&self) -> Result<PooledHands> {
        self.pool.take()
    }

    /// Does a list of actions in order. Two lists never mix.
    pub async fn perform(&self, actions: Vec<Action>) -> Result<()> {
        let _ = (actions, &self.place);
        Err(crate::Error::internal("input"))
    }

    /// Where the pointer is.
    pub async fn pointer(&self) -> Result<Point> {
        Err(crate::Error::internal("input"))
    }
}
