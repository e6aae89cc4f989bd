//! The clipboard: reading the owner's selection and owning it ourselves.

use crate::place::Place;
use std::sync::Arc;

/// The clipboard engine. Cheap to clone.
#[derive(Clone)]
pub struct Clipboard {
    #[expect(dead_code)]
    place: Arc<Place>,
}

impl Clipboard {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }
}
