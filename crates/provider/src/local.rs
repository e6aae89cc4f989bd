//! Desks in namespaces of their own on this machine, without any daemon.
//!
//! A desk is a process tree in its own user, mount, PID, IPC, UTS, network and control-group namespaces, on an overlay of
//! its template's root file system. [`sandbox`] makes it, in a helper process; [`directory`] says where everything lies;
//! this module puts the steps in order and makes each of them repeatable.
//!
//! What holds between calls is on the disk and in the kernel, never in memory: a desk runs if the process that its
//! `running.json` names runs, whoever started it. Whoever changes a desk holds its lock; the helper inherits it,
//! so a helper that outlives its orchestrator is waited for.

pub(crate) mod archive;
pub(crate) mod cgroup;
mod check;
mod criu;
mod desk;
pub(crate) mod directory;
pub(crate) mod disk;
mod ending;
mod helper;
pub(crate) mod ids;
mod layers;
pub(crate) mod lock;
pub(crate) mod network;
pub(crate) mod process;
pub mod sandbox;
mod shifted;
mod tree;

use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage, Wishes};
use async_trait::async_trait;
pub(crate) use desk::image_error;
use directory::Directory;
use hotdesk_api::fleet::Capabilities;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Settings of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Most processes and threads of a desk. A browser with many tabs has some hundreds.
    pub max_processes: u32,
    /// Programs may make user namespaces, as the browsers' own sandboxes do. It shows them more of the kernel, and such a
    /// desk can't be saved with its programs.
    pub nested_namespaces: bool,
    /// Programs may trace each other, as debuggers do.
    pub debuggers: bool,
    /// Disks are images with a hard limit, where loop devices can be used; else plain directories.
    pub disk_images: bool,
    /// Owners are shifted by the mount, where the kernel can; else template and layers are copied with shifted owners.
    pub mapped_mounts: bool,
    /// Private networks that desks may reach, such as `10.20.0.0/16`; by default none. Addresses of this machine, link-local
    /// ones and those of clouds' credentials stay closed.
    pub allow_private: Vec<crate::closed::Cidr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_processes: 1024,
            nested_namespaces: false,
            debuggers: false,
            disk_images: true,
            mapped_mounts: true,
            allow_private: Vec::new(),
        }
    }
}

/// The provider.
pub struct Local {
    inner: Arc<Inner>,
}

/// What all calls share.
struct Inner {
    context: Context,
    config: Config,
    directory: Directory,
    ability: check::Ability,
    locks: lock::Locks,
    /// Held by whoever names layers, for writing by whoever removes those that nobody names.
    layers: tokio::sync::RwLock<()>,
    /// What saves running programs, or why there is nothing.
    criu: tokio::sync::OnceCell<std::result::Result<criu::Criu, String>>,
}

impl Local {
    /// Looks at what works here, and cleans up what an earlier life left.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        let directory = Directory::open(&context.data)?;
        let ability = check::Ability::probe(&context, &directory, &config);
        directory.sweep();
        context.uses_images();
        let locks = lock::Locks::default();
        let layers = tokio::sync::RwLock::default();
        let inner = Inner { context, config, directory, ability, locks, layers, criu: tokio::sync::OnceCell::new() };
        inner.sweep();
        Ok(Self { inner: Arc::new(inner) })
    }
}

/// Names that become parts of paths.
pub(crate) fn check_name(id: &str) -> Result<()> {
    let good = !id.is_empty()
        && id.len() <= 40
        && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !id.starts_with('-');
    if good { Ok(()) } else { Err(Error::NotFound(format!("`{}` is not an id of a desk", id.escape_default()))) }
}

#[async_trait]
impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn capabilities(&self) -> Capabilities {
        let criu = self.inner.criu().await;
        Capabilities {
            live_fork: criu.is_ok(),
            live_fork_reason: criu.err().unwrap_or_default(),
            ..self.inner.ability.capabilities(self.inner.context.images.names())
        }
    }

    async fn check(&self) -> Vec<Check> {
        let mut checks = self.inner.ability.checks();
        checks.push(criu::check_line(&self.inner.criu().await));
        checks
    }

    fn wishes(&self, template: &str) -> Wishes {
        Wishes::of(&self.inner.context.images, template)
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        self.inner.prepare(template, progress).await
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        check_name(&spec.id)?;
        self.inner.clone().create(spec, progress).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        check_name(&spec.id)?;
        self.inner.clone().start(spec, progress).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        check_name(id)?;
        self.inner.stop(id).await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        check_name(&spec.id)?;
        self.inner.clone().reset(spec, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        check_name(id)?;
        self.inner.clone().delete(id).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        self.inner.list().await
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
        self.inner.clone().snapshot(id, snapshot, memory).await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        check_name(snapshot)?;
        self.inner.clone().delete_snapshot(snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        self.inner.snapshots()
    }

    async fn export(&self, id: &str, to: &Path) -> Result<()> {
        check_name(id)?;
        self.inner.clone().export(id, to).await
    }

    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        check_name(&spec.id)?;
        self.inner.clone().import(spec, from).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_not_paths() {
        for good in ["d-abcdefghijkl", "s-1", "x"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "A", "-a", "a b", "a\0", &"a".repeat(41)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_have_defaults() {
        let config: Config = serde_json::from_str("{}").unwrap();
        assert_eq!(config, Config::default());
        assert!(serde_json::from_str::<Config>("{\"unknown\":1}").is_err());
    }
}
