//! Kernels: Python interpreters that run one piece of code after another and remember what it defined.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A kernel to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKernel {
    /// By which it is found again: 1 to 128 visible characters, none of them a slash. Made up if left out.
    #[serde(default)]
    pub name: Option<String>,
    /// Changes to the desk's environment; `null` takes a variable away.
    #[serde(default)]
    pub env: BTreeMap<String, Option<String>>,
    /// The working directory; the desk's home if left out.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// A kernel that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Kernel {
    pub name: String,
    pub pid: u32,
    /// The directory that it was started in.
    pub cwd: String,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    /// Whether it runs code now.
    pub busy: bool,
}

/// Kernels of a desk, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelList {
    pub kernels: Vec<Kernel>,
}

/// Code for a kernel. It runs when what was sent before it has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteCode {
    pub code: String,
    /// Variables of the environment that are set while it runs.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How long it may take, with the time that it waits; as long as the client listens if left out. Then it is interrupted; a
    /// kernel that goes on all the same is ended.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether the value of a last line that is an expression is told.
    #[serde(default)]
    pub result: bool,
}

/// What code does, as server-sent events. The last one is `end`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum KernelEvent {
    Stdout {
        data: String,
    },
    Stderr {
        data: String,
    },
    /// The value of the last line, as `repr` shows it. Cut after 40000 characters.
    Result {
        data: String,
    },
    /// An exception ended the code. Each text is cut after 40000 characters.
    Error {
        /// Its class.
        name: String,
        value: String,
        traceback: String,
    },
    End {
        outcome: Outcome,
        /// Why, if the code did not come to its own end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// How code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// By itself, by an exception, or interrupted by somebody.
    Done,
    TimedOut,
    /// The kernel has ended, and what it remembered is gone.
    Died,
}
