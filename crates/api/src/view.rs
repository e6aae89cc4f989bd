//! The live view and who looks.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How a viewer wants to look.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ViewQuery {
    /// Keys, mouse and clipboard of this viewer are ignored.
    #[serde(default)]
    pub view_only: bool,
    /// This viewer may change the screen's size.
    #[serde(default)]
    pub resize: bool,
    /// The word that this viewer takes the lease with. Its keys and mouse count only while it has the lease;
    /// one without such a word takes the lease with its first input.
    pub viewer: Option<String>,
}

/// The view's state.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ViewInfo {
    pub viewers: Vec<ViewerInfo>,
    /// How many viewers there may be at once.
    pub most_viewers: usize,
    /// Whether VNC viewers need a password.
    pub password: bool,
    /// Whether nobody may touch anything through the view.
    pub view_only: bool,
    /// What viewers show in their title.
    pub name: String,
}

/// One viewer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ViewerInfo {
    pub id: u64,
    /// Where it comes from: an address, or `unknown` where something stands between.
    pub from: String,
    pub view_only: bool,
    /// How long it has been looking.
    pub seconds: u64,
    /// Updates that it got.
    pub frames: u64,
    /// Bytes that it got.
    pub bytes: u64,
}
