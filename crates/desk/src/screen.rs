//! Eyes: one capture engine for every picture, stream and film of the screen.
//!
//! ```text
//!   shot ─┐                        ┌─ source   X: shared memory, damage, cursor
//!   watch ┼─ jobs ─▶ one thread ───┼─ frame    the pixels, and which tiles changed in which version
//!   settle┘   (owner)              └─ strips   PNG, encoded strip by strip
//!      └──────── encode: parts, other sizes, JPEG, WebP (off that thread, from a frame)
//! ```
//!
//! All jobs that wait when the thread comes round share one capture, so any number of clients costs one. The X server
//! only tells *that* something changed until somebody looks: an idle screen, or one that nobody looks at, costs nothing.

mod crew;
mod cursor;
mod encode;
mod frame;
mod memory;
mod owner;
mod pack;
mod randr;
mod rgb;
mod segment;
mod source;
mod strips;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod xvfb;

pub use cursor::{CursorImage, CursorShape};
pub(crate) use encode::SIZE_MOST;
#[cfg(any(test, fuzzing))]
pub(crate) use frame::absorb;
pub use frame::{Frame, PIXEL, clip};
pub(crate) use pack::{Chunk, Packer};
pub(crate) use rgb::plain as plain_rgb;
pub(crate) use strips::{ROWS as STRIP_ROWS, assemble};

use crate::error::{Error, Result};
use crate::place::Place;
use bytes::Bytes;
use encode::Encoder;
use hotdesk_api::action::{Point, Rect, Size};
use owner::{Job, Owner};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, oneshot};

/// Longest wait for an X server that is there but does not answer. A capture takes milliseconds.
const X_LIMIT: Duration = Duration::from_secs(2);

/// Longest `limit` of [`Screen::settled`]: whoever waits longer asks again.
pub const SETTLE_MOST: Duration = Duration::from_secs(300);

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

impl Format {
    /// The `Content-Type`.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
        }
    }
}

/// What picture is wanted.
#[derive(Debug, Clone, Default)]
pub struct ShotRequest {
    pub format: Format,
    pub cursor: Cursor,
    /// A part of the screen; what lies outside of the screen is cut off.
    pub region: Option<Rect>,
    /// Largest width of the result; the picture is scaled down to it.
    pub max_width: Option<u32>,
    /// Factor on both sides, below 1.
    pub scale: Option<f32>,
    /// Exactly this size, stretched if need be.
    pub size: Option<Size>,
    /// JPEG quality, 1 to 100.
    pub quality: Option<u8>,
}

/// A picture of one moment; never torn.
#[derive(Debug, Clone)]
pub struct Shot {
    pub bytes: Bytes,
    /// A quoted entity tag: the same as long as the picture of this form stays the same.
    pub etag: String,
    pub size: Size,
}

/// What a viewer has seen so far. The default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub frame: u64,
    pub cursor: u64,
}

/// What a viewer has not seen yet.
#[derive(Clone)]
pub struct FrameUpdate {
    /// The pixels of the moment. Drop it before waiting for a slow client; see [`Frame`].
    pub frame: Arc<Frame>,
    /// What changed in them. Empty if only the pointer did; everything after a change of the screen's size.
    pub rects: Vec<Rect>,
    pub cursor: CursorImage,
    /// To be given to the next call.
    pub seen: Seen,
}

/// What is known without touching pixels.
#[derive(Debug, Clone)]
pub struct Glance {
    pub size: Size,
    /// Bits of a pixel that carry colour.
    pub depth: u8,
    /// The version of the picture, see [`Frame::version`].
    pub version: u64,
    pub cursor: CursorImage,
}

/// The capture engine. Cheap to clone.
#[derive(Clone)]
pub struct Screen {
    owner: Arc<Owner>,
    encoder: Arc<Encoder>,
}

