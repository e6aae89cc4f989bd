//! Eyes: one capture engine for every picture, stream and film of the screen.

use crate::error::{Error, Result};
use crate::place::Place;
use bytes::Bytes;
use hotdesk_api::action::{Rect, Size};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// How the pointer is painted on a picture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Cursor {
    /// Where and as the X server shows it.
    #[default]
    True,
    /// As OSWorld's server paints it: hot spot ignored, red and blue swapped, wrong blending.
    Osworld,
    Hidden,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    #[default]
    Png,
    Jpeg,
    Webp,
}

/// What picture is wanted.
#[derive(Debug, Clone, Default)]
pub struct ShotRequest {
    pub format: Format,
    pub cursor: Cursor,
    pub region: Option<Rect>,
    /// Largest width of the result; the picture is scaled down to it.
    pub max_width: Option<u32>,
    /// Factor on both sides, below 1.
    pub scale: Option<f32>,
    /// JPEG quality, 1 to 100.
    pub quality: Option<u8>,
}

/// A picture of one moment; never torn.
#[derive(Debug, Clone)]
pub struct Shot {
    pub bytes: Bytes,
    /// Equal for equal pictures of one request form.
    pub etag: String,
    pub size: Size,
}

/// The capture engine. Cheap to clone.
#[derive(Clone)]
pub struct Screen {
    place: Arc<Place>,
}

impl Screen {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }

    pub async fn shot(&self, request: ShotRequest) -> Result<Shot> {
        let _ = (request, &self.place);
        Err(Error::internal("screen"))
    }

    /// The size of the root window.
    pub async fn size(&self) -> Result<Size> {
        Err(Error::internal("screen"))
    }

    /// Waits until nothing changed for `quiet`, at most for `limit`; true if it settled.
    pub async fn settled(&self, quiet: Duration, limit: Duration) -> Result<bool> {
        let _ = (quiet, limit);
        Err(Error::internal("screen"))
    }

    /// The regions that change, as they change.
    pub fn changes(&self) -> broadcast::Receiver<Rect> {
        broadcast::channel(1).1
    }
}
