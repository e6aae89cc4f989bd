//! How a desk is: its parts, their stages and their timings; and what it can do.

use crate::action::Size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The answer of `/health`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// True once the first settled frame was captured and while every needed part runs.
    pub ready: bool,
    /// The stage that the desk is in: `x_server`, `bus`, `window_manager`, `settling`, `ready`, `stopping`.
    pub stage: String,
    /// What the desk waits for and since when, while it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Milliseconds from the start of the desk to the end of each stage that is over.
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
    /// Whether the desk is ready only while this part runs.
    #[serde(default)]
    pub needed: bool,
    /// Why it is in this state, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is run, where it is a program of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The process, where it is one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again after it had died.
    pub restarts: u32,
    /// Milliseconds that its last start took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// Milliseconds that it has been in this state.
    #[serde(default)]
    pub since_ms: u64,
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
    /// It did what it was started for, or was ended on purpose.
    Ended,
}

/// The answer of `/v1/info`: what this desk is and what it can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// The version of hotdesk.
    pub version: String,
    /// The X display, such as `:99`.
    pub display: String,
    /// Its size now; absent while the display is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// The display was there before the desk and is only used by it.
    pub attached: bool,
    /// Home and working directory of programs.
    pub home: String,
    /// The user that programs run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Programs of the machine that some requests need.
    pub features: BTreeMap<String, Feature>,
}

/// A program that some requests need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Feature {
    pub present: bool,
    /// What it is for.
    pub purpose: String,
    /// Where it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The answer of `/v1/logs`: what the parts of the session wrote, oldest line first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    pub lines: Vec<LogLine>,
}

/// One line that a part of the session wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// The part: `x_server`, `window_manager`, …
    pub part: String,
    /// Milliseconds from the start of the desk.
    pub at_ms: u64,
    pub text: String,
}
