//! Terminals: shells that clients attach to and leave.

use crate::problem::Problem;
use crate::process::Exit;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A terminal to open.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenTerminal {
    /// The program and its arguments; the user's login shell if left out.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// Changes to the desk's environment; `null` takes a variable away.
    #[serde(default)]
    pub env: BTreeMap<String, Option<String>>,
    /// The working directory; the desk's home if left out.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Default 80.
    #[serde(default)]
    pub cols: Option<u16>,
    /// Default 24.
    #[serde(default)]
    pub rows: Option<u16>,
    /// How long its program may take, in milliseconds; for ever if left out.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The program waits for whoever reads what is shown, so that they miss nothing; also for the first reader, some seconds.
    #[serde(default)]
    pub patient: bool,
    /// A name by which the client knows it.
    #[serde(default)]
    pub tag: Option<String>,
}

/// A terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TerminalInfo {
    pub id: u64,
    pub pid: u32,
    pub argv: Vec<String>,
    pub cols: u16,
    pub rows: u16,
    pub running: bool,
    /// How its program ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    /// How many clients are attached.
    pub viewers: usize,
    /// How many bytes it has printed.
    pub output_bytes: u64,
    /// What its environment has besides the desk's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory that it was started in, if that is not the desk's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What its opener calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Terminals of a desk, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TerminalList {
    pub terminals: Vec<TerminalInfo>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeTerminal {
    pub cols: u16,
    pub rows: u16,
}

/// What a client says in text on the WebSocket of a terminal. Binary messages are what is typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum TerminalControl {
    Resize { cols: u16, rows: u16 },
}

/// What the desk says in text on the WebSocket of a terminal. Binary messages are what is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TerminalEvent {
    /// So many bytes are not kept any more.
    Lost { bytes: u64 },
    Exit {
        #[serde(flatten)]
        exit: Exit,
    },
    /// Something that was asked for did not work.
    Problem { problem: Problem },
}
