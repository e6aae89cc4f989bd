//! Hands: one engine for pointer, buttons, wheel and keys, used by every dialect.

pub mod hands;

use crate::error::Result;
use crate::place::Place;
use hotdesk_api::action::{Action, Point};
use std::sync::Arc;

/// The input engine. Cheap to clone.
#[derive(Clone)]
pub struct Input {
    place: Arc<Place>,
}

impl Input {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
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
