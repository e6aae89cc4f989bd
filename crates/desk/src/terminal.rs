//! Terminals: shells on a PTY that clients attach to and leave.

use crate::place::Place;
use std::sync::Arc;

/// The terminal engine. Cheap to clone.
#[derive(Clone)]
pub struct Terminals {
    #[expect(dead_code)]
    place: Arc<Place>,
}

impl Terminals {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }
}
