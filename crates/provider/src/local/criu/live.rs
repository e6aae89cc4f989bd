//! Snapshots of running desks, and desks that begin with one: the orchestrator's part.

use super::dump::Dump;
use super::image;
use super::restore::Restore;
use super::{Criu, talk};
use crate::local::Inner;
use crate::local::desk::unknown;
use crate::local::directory::{self, DeskDirectory, Layer, Running, SnapshotRecord, trouble};
use crate::local::disk;
use crate::local::sandbox::Task;
use crate::local::sandbox::work::Save;
use crate::{DeskSpec, Error, Result};
use hotdesk_api::freeze::Thaw;
use std::path::PathBuf;
use std::sync::Arc;

impl Inner {
    /// What saves running programs, or why there is nothing. Looked for once.
    pub(in crate::local) async fn criu(&self) -> std::result::Result<Criu, String> {
        self.criu.get_or_init(|| super::available(self.directory.root())).await.clone()
    }

    async fn criu_or_refuse(&self, what: &str) -> Result<Criu> {
        let unsupported = |reason| Error::Unsupported { provider: "local", what: what.into(), reason };
        if self.config.nested_namespaces {
            return Err(unsupported("programs of this fleet may make namespaces of their own, which can't be saved".into()));
        }
        self.criu().await.map_err(unsupported)
    }

    /// Saves a desk that runs, with its programs.
    pub(in crate::local) async fn snapshot_running(self: Arc<Self>, id: &str, snapshot: &str) -> Result<u64> {
        let criu = self.criu_or_refuse("a snapshot of running programs").await?;
        let lock = self.locks.take(&self.directory, id).await?;
        if let Some(done) = directory::read::<SnapshotRecord>(&self.directory.snapshot(snapshot))? {
            return Ok(done.size_bytes);
        }
        let desk = self.directory.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        let running = desk.running().filter(Running::is_alive);
        let running =
            running.ok_or_else(|| Error::Failed(format!("the desk `{id}` does not run, so it has no programs to save")))?;
        disk::room(&self.directory.layers())?;
        // One that was started by a version in which `run` was the desk's has no such file, and is not talked to.
        let token = desk.secret().filter(|_| is_the_hosts(&desk.run()));
        let token = token.ok_or_else(|| {
            Error::Failed(format!(
                "the desk `{id}` was started by an older version of hotdesk; stop and start it to save its programs"
            ))
        })?;
        let (layer, memory) = (self.directory.layer(snapshot), self.directory.memory(snapshot));
        let (unnamed_layer, unnamed_memory) = (self.directory.trash(), self.directory.trash());
        let dump = Dump {
            criu: criu.program,
            version: criu.version,
            ids: self.ids(id),
            run: desk.run(),
            token,
            files: Save {
                from: self.source(id, &desk, &record),
                loop_device: running.loop_device,
                // CRIU holds its processes.
                group: None,
                to: unnamed_layer.clone(),
            },
            init: running.init,
            to: unnamed_memory.clone(),
            binaries: self.binaries(),
        };
        let saved = self.work(Task::Dump(Box::new(dump)), &lock).await;
        let _ = talk::open_door(&desk.run());
        let named = match saved {
            Ok(size_bytes) => {
                let _guard = self.layers.read().await;
                // Of one name without a record: what a broken attempt left.
                for path in [&layer, &memory] {
                    self.directory.discard(path).map_err(|e| trouble("remove", path, &e))?;
                }
                std::fs::rename(&unnamed_memory, &memory).map_err(|e| trouble("name", &memory, &e))?;
                std::fs::rename(&unnamed_layer, &layer).map_err(|e| trouble("name", &layer, &e))?;
                let mut layers = vec![Layer::Saved(snapshot.to_owned())];
                layers.extend(record.layers);
                let path = self.directory.snapshot(snapshot);
                directory::write(&path, &SnapshotRecord { template: record.template, layers, size_bytes })
                    .map_err(|e| trouble("write", &path, &e))
                    .map(|()| size_bytes)
            }
            Err(e) => Err(e),
        };
        for path in [&unnamed_layer, &unnamed_memory] {
            let _ = directory::remove_all(path);
        }
        named
    }

    /// How a desk begins that is to be a copy of a running one; none if it is to be a copy of files.
    pub(in crate::local) async fn restore_of(&self, spec: &DeskSpec) -> Result<Option<Restore>> {
        let Some(snapshot) = spec.snapshot.as_ref().filter(|snapshot| snapshot.memory) else { return Ok(None) };
        let criu = self.criu_or_refuse("a copy of running programs").await?;
        let from = self.directory.memory(&snapshot.id);
        if !from.join(image::FILE).exists() {
            return Err(Error::NotFound(format!("the snapshot `{}` has no running programs in it", snapshot.id)));
        }
        let thaw = Thaw { token: Some(spec.secret.clone()), vnc_password: spec.vnc_password.clone(), env: spec.env.clone() };
        Ok(Some(Restore { criu: criu.program, from, thaw }))
    }

    /// Files that a running desk may have been started from.
    fn binaries(&self) -> Vec<PathBuf> {
        let saved = std::fs::read_dir(self.directory.memories()).into_iter().flatten().flatten();
        let saved = saved.map(|entry| entry.path().join(image::BINARY));
        std::iter::once(self.context.binary.clone()).chain(saved).collect()
    }

    /// Saved programs whose snapshot is gone.
    pub(in crate::local) fn forget_unused_memories(&self) {
        for entry in std::fs::read_dir(self.directory.memories()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_none_or(|id| !self.directory.snapshot(id).exists()) {
                let _ = self.directory.discard(&entry.path());
            }
        }
    }
}

/// A desk whose helper was killed while it was saved has no door; whoever finds it so, and sees that nobody is at work,
/// opens it again.
pub(crate) fn mend_door(desk: &DeskDirectory, lock: &std::path::Path) {
    let run = desk.run();
    let there = |name: &str| std::fs::symlink_metadata(run.join(name)).is_ok();
    if !there(talk::DOOR) && there(talk::SOCKET) && is_the_hosts(&run) && disk::is_free(lock) {
        let _ = talk::open_door(&run);
    }
}

/// Whether nobody but us can have put something into a directory.
fn is_the_hosts(run: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(run).is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw())
}
