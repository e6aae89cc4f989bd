//! Accessibility: the tree of the desk's programs over AT-SPI.

use crate::error::{Error, Result};
use crate::place::Place;
use std::sync::Arc;

/// The accessibility engine. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    place: Arc<Place>,
}

impl Access {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }

    /// The whole desktop as the XML that OSWorld's server answers.
    pub async fn osworld_xml(&self) -> Result<String> {
        let _ = &self.place;
        Err(Error::internal("access"))
    }

    /// The text of the active gnome-terminal, as OSWorld's `/terminal` answers it.
    pub async fn terminal_text(&self) -> Result<Option<String>> {
        Err(Error::internal("access"))
    }
}
