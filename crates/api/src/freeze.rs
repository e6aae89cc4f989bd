//! A desk that stands still, so that it can be saved with its memory, and what it is told when it goes on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The answer of a desk that is about to stand still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Freezing {
    /// This file appears when nothing leads out of the desk any more.
    pub frozen: String,
    /// The desk goes on when this file appears; its content is a `Thaw` as JSON.
    pub thaw: String,
    /// The desk goes on by itself after so many seconds.
    pub limit_s: u64,
}

/// What a desk is told when it goes on: nothing if it is the same desk, and what makes it another one if it is a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Thaw {
    /// The token that requests need from now on.
    pub token: Option<String>,
    /// The password of the live view from now on.
    pub vnc_password: Option<String>,
    /// Variables of the programs that are started from now on. Those that run keep theirs.
    pub env: BTreeMap<String, String>,
}
