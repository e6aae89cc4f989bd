//! How a desk is: its parts, their stages and their timings.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The answer of `/health`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// True once the first settled frame was captured and while every needed part runs.
    pub ready: bool,
    /// The stage that the desk is in: `x_server`, `bus`, `window_manager`, `settling`, `ready`, …
    pub stage: String,
    /// Milliseconds from the start to the end of each stage that is over.
    pub stages_ms: BTreeMap<String, u64>,
    /// Milliseconds since the desk was started.
    pub uptime_ms: u64,
    /// Each part of the session.
    pub parts: BTreeMap<String, Part>,
    /// The version of hotdesk.
    pub version: String,
}

/// One part of the session: the X server, the window manager, …
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Part {
    pub state: PartState,
    /// Why it is in this state, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The process, where it is one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again after it had died.
    pub restarts: u32,
    /// Milliseconds that its last start took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    Starting,
    Running,
    /// It died and is started again.
    Healing,
    /// It is not installed or not wanted; the desk works without it.
    Absent,
    /// It can't be started; `reason` says why.
    Failed,
}
