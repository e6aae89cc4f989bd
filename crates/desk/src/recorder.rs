//! Films of the screen, made by ffmpeg where it is installed.

use crate::error::{Error, Result};
use crate::place::Place;
use std::path::PathBuf;
use std::sync::Arc;

/// The recorder: one film at a time. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    place: Arc<Place>,
}

impl Recorder {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }

    /// Starts a film; returns once its first frame is written. `Conflict` while one is under way.
    pub async fn start(&self) -> Result<()> {
        let _ = &self.place;
        Err(Error::internal("recorder"))
    }

    /// Ends the film and returns its file. `Conflict` if none is under way.
    pub async fn stop(&self) -> Result<PathBuf> {
        Err(Error::internal("recorder"))
    }
}
