//! The desk's clipboard.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which of X's two clipboards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// What copy and paste use.
    #[default]
    Clipboard,
    /// What is selected, and pasted with the middle button.
    Primary,
}

/// What the clipboard can be read as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClipboardTypes {
    /// False when the clipboard is empty.
    pub filled: bool,
    /// MIME types and names of X targets, the owner's favourites first.
    pub types: Vec<String>,
}

/// Which clipboard, and as what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ClipboardQuery {
    #[serde(default)]
    #[param(inline, required = false)]
    pub selection: Selection,
    /// A MIME type or the name of an X target; text if left out.
    #[param(example = "image/png")]
    pub r#type: Option<String>,
}
