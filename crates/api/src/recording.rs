//! Films of the screen.

use crate::action::Rect;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is filmed and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingRequest {
    /// Pictures a second, 1 to 60; 30 if left out.
    #[serde(default)]
    pub fps: Option<u32>,
    /// A part of the screen; the whole of it if left out.
    #[serde(default)]
    pub region: Option<Rect>,
    /// Whether the pointer is shown; it is if left out.
    #[serde(default)]
    pub cursor: Option<bool>,
}

/// How the recorder is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recording {
    pub state: RecordingState,
    /// Milliseconds since the film began, or its length once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_ms: Option<u64>,
    /// Pictures that were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Size of the finished film.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why the film is shorter than it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordingState {
    /// Nothing is filmed and no film is kept.
    Idle,
    /// A film is under way.
    Recording,
    /// The film under way broke off by itself; what there is of it can be fetched.
    Broken,
    /// A finished film is kept until the next one begins.
    Finished,
}
