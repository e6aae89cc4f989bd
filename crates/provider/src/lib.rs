//! Where desks live: one trait, one module per provider.
//!
//! A provider does what it is told and remembers nothing that the fleet needs: the fleet's store says what
//! should be, [`Provider::list`] what is. Every call can be repeated with the same id and has the effect of
//! one call, because the fleet may die between a call and the note that it was made.

pub mod closed;
pub mod cloud;
pub mod daytona;
pub mod docker;
pub mod door;
pub mod e2b;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod gce;
pub mod kubernetes;
pub mod local;
pub mod qemu;

pub use door::{Address, Door};
pub use error::{Error, Result};

use async_trait::async_trait;
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_api::fleet::Capabilities;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// Added to how likely the kernel is to end a process when memory runs out, of at most 1000.
const OUT_OF_MEMORY_FIRST: &str = "500";

/// When the machine's memory ends, this process and those that it starts go before the host's own services do. A desk works without.
pub(crate) fn goes_first(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), OUT_OF_MEMORY_FIRST);
}

/// What every provider on this machine is given.
#[derive(Clone)]
pub struct Context {
    /// Names this fleet among others on the same machine, daemon or account: 8 letters and digits, made with the data directory.
    /// Whatever a provider makes carries it, and whatever does not is not ours to remove.
    pub fleet: String,
    /// The provider's own directory, e.g. `DATA/local`.
    pub data: PathBuf,
    /// The `hotdesk` binary that desks run.
    pub binary: PathBuf,
    pub images: Arc<hotdesk_image::Library>,
}

impl Context {
    /// Desks that are written down in the provider's directory build on trees and disks of the library, which must stay.
    pub(crate) fn uses_images(&self) {
        if let Err(e) = self.images.add_user(&self.data) {
            tracing::warn!(error = %e, "`hotdesk template prune` will not know what the desks here need");
        }
    }
}

/// What a desk should be. The same on every call for one desk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeskSpec {
    /// Chosen by the fleet; lower-case letters, digits and dashes, at most 40.
    pub id: String,
    pub template: String,
    /// A snapshot of this provider to start from.
    pub snapshot: Option<SnapshotRef>,
    pub resources: Resources,
    pub screen: Size,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub network: bool,
    pub vnc_password: Option<String>,
    /// The desk's own token; its server refuses every request without it.
    pub secret: String,
    #[serde(default)]
    pub volumes: Vec<VolumePlace>,
}

impl DeskSpec {
    /// Labels that others may see. Those of a dialect have a colon in their names and hold what clients mean to be secret, such as
    /// environments: they stay with the fleet.
    pub(crate) fn public_labels(&self) -> impl Iterator<Item = (&String, &String)> {
        self.labels.iter().filter(|(name, _)| !name.contains(':'))
    }
}

/// A volume and where it goes. The fleet has checked that places are sane and do not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumePlace {
    /// Its id.
    pub volume: String,
    pub name: String,
    /// The directory on this machine. What is in it was written by desks and is not to be trusted.
    pub directory: PathBuf,
    /// The directory inside.
    pub at: String,
    pub read_only: bool,
    /// Only this directory of the volume.
    pub subpath: Option<String>,
    /// The bucket that is mounted on the directory; the fleet sees to it.
    #[serde(default)]
    pub source: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRef {
    pub id: String,
    pub memory: bool,
}

/// A desk that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub address: Address,
    /// Whatever the provider wants to find again: process id, container id, …
    pub handle: serde_json::Value,
}

/// What a template asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Wishes {
    pub resources: Option<Resources>,
    pub screen: Option<Size>,
}

impl Wishes {
    /// Those of a template of the library; a name that it does not know has none.
    #[must_use]
    pub fn of(images: &hotdesk_image::Library, template: &str) -> Self {
        let Ok(template) = images.template(template) else { return Self::default() };
        let screen = template.screen.map(|screen| Size { width: screen.width, height: screen.height });
        Self { resources: template.resources, screen }
    }
}

/// What a provider finds when it looks: a desk of ours, running or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub id: String,
    pub running: bool,
    pub placed: Option<Placed>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds of CPU since the desk was started.
    pub cpu_s: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub processes: u32,
}

/// One line of `hotdesk doctor`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub what: String,
    pub good: bool,
    /// What was found, what is used instead.
    pub detail: String,
    /// The one line that fixes it.
    pub fix: Option<String>,
}

/// Tells which stage a slow step is in.
#[derive(Clone)]
pub struct Progress(watch::Sender<String>);

impl Progress {
    pub fn new() -> (Self, watch::Receiver<String>) {
        let (sender, receiver) = watch::channel(String::new());
        (Self(sender), receiver)
    }

    pub fn stage(&self, stage: impl Into<String>) {
        self.0.send_replace(stage.into());
    }
}

/// A place where desks can live.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Whether desks take CPU, memory and disk of the machine that we run on. Where they do not, the provider itself says when it is
    /// full, and bounds how many are started at once.
    fn is_here(&self) -> bool {
        true
    }

    /// Whether a stopped desk has its files still. Where it has not, desks are not stopped: not by request, and not for being idle.
    fn keeps_files(&self) -> bool {
        true
    }

    /// Returns when something happened that the fleet should look at, such as the end of a desk. A provider that is not told of such
    /// things never returns: the fleet looks by itself every few seconds.
    async fn changed(&self) {
        std::future::pending().await
    }

    /// What works here. Cheap: probed once, remembered.
    async fn capabilities(&self) -> Capabilities;

    /// What works here and what would fix the rest, for people.
    async fn check(&self) -> Vec<Check>;

    /// What the template asks for where neither the request nor the fleet's settings say anything.
    fn wishes(&self, _template: &str) -> Wishes {
        Wishes::default()
    }

    /// Whether the template can be used, and what is missing; called before anything is spent.
    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()>;

    /// Makes the desk and starts it. A desk of that id that already runs is returned as it is.
    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed>;

    /// Starts a stopped desk with the files it had.
    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed>;

    /// Ends its programs, keeps its files. A stopped or unknown desk is no error.
    async fn stop(&self, id: &str) -> Result<()>;

    /// Back to the template (or snapshot), running.
    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed>;

    /// Removes everything of the desk. An unknown desk is no error.
    async fn delete(&self, id: &str) -> Result<()>;

    /// Everything of this fleet that exists here.
    async fn list(&self) -> Result<Vec<Found>>;

    async fn usage(&self, id: &str) -> Result<Usage>;

    /// The last lines that the desk's server printed, of this start and the one before; also of a desk that did not come up.
    async fn logs(&self, id: &str, lines: usize) -> Result<String>;

    /// Saves the desk under a snapshot's id; with `memory` also its programs, without stopping it for long. Returns its size in bytes.
    async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64>;

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()>;

    /// Ids of the snapshots that exist here.
    async fn snapshots(&self) -> Result<Vec<String>>;

    /// Writes a stopped desk's files as a tar stream into `to` (a pipe or a file).
    async fn export(&self, id: &str, to: &Path) -> Result<()>;

    /// Makes a stopped desk out of such a stream.
    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn desks_go_before_the_fleet_when_memory_ends() {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/hotdesk.service");
        let unit = std::fs::read_to_string(unit).unwrap();
        assert!(unit.lines().any(|line| line == "OOMScoreAdjust=-900"), "{unit}");
        let mut desk = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        goes_first(desk.id());
        let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", desk.id()));
        desk.kill().unwrap();
        desk.wait().unwrap();
        assert_eq!(score.unwrap().trim(), OUT_OF_MEMORY_FIRST, "else it has the fleet's, which it inherits");
    }
}
