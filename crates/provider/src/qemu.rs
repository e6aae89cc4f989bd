//! Desks as virtual machines: QEMU, without root, without KVM where there is none, without any right at all.
//!
//! Each machine has a process of its own, its [`keeper`] (`hotdesk vm`), which starts QEMU, answers for it and ends it. The provider
//! starts keepers and finds them again; nothing that matters is in its own memory. The same keeper is the entrypoint of VM images.
//!
//! ```text
//!   gateway ──► desks/ID/run/desk.sock ──► keeper ──► QEMU: user-mode network ──► the guest's port 5000
//!                                            │  └──── control: snapshots, screen
//!                                            └─ filter: what the guest sends, but for what leads to this machine
//! ```
//!
//! - **Disks** are never written: each desk has an overlay (`overlay`) over the golden disk of its template, or over a disk of the settings.
//! - **Memory**: the first desk of a kind boots, and is saved when it has settled (`seed`). All others resume that: their memory is a
//!   private mapping of one file, so they share what they do not change. `reset` and `fork` are the same.
//! - **Network**: `filter`. Without a network the guest reaches nothing at all.
//! - **KVM** only after a test (`accel`).

pub mod accel;
mod console;
mod control;
mod desk;
mod disks;
pub(crate) mod filter;
mod front;
pub mod guest;
mod health;
mod jail;
pub mod keeper;
pub mod machine;
mod overlay;
mod place;
pub(crate) mod qmp;
pub(crate) mod save;
mod screen;
mod seed;
mod spawner;
mod vm;
pub(crate) mod wire;

use crate::local::cgroup::Trees;
use crate::local::check_name;
use crate::local::lock::Locks;
use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage, Wishes};
use async_trait::async_trait;
pub use disks::{Disk, open as open_disk};
use hotdesk_api::fleet::Capabilities;
pub use place::Base;
use place::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// This provider's name.
pub(crate) const NAME: &str = "qemu";
const PROGRAM: &str = "qemu-system-x86_64";
/// A picture of a machine's screen, as PNG.
const LARGEST_PICTURE: u64 = 64 << 20;
/// What brings it.
pub const INSTALL: &str = "apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils";

/// Settings of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Disks by the names under which desks ask for them, as for a template. Every other name is a template, whose golden disk is used.
    pub disks: BTreeMap<String, PathBuf>,
    /// Boot once and save the machine when it has settled; the next desks resume that.
    pub memory_snapshots: bool,
    /// Whether to use KVM: `auto` (if a test guest runs on it), `kvm`, `tcg`.
    pub accel: accel::Choice,
    /// QEMU itself. None: `qemu-system-x86_64` in the search path.
    pub program: Option<PathBuf>,
    /// Private networks that guests may reach, such as `10.1.0.0/16`. Services that hand out a cloud's credentials stay closed.
    pub allow_private: Vec<crate::closed::Cidr>,
    /// A firmware for disks that a BIOS can't start, such as /usr/share/ovmf/OVMF.fd.
    pub firmware: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let accel = accel::Choice::Auto;
        Self { disks: BTreeMap::new(), memory_snapshots: true, accel, program: None, allow_private: Vec::new(), firmware: None }
    }
}

/// The provider.
pub struct Qemu {
    inner: Arc<Inner>,
}

/// What all calls share.
struct Inner {
    context: Context,
    config: Config,
    place: Place,
    locks: Locks,
    groups: Trees,
    /// Held while it is decided which layers are in use.
    layers: tokio::sync::Mutex<()>,
    accel: tokio::sync::OnceCell<accel::Found>,
    /// Golden disks by their templates, each with the digest of the tree that is on it.
    golden: std::sync::Mutex<BTreeMap<String, (String, Disk)>>,
}

impl Qemu {
    /// Cleans up what an earlier life left. Asks nothing of QEMU yet.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        let place = Place::open(&context.data)?;
        place.sweep();
        context.uses_images();
        let groups = if rustix::process::geteuid().is_root() { Trees::find() } else { Trees::default() };
        let (locks, layers) = (Locks::default(), tokio::sync::Mutex::default());
        let inner = Inner {
            context,
            config,
            place,
            locks,
            groups,
            layers,
            accel: tokio::sync::OnceCell::new(),
            golden: Default::default(),
        };
        inner.sweep_seeds();
        inner.place.forget_unused();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Takes a picture of a desk's machine, whatever its guest does, as PNG.
    pub async fn screenshot(&self, id: &str) -> Result<Vec<u8>> {
        check_name(id)?;
        let desk = self.inner.place.desk(id);
        let to = desk.run().join(format!("asked-{:08x}.png", rand::random::<u32>()));
        control::ask(&desk.run(), &control::Request::Screenshot { to: to.clone() }).await?;
        let picture = jail::read(&to, LARGEST_PICTURE).map_err(|e| Error::Failed(format!("the picture can't be read: {e}")));
        let _ = std::fs::remove_file(to);
        picture
    }
}

impl Inner {
    fn program(&self) -> Result<PathBuf> {
        let program = self.config.program.clone().or_else(find_program);
        program.ok_or_else(|| Error::Unavailable {
            provider: NAME,
            reason: format!("{PROGRAM} is missing; `{INSTALL}` installs it"),
        })
    }

    /// Who computes, found out once.
    async fn accel(&self) -> Result<&accel::Found> {
        let program = self.program()?;
        self.accel.get_or_try_init(|| async { accel::choose(self.config.accel, &program, &self.place.accel()).await }).await
    }
}

/// QEMU in the search path.
pub fn find_program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&folders).chain(usual).map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())
}

#[async_trait]
impl Provider for Qemu {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn check(&self) -> Vec<Check> {
        self.inner.check().await
    }

    fn wishes(&self, template: &str) -> Wishes {
        Wishes::of(&self.inner.context.images, template)
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        self.inner.prepare(template, progress).await
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        check_name(&spec.id)?;
        self.inner.create(spec, progress).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        check_name(&spec.id)?;
        self.inner.start(spec, progress).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        check_name(id)?;
        self.inner.stop(id).await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        check_name(&spec.id)?;
        self.inner.reset(spec, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        check_name(id)?;
        self.inner.delete(id).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        Ok(self.inner.list())
    }

    async fn usage(&self, id: &str) -> Result<Usage> {
        check_name(id)?;
        self.inner.usage(id).await
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        check_name(id)?;
        self.inner.logs(id, lines)
    }

    async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        check_name(id)?;
        check_name(snapshot)?;
        self.inner.snapshot(id, snapshot, memory).await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        check_name(snapshot)?;
        self.inner.delete_snapshot(snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        Ok(self.inner.snapshots())
    }

    async fn export(&self, id: &str, to: &Path) -> Result<()> {
        check_name(id)?;
        self.inner.export(id, to).await
    }

    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        check_name(&spec.id)?;
        self.inner.import(spec, from).await
    }
}
