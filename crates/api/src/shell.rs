//! Shells: each runs one command after another and remembers its directory, variables and functions between them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The shell in which a desk runs its entrypoint.
pub const ENTRYPOINT: &str = "entrypoint";
/// The variable in a new desk's `env` that holds its entrypoint, a shell command. Programs of the desk do not have it.
pub const ENTRYPOINT_VARIABLE: &str = "HOTDESK_ENTRYPOINT";

/// A shell to open.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenShell {
    /// By which it is found again: 1 to 128 visible characters.
    pub name: String,
    /// Changes to the desk's environment; `null` takes a variable away.
    #[serde(default)]
    pub env: BTreeMap<String, Option<String>>,
    /// The working directory; the desk's home if left out.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// A shell and what it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shell {
    pub name: String,
    pub pid: u32,
    /// False once the shell has ended: by `exit`, or by a signal. What it was told is still known.
    pub running: bool,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    /// The oldest first.
    pub commands: Vec<ShellCommand>,
}

/// Shells of a desk, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShellList {
    pub shells: Vec<Shell>,
}

/// A command for a shell. It runs when those before it have ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// Any lines that the shell understands.
    pub command: String,
    /// Answer when it has ended. Its input is empty then; otherwise it is what is written to it.
    #[serde(default)]
    pub wait: bool,
}

/// A command that a shell was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShellCommand {
    /// Counts up from 1 in each shell.
    pub id: u64,
    pub command: String,
    pub running: bool,
    /// Left out while it runs; 128 and the signal's number if one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How many bytes it has printed.
    pub output_bytes: u64,
}
