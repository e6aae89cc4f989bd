//! The helper: `hotdesk sandbox`, a process of one thread that makes a sandbox and starts the desk in it.
//!
//! Namespaces must be made by a process of one thread, and the orchestrator has many; so it starts itself again. The plan is
//! the content of standard input, which is the desk's lock file: as long as the helper holds it open, nobody else changes
//! the desk, whether or not the orchestrator still lives. The answer is one line of JSON on standard output.
//!
//! ```text
//! orchestrator            helper (root)                             first process of the sandbox
//!  │ plan ──────────────►  own session, the desk's control group
//!  │                       namespace of mounts: disk, layers, overlay, /dev, /run   [mounts]
//!  │                       clone ──────────────────────────────────►  new user, pid, mount, ipc, uts, net, cgroup namespaces
//!  │                       maps of users, network helper, note who runs            [network, directory]
//!  │                       leaves the namespace of mounts
//!  │                       go ─────────────────────────────────────►  /proc, /sys, devpts, pivot_root, socket  [inside]
//!  │                                                                  no capabilities, seccomp, uid 1000        [drop]
//!  │  ◄── one line ─────   ◄──────────────────────────────────────   exec hotdesk desk
//!  │                       keeps log and network until the desk ends               [keeper]
//! ```
//!
//! All mounts live in namespaces that have no name, so they go with the last process: there is nothing to orphan.
//! The same helper copies and packs layers ([`Task`]), because disks are mounted only in such namespaces.

pub(crate) mod drop;
pub(crate) mod inside;
pub(crate) mod keeper;
pub(crate) mod mounts;
pub(crate) mod probe;
pub(crate) mod seccomp;
pub(crate) mod spawn;
pub(crate) mod volumes;
pub(crate) mod work;

use super::cgroup::{Group, Limits};
use super::criu;
use super::directory::Running;
use super::disk::Disk;
use super::ids::Ids;
use super::network::Network;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What the helper is asked to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    Run(Box<Plan>),
    /// Copies the upper layer of a desk into a new layer.
    Save(work::Save),
    /// Writes the upper layer as a tar archive.
    Export(work::Export),
    /// Makes an upper layer out of such an archive.
    Import(work::Import),
    /// Saves a desk with its memory.
    Dump(Box<criu::dump::Dump>),
    Probe(probe::Probe),
}

/// A sandbox, complete: the helper decides nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) id: String,
    /// The desk's directory on the host.
    pub(crate) desk: PathBuf,
    /// An empty directory to mount on.
    pub(crate) stage: PathBuf,
    /// Lower layers, the uppermost first.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) disk: Disk,
    pub(crate) ids: Ids,
    pub(crate) group: Option<Group>,
    pub(crate) limits: Limits,
    pub(crate) network: Option<Network>,
    /// The `hotdesk` binary.
    pub(crate) binary: PathBuf,
    pub(crate) command: Vec<String>,
    /// What opens the desk's server.
    pub(crate) secret: String,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) rules: seccomp::Rules,
    #[serde(default)]
    pub(crate) volumes: Vec<crate::VolumePlace>,
    /// Programs may become root of the sandbox, as by `sudo`, with what a container's root may do.
    #[serde(default)]
    pub(crate) root: bool,
    /// What is in `/tmp` outlives a stop.
    #[serde(default)]
    pub(crate) keep_tmp: bool,
    /// Instead of a command: programs that were saved.
    #[serde(default)]
    pub(crate) restore: Option<criu::restore::Restore>,
}

/// What the helper answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Running(Running),
    /// Bytes of what was written.
    Written(u64),
    Failed(Trouble),
}

/// Why it failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) full: bool,
    pub(crate) text: String,
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

impl Trouble {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { full: false, text: text.into() }
    }
}

impl From<Trouble> for crate::Error {
    fn from(trouble: Trouble) -> Self {
        if trouble.full { Self::Full(trouble.text) } else { Self::Failed(trouble.text) }
    }
}

/// Says which step failed.
pub(crate) trait Step<T> {
    fn step(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<std::io::Error>> Step<T> for Result<T, E> {
    fn step(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|e| {
            let e = e.into();
            Trouble { full: super::directory::is_full(&e), text: format!("can't {}: {e}", what()) }
        })
    }
}

/// The whole of `hotdesk sandbox`.
pub fn main() -> ExitCode {
    let mut text = String::new();
    let task = std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string());
    let task = task.and_then(|_| serde_json::from_str::<Task>(&text).map_err(|e| e.to_string()));
    // The plan has secrets in it; it is not needed any more. A pipe can't be cut, and need not be.
    let _ = rustix::fs::ftruncate(std::io::stdin(), 0);
    let _ = nix::unistd::setsid();
    let outcome = match task {
        Err(e) => Err(Trouble::new(format!("the plan can't be understood: {e}"))),
        Ok(Task::Run(plan)) => return spawn::run(&plan),
        Ok(Task::Save(save)) => save.run().map(Answer::Written),
        Ok(Task::Export(export)) => export.run().map(Answer::Written),
        Ok(Task::Import(import)) => import.run().map(Answer::Written),
        Ok(Task::Dump(dump)) => dump.run().map(Answer::Written),
        Ok(Task::Probe(probe)) => probe.run().map(Answer::Written),
    };
    match outcome {
        Ok(answer) => {
            say(&answer);
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            say(&Answer::Failed(trouble));
            ExitCode::FAILURE
        }
    }
}

/// One line on standard output. Whoever asked may be dead by now; that changes nothing.
fn say(answer: &Answer) {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    let _ = std::io::stdout().write_all(&line);
}