impl Screen {
    pub fn new(place: Arc<Place>) -> Self {
        Self { owner: Arc::new(Owner::new(place)), encoder: Arc::default() }
    }

    /// A picture. Nothing is encoded twice: the same form of an unchanged screen gives the same bytes again.
    pub async fn shot(&self, request: ShotRequest) -> Result<Shot> {
        let scaled = request.scale.is_some() || request.max_width.is_some() || request.size.is_some();
        let whole = request.region.is_none() && !scaled;
        if whole && request.format == Format::Png {
            return self.ask(X_LIMIT, |reply| Job::Png { cursor: request.cursor, reply }).await;
        }
        let update = self.frame().await?;
        self.encoder.shot(update, request).await
    }

    /// The pixels and the pointer of this moment. `rects` is the whole screen.
    pub async fn frame(&self) -> Result<FrameUpdate> {
        self.ask(X_LIMIT, |reply| Job::Frame { reply }).await
    }

    /// Waits until the pixels or the pointer are no longer as in `seen`, and returns what changed.
    ///
    /// Changes that happen between two calls are collected, so a slow viewer gets fewer updates, not older ones. Answers at once the first
    /// time, with everything. When the display is down, or goes down meanwhile, this is [`Error::Unavailable`]; ask again after a pause,
    /// with the same `seen`.
    pub async fn next_frame(&self, seen: Seen) -> Result<FrameUpdate> {
        let (reply, answer) = oneshot::channel();
        self.owner.submit(Job::Watch { seen, reply })?;
        answer.await.map_err(|_| lost())?
    }

    /// Size, version and pointer of this moment.
    pub async fn glance(&self) -> Result<Glance> {
        self.ask(X_LIMIT, |reply| Job::Glance { reply }).await
    }

    /// Parts of a frame as pictures, without the pointer. JPEG and WebP as in [`Screen::shot`].
    pub async fn tiles(&self, frame: Arc<Frame>, rects: Vec<Rect>, format: Format, quality: u8) -> Result<Vec<Bytes>> {
        self.encoder.tiles(frame, rects, format, quality).await
    }

    /// Where the pointer is and what it looks like, now.
    pub async fn cursor_image(&self) -> Result<CursorImage> {
        Ok(self.glance().await?.cursor)
    }

    /// Where the pointer is, now.
    pub async fn pointer(&self) -> Result<Point> {
        Ok(self.cursor_image().await?.position())
    }

    /// The size of the root window.
    pub async fn size(&self) -> Result<Size> {
        Ok(self.glance().await?.size)
    }

    /// Changes the size of the root window, where the X server can.
    pub async fn resize(&self, size: Size) -> Result<Size> {
        self.ask(X_LIMIT * 2, |reply| Job::Resize { size, reply }).await
    }

    /// Waits until nothing changed for `quiet`, counted from the call on, at most for `limit`; true if it settled.
    ///
    /// Drawing that leaves every pixel as it was, and the pointer's moves, are no changes.
    pub async fn settled(&self, quiet: Duration, limit: Duration) -> Result<bool> {
        let limit = limit.min(SETTLE_MOST);
        self.ask(limit + X_LIMIT, |reply| Job::Settle { quiet: quiet.min(SETTLE_MOST), limit, reply }).await
    }

    /// The regions that change, as they change. While such a receiver lives, the screen is watched; it stays quiet while the display is
    /// down and continues, with the whole screen, when it is back.
    pub fn changes(&self) -> broadcast::Receiver<Rect> {
        self.owner.changes()
    }

    async fn ask<T>(&self, limit: Duration, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.owner.submit(job(reply))?;
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map_err(|_| lost())?,
            Err(_) => Err(Error::Timeout { what: "the X server's answer".into(), limit }),
        }
    }
}

/// The thread went away without an answer, which only a panic can do. It is started again by the next request.
fn lost() -> Error {
    Error::Unavailable { part: "the capture engine", reason: "it failed and is started again".into() }
}
