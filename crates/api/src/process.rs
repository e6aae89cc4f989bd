//! Programs that run on a desk.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// How bytes are put into JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As UTF-8; bytes that are none become `�`.
    #[default]
    Text,
    Base64,
}

/// A program to run to its end. Either `argv` or `shell` is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunProcess {
    /// The program and its arguments.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// A script for `/bin/sh -c`.
    #[serde(default)]
    pub shell: Option<String>,
    /// Changes to the desk's environment; `null` takes a variable away.
    #[serde(default)]
    pub env: BTreeMap<String, Option<String>>,
    /// The working directory; the desk's home if left out.
    #[serde(default)]
    pub cwd: Option<String>,
    /// What the program reads, as text.
    #[serde(default)]
    pub stdin: Option<String>,
    /// What the program reads, in base64.
    #[serde(default)]
    pub stdin_base64: Option<String>,
    /// How long it may take, in milliseconds; then it is killed with all that it started. Default 60000.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// How many bytes of each stream are kept. Default 1048576, at most 16777216.
    #[serde(default)]
    pub output_limit: Option<u64>,
    /// Both streams in `stdout`, in the order in which they were written.
    #[serde(default)]
    pub merge_stderr: bool,
    /// How the output is put into the reply.
    #[serde(default)]
    pub encoding: Encoding,
}

/// What a program left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    pub stdout: String,
    pub stderr: String,
    pub encoding: Encoding,
    #[serde(flatten)]
    pub exit: Exit,
    /// More was printed than was kept.
    pub truncated: bool,
    pub duration_ms: u64,
}

/// How a program ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// Left out if a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it: `SIGKILL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// True if it was killed because it took too long.
    pub timed_out: bool,
}

/// A program to start in the background. Either `argv` or `shell` is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartProcess {
    /// The program and its arguments.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// A script for `/bin/sh -c`.
    #[serde(default)]
    pub shell: Option<String>,
    /// Changes to the desk's environment; `null` takes a variable away.
    #[serde(default)]
    pub env: BTreeMap<String, Option<String>>,
    /// The working directory; the desk's home if left out.
    #[serde(default)]
    pub cwd: Option<String>,
    /// How long it may take, in milliseconds; for ever if left out.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Both streams as `stdout`, in the order in which they were written.
    #[serde(default)]
    pub merge_stderr: bool,
    /// It can't be written to: its input is empty.
    #[serde(default)]
    pub no_input: bool,
    /// The program waits for whoever reads its output, so that they miss nothing; also for the first reader, some seconds.
    #[serde(default)]
    pub patient: bool,
    /// A name by which the client knows it.
    #[serde(default)]
    pub tag: Option<String>,
}

/// A program that was started in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Counts up and is never used again, unlike process ids.
    pub id: u64,
    pub pid: u32,
    pub argv: Vec<String>,
    pub running: bool,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// How many bytes it has printed.
    pub output_bytes: u64,
    /// What its environment has besides the desk's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory that it was started in, if that is not the desk's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Programs of a desk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// Those that were started in the background over this API, the oldest first.
    pub processes: Vec<ProcessInfo>,
    /// All that can be seen from the desk, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Vec<SystemProcess>>,
}

/// A process as the system shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemProcess {
    pub pid: i32,
    pub parent: i32,
    /// The number of the user.
    pub user: u32,
    pub name: String,
    /// Cut after 4096 characters.
    pub argv: Vec<String>,
    /// One letter, as `ps` shows it.
    pub state: String,
    /// Processor time since it started.
    pub cpu_ms: u64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Milliseconds since the machine was started.
    pub started_after_ms: u64,
}

/// Which programs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListProcesses {
    /// Whether all processes that can be seen are listed too.
    #[serde(default)]
    #[param(default = false)]
    pub all: bool,
}

/// From where output is read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadOutput {
    /// The offset of the first byte that is wanted; output that is no longer kept is skipped, and that is told.
    #[serde(default)]
    #[param(default = 0)]
    pub from: u64,
    /// Whether the stream goes on until the program ends, or ends with what there is.
    #[serde(default = "yes")]
    #[param(default = true)]
    pub follow: bool,
    #[serde(default)]
    #[param(inline)]
    pub encoding: Encoding,
}

/// Output of a program, as server-sent events and on a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum OutputEvent {
    Stdout {
        offset: u64,
        data: String,
    },
    Stderr {
        offset: u64,
        data: String,
    },
    /// So many bytes are not kept any more.
    Lost {
        bytes: u64,
    },
    Exit {
        #[serde(flatten)]
        exit: Exit,
    },
    /// Something that was asked for over the WebSocket did not work.
    Problem {
        problem: Problem,
    },
}

/// What a client says in text on the WebSocket of a program. Binary messages are its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProcessControl {
    /// Ends the program's input.
    CloseStdin,
    Signal {
        /// `TERM`, `SIGTERM` or `15`.
        signal: String,
    },
}

/// Input for a program.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteStdin {
    #[serde(default)]
    pub text: Option<String>,
    #[serde(default)]
    pub base64: Option<String>,
    /// Whether the input ends after it.
    #[serde(default)]
    pub close: bool,
}

/// Changes to the environment of all programs that are started from now on. Those that run keep theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ChangeVariables {
    pub set: BTreeMap<String, String>,
    /// Taken away, whoever has set them.
    pub unset: Vec<String>,
}

/// A signal for a program.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// `TERM`, `SIGTERM` or `15`.
    pub signal: String,
    /// Whether everything that the program started gets it too.
    #[serde(default)]
    pub tree: bool,
}

/// How a program is ended.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EndProcess {
    /// How long it may take to end by itself after SIGTERM, before SIGKILL.
    #[serde(default = "grace")]
    #[param(default = 2000, maximum = 60000)]
    pub grace_ms: u64,
}

fn yes() -> bool {
    true
}

fn grace() -> u64 {
    2000
}
