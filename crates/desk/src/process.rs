//! Programs: started in the desk's place, watched, bounded in time, ended with all their children.

use crate::place::Place;
use std::sync::Arc;

/// The process engine. Cheap to clone.
#[derive(Clone)]
pub struct Processes {
    #[expect(dead_code)]
    place: Arc<Place>,
}

impl Processes {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }
}
