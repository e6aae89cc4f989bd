//! A desk that is about to be saved with its memory, and what makes a copy of it another desk.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The answer of a desk that nobody is connected with any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Frozen {
    /// Connections that had to be cut off.
    pub cut: usize,
}

/// What makes a copy of a desk another desk. What is left out stays as it was.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Thaw {
    /// The token that requests need from now on.
    pub token: Option<String>,
    /// The password of the live view from now on.
    pub vnc_password: Option<String>,
    /// Variables of the programs that are started from now on. Those that run keep theirs.
    pub env: BTreeMap<String, String>,
}
