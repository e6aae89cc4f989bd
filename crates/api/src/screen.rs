//! Pictures of the screen and what changes on it.

use crate::action::{Point, Rect, Size};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What is known about the screen without taking a picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScreenInfo {
    pub size: Size,
    /// Bits of a pixel that carry colour.
    pub depth: u8,
    /// Grows with every change of the picture.
    pub version: u64,
    pub pointer: Point,
}

/// A format of pictures. PNG and WebP are lossless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PictureFormat {
    #[default]
    Png,
    Jpeg,
    Webp,
}

/// How the pointer is painted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CursorManner {
    /// Where and as the screen shows it.
    #[default]
    True,
    /// As OSWorld's server paints it: too far right and down, red and blue swapped.
    Osworld,
    /// Not at all.
    None,
}

/// What a picture may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PictureWait {
    /// Until nothing changes on the screen.
    Settled,
}

/// What picture is wanted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ScreenshotQuery {
    #[serde(default)]
    #[param(inline, required = false)]
    pub format: PictureFormat,
    /// A part of the screen: `x,y,width,height`. What lies outside of the screen is cut off.
    #[param(example = "100,50,640,480")]
    pub region: Option<String>,
    /// A factor on both sides, above 0 and at most 1.
    pub scale: Option<f32>,
    /// The picture is scaled down to this width.
    pub max_width: Option<u32>,
    /// The picture has exactly this size, stretched if need be, instead of `scale` and `max_width`: `1280x800`. At most 4096 on a side.
    #[param(example = "1280x800")]
    pub size: Option<String>,
    /// Quality of a JPEG, 1 to 100; 85 if left out.
    pub quality: Option<u8>,
    #[serde(default)]
    #[param(inline, required = false)]
    pub cursor: CursorManner,
    /// What to wait for before the picture is taken.
    #[param(inline)]
    pub wait: Option<PictureWait>,
    /// With `wait=settled`: how long nothing may have changed, in milliseconds; 100 if left out.
    pub quiet_ms: Option<u64>,
    /// With `wait=settled`: how long to wait at most, in milliseconds; 5000 if left out. The picture is taken then anyway.
    pub limit_ms: Option<u64>,
}

/// When the screen counts as settled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledRequest {
    /// How long nothing may have changed, in milliseconds; 100 if left out.
    pub quiet_ms: Option<u64>,
    /// How long to wait at most, in milliseconds; 5000 if left out.
    pub limit_ms: Option<u64>,
}

/// Whether the screen settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledReply {
    /// False if it still changed when the time was over.
    pub settled: bool,
    pub waited_ms: u64,
}

/// Pixels that a stream carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamPixels {
    #[default]
    None,
    Png,
    Jpeg,
}

/// What a stream of changes carries, and how fast.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// Whether the regions' pictures are sent too: after each `change`, one binary message for each of its regions, in their order.
    #[serde(default)]
    #[param(inline, required = false)]
    pub pixels: StreamPixels,
    /// Most messages a second, 0.1 to 60; 10 if left out. A slow reader gets fewer, with all that changed meanwhile.
    pub max_fps: Option<f32>,
    /// Quality of JPEG pictures, 1 to 100; 70 if left out.
    pub quality: Option<u8>,
}

/// A text message of a stream of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ScreenEvent {
    /// Something is new: pixels in `regions`, or only the pointer's place. The first one has the whole screen as its region.
    Change { version: u64, size: Size, regions: Vec<Rect>, pointer: Point },
    /// The display is down; the stream goes on when it is back.
    Down { reason: String },
}
