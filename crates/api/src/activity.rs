//! Signs of work in a desk, by which a fleet tells an idle one.

use crate::lease::Driver;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What goes on in a desk right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Activity {
    /// The share of the screen, 0 to 1, that changed since this was asked the last time. A caret or a clock stays below 0.01.
    pub screen_changed: f32,
    /// Live views that are open.
    pub viewers: u32,
    /// Commands that run in the background or in a request.
    pub commands: u32,
    /// Whether the screen is being recorded.
    pub recording: bool,
    /// Who drives.
    #[serde(default)]
    pub driver: Driver,
}
