//! Saved files of desks: snapshots, archives, and the layers that they are made of.
//!
//! A snapshot is a list of layers: a copy of what the desk wrote, on top of what the desk itself was built on. A desk that
//! starts from it has the same list below its own disk. Layers are never changed, and are removed when no desk
//! and no snapshot names them any more; so a snapshot can be deleted at any time, whoever was started from it.

use super::Inner;
use super::desk::{blocking, image_error, unknown};
use super::directory::{self, DeskDirectory, Layer, Record, Running, SnapshotRecord, trouble};
use super::disk::SMALLEST_MIB;
use super::sandbox::Task;
use super::sandbox::work::{Export, Import, Save, Source};
use crate::{DeskSpec, Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Inner {
    pub(super) async fn snapshot(self: Arc<Self>, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        if memory {
            return self.snapshot_running(id, snapshot).await;
        }
        let lock = self.locks.take(&self.directory, id).await?;
        if let Some(done) = directory::read::<SnapshotRecord>(&self.directory.snapshot(snapshot))? {
            return Ok(done.size_bytes);
        }
        let desk = self.directory.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        super::disk::room(&self.directory.layers())?;
        let running = desk.running().filter(Running::is_alive);
        let layer = self.directory.layer(snapshot);
        let unnamed = self.directory.trash();
        let save = Save {
            from: self.source(id, &desk, &record),
            loop_device: running.as_ref().and_then(|running| running.loop_device),
            // While its programs stand still, what is copied is of one moment.
            group: self.group(id).filter(|_| running.is_some()),
            to: unnamed.clone(),
        };
        let saved = self.work(Task::Save(save), &lock).await;
        // If the helper died, its programs still stand still.
        let _ = self.group(id).map(|group| group.thaw());
        let size_bytes = match saved {
            Ok(size) => size,
            Err(e) => {
                let _ = directory::remove_all(&unnamed);
                return Err(e);
            }
        };
        let _guard = self.layers.read().await;
        // A layer of that name without a record is what a broken attempt left.
        self.directory.discard(&layer).map_err(|e| trouble("remove", &layer, &e))?;
        std::fs::rename(&unnamed, &layer).map_err(|e| trouble("name", &layer, &e))?;
        let mut layers = vec![Layer::Saved(snapshot.to_owned())];
        layers.extend(record.layers);
        let path = self.directory.snapshot(snapshot);
        directory::write(&path, &SnapshotRecord { template: record.template, layers, size_bytes })
            .map_err(|e| trouble("write", &path, &e))?;
        Ok(size_bytes)
    }

    pub(super) async fn delete_snapshot(self: Arc<Self>, snapshot: &str) -> Result<()> {
        let path = self.directory.snapshot(snapshot);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(trouble("remove", &path, &e)),
            _ => {}
        }
        let memory = self.directory.memory(snapshot);
        self.directory.discard(&memory).map_err(|e| trouble("remove", &memory, &e))?;
        self.forget_unused_layers().await;
        Ok(())
    }

    pub(super) fn snapshots(&self) -> Result<Vec<String>> {
        let folder = self.directory.snapshots();
        let entries = std::fs::read_dir(&folder).map_err(|e| trouble("read", &folder, &e))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
        ids.sort();
        Ok(ids)
    }

    pub(super) async fn export(self: Arc<Self>, id: &str, to: &Path) -> Result<()> {
        let lock = self.locks.take(&self.directory, id).await?;
        let desk = self.directory.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        if desk.running().is_some_and(|running| running.is_alive()) {
            return Err(Error::Failed(format!("the desk `{id}` runs; stop it before it is packed")));
        }
        let export = Export { from: self.source(id, &desk, &record), layers: self.saved_layers(&record), to: ours(to) };
        self.work(Task::Export(export), &lock).await.map(drop)
    }

    pub(super) async fn import(self: Arc<Self>, spec: &DeskSpec, from: &Path) -> Result<()> {
        self.refuse(spec)?;
        let lock = self.locks.take(&self.directory, &spec.id).await?;
        let desk = self.directory.desk(&spec.id);
        if desk.running().is_some_and(|running| running.is_alive()) {
            return Err(Error::Failed(format!("the desk `{}` runs; it can't be replaced by an archive", spec.id)));
        }
        // Whatever was there is of an attempt that broke off; the archive is the whole.
        self.directory.discard(&desk.path).map_err(|e| trouble("remove", &desk.path, &e))?;
        let record = self.make_unnamed(spec).await?;
        let unnamed = self.unnamed(&spec.id);
        let import = Import {
            to: self.source(&spec.id, &unnamed, &record),
            from: ours(from),
            limit: spec.resources.disk_mib.max(SMALLEST_MIB) << 20,
        };
        let done = self.work(Task::Import(import), &lock).await;
        // The disk is let go before the directory gets its name, so that the desk can be started at once.
        self.released(&unnamed).await;
        let named = done.and_then(|_| std::fs::rename(&unnamed.path, &desk.path).map_err(|e| trouble("name", &desk.path, &e)));
        if named.is_err() {
            let _ = self.directory.discard(&unnamed.path);
        }
        named
    }

    pub(super) fn source(&self, id: &str, desk: &DeskDirectory, record: &Record) -> Source {
        Source { desk: desk.path.clone(), disk: record.disk.clone(), ids: self.ids(id), stage: self.directory.stage() }
    }

    /// What a new desk is built on, the uppermost first.
    pub(super) fn layers_of(&self, spec: &DeskSpec) -> Result<Vec<Layer>> {
        if let Some(snapshot) = &spec.snapshot {
            let record: Option<SnapshotRecord> = directory::read(&self.directory.snapshot(&snapshot.id))?;
            let record =
                record.ok_or_else(|| Error::NotFound(format!("there is no snapshot `{}` on this machine", snapshot.id)))?;
            return Ok(record.layers);
        }
        let rootfs = self.context.images.rootfs(&spec.template).map_err(image_error)?;
        Ok(vec![self.template_layer(&rootfs)])
    }

    fn saved_layers(&self, record: &Record) -> Vec<PathBuf> {
        let saved = record.layers.iter().filter_map(|layer| match layer {
            Layer::Saved(id) => Some(self.directory.layer(id)),
            Layer::Template(_) => None,
        });
        saved.collect()
    }

    /// Removes layers that nobody names.
    pub(super) async fn forget_unused_layers(self: &Arc<Self>) {
        let _guard = self.layers.write().await;
        let this = self.clone();
        let _ = blocking(move || {
            this.forget_unused_layers_now();
            Ok(())
        })
        .await;
    }

    pub(super) fn forget_unused_layers_now(&self) {
        let Ok(entries) = std::fs::read_dir(self.directory.layers()) else { return };
        let layers: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        if layers.is_empty() {
            return;
        }
        // If one record can't be read, nobody knows what it names.
        let Some(used) = self.used_layers() else { return };
        for layer in layers.iter().filter(|layer| !used.contains(*layer)) {
            let _ = self.directory.discard(&self.directory.layer(layer));
        }
    }

    fn used_layers(&self) -> Option<BTreeSet<String>> {
        let mut all = Vec::new();
        for id in self.snapshots().ok()? {
            all.extend(directory::read::<SnapshotRecord>(&self.directory.snapshot(&id)).ok()??.layers);
        }
        for entry in std::fs::read_dir(self.directory.desks()).ok()?.flatten() {
            let desk = directory::DeskDirectory { path: entry.path() };
            all.extend(desk.record().ok()?.map(|record| record.layers).unwrap_or_default());
        }
        let saved = all.into_iter().filter_map(|layer| match layer {
            Layer::Saved(id) => Some(id),
            Layer::Template(_) => None,
        });
        Some(saved.collect())
    }
}

/// A path as the helper sees it: `/proc/self` is somebody else there.
fn ours(path: &Path) -> PathBuf {
    match path.strip_prefix("/proc/self") {
        Ok(rest) => Path::new("/proc").join(std::process::id().to_string()).join(rest),
        Err(_) => path.to_owned(),
    }
}
