//! How much the volumes of each project take, and what follows from it.
//!
//! A volume is a directory of this machine without a size of its own, so it is measured: every [`EVERY`] where `max_volumes_mib` bounds it. A project
//! above its limit gets no new volume and no new desk with one. Its desks that can write to volumes are stopped when they have gone on filling
//! them since the last look; one that makes room goes on. A bucket is elsewhere and counts as nothing.

use super::source;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::life;
use crate::limits::LATEST;
use crate::telemetry;
use hotdesk_api::desk::State;
use hotdesk_api::fleet::Volume;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(30);
/// An empty file, a name and a directory take room too.
const LEAST_BYTES: u64 = 4096;
/// Of `blocks`, whatever the file system's are.
const BLOCK: u64 = 512;
const MIB: u64 = 1 << 20;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A descriptor per level; whoever nests deeper gains files that are not counted, and the entries on the way are.
const DEEPEST: u32 = 128;
/// Of one volume: 16 GiB at least, and some seconds of work.
const MOST_ENTRIES: u64 = 4_000_000;

/// Bytes by project, as they were when somebody last looked.
#[derive(Default)]
pub(crate) struct Used(Mutex<HashMap<String, u64>>);

impl Used {
    fn of(&self, project: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(project).copied().unwrap_or_default()
    }

    /// Notes what there is now, and gives back what there was.
    fn replace(&self, new: HashMap<String, u64>) -> HashMap<String, u64> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), new)
    }
}

/// Measures until the fleet closes.
pub(crate) async fn keep(engine: Arc<Engine>) {
    if engine.config.max_volumes_mib == 0 {
        return;
    }
    loop {
        // Each orchestrator looks, because each refuses; of several that stop a desk the first one does.
        match measure(&engine).await {
            Ok(grown) => stop(&engine, &grown).await,
            Err(e) => tracing::warn!(error = %e, "the volumes were not measured; trying again"),
        }
        tokio::select! {
            () = engine.closing.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// The projects that are above their limit and take more than at the last look.
async fn measure(engine: &Arc<Engine>) -> Result<Vec<String>> {
    let volumes = engine.store.volumes().await?;
    let places: Vec<(String, PathBuf)> = volumes
        .into_iter()
        .filter(|volume| volume.source.is_none())
        .map(|volume| (volume.project, engine.volume_directory(&volume.id)))
        .collect();
    let sums = tokio::task::spawn_blocking(move || {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for (project, directory) in places.iter().filter(|(_, directory)| !source::is_mounted(directory)) {
            *sums.entry(project.clone()).or_default() += bytes_below(directory);
        }
        sums
    });
    let sums = sums.await.map_err(|e| Error::Store(format!("the volumes can't be measured: {e}")))?;
    let before = engine.volumes_used.replace(sums.clone());
    let most = engine.config.max_volumes_mib.saturating_mul(MIB);
    let grown = |(project, bytes): &(String, u64)| *bytes > most && *bytes > before.get(project).copied().unwrap_or(most);
    Ok(sums.into_iter().filter(grown).map(|(project, _)| project).collect())
}

/// What the files of a directory take. Desks write it and may change it at any moment, so it is walked by descriptors, never behind a link
/// or into another file system, and not without an end.
fn bytes_below(directory: &Path) -> u64 {
    let Ok(top) = rustix::fs::open(directory, FOLDER, Mode::empty()) else { return 0 };
    let Ok(about) = rustix::fs::fstat(&top) else { return 0 };
    let mut sum = Sum { device: about.st_dev, bytes: 0, entries: 0, linked: HashSet::new() };
    sum.add(&top, 0);
    sum.bytes
}

struct Sum {
    device: u64,
    bytes: u64,
    entries: u64,
    /// Files with several names count once.
    linked: HashSet<u64>,
}

impl Sum {
    /// What can't be read counts as nothing.
    fn add(&mut self, directory: &OwnedFd, depth: u32) {
        let Ok(entries) = Dir::read_from(directory) else { return };
        for entry in entries.flatten().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return;
            }
            let Ok(about) = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let folder = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
            if about.st_dev != self.device || (about.st_nlink > 1 && !folder && !self.linked.insert(about.st_ino)) {
                continue;
            }
            let bytes = about.st_blocks.unsigned_abs().saturating_mul(BLOCK);
            self.bytes = self.bytes.saturating_add(bytes.max(LEAST_BYTES));
            if folder
                && depth < DEEPEST
                && let Ok(inner) = rustix::fs::openat(directory, entry.file_name(), FOLDER, Mode::empty())
            {
                self.add(&inner, depth + 1);
            }
        }
    }
}

async fn stop(engine: &Arc<Engine>, projects: &[String]) {
    for entry in engine.view.all() {
        let record = entry.record();
        let fills = record.spec.volumes.iter().any(|place| !place.read_only && place.source.is_none());
        if fills && record.state == State::Running && projects.contains(&record.project) {
            life::stop(engine, &entry, &engine.too_much(&record.project)).await;
        }
    }
}

impl Engine {
    fn too_much(&self, project: &str) -> String {
        format!(
            "the volumes of the project {project} take {} MiB, and {} MiB is the limit; delete files or a volume first",
            self.volumes_used.of(project) / MIB,
            self.config.max_volumes_mib
        )
    }

    /// Whether a project may use volumes: it takes no more than it may.
    pub(super) fn volume_bytes_left(&self, project: &str) -> Result<()> {
        let most = self.config.max_volumes_mib;
        if most == 0 || self.volumes_used.of(project) <= most.saturating_mul(MIB) {
            return Ok(());
        }
        telemetry::refused("volumes");
        Err(Error::Limit { reason: self.too_much(project), retry_after: LATEST })
    }

    /// Whether a project may have one more.
    pub(super) fn volume_room(&self, project: &str, all: &[Volume]) -> Result<()> {
        self.room()?;
        self.volume_bytes_left(project)?;
        let (count, most) = (all.iter().filter(|volume| volume.project == project).count(), self.config.max_volumes);
        if count < most as usize {
            return Ok(());
        }
        telemetry::refused("volumes");
        let reason = format!("the project {project} has {count} volumes, and {most} is the limit; delete one first");
        Err(Error::Limit { reason, retry_after: LATEST })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_once_and_links_lead_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let (volume, other) = (directory.path().join("v"), directory.path().join("other"));
        std::fs::create_dir_all(volume.join("a/b")).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("large"), vec![1; 1 << 20]).unwrap();
        let empty = bytes_below(&volume);
        assert!((2 * LEAST_BYTES..1 << 17).contains(&empty), "{empty}");
        std::os::unix::fs::symlink(&other, volume.join("link")).unwrap();
        std::os::unix::fs::symlink("/", volume.join("a/root")).unwrap();
        let linked = bytes_below(&volume);
        assert!(linked - empty <= 4 * LEAST_BYTES, "{linked}: a link was followed");
        std::fs::write(volume.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(volume.join("a/b/file"), volume.join("twin")).unwrap();
        let filled = bytes_below(&volume) - linked;
        assert!((1 << 20..(1 << 20) + (1 << 16)).contains(&filled), "{filled}");
        for number in 0..100 {
            std::fs::write(volume.join(format!("empty{number}")), "").unwrap();
        }
        assert!(bytes_below(&volume) >= linked + (1 << 20) + 100 * LEAST_BYTES, "empty files are free");
        assert_eq!(bytes_below(&directory.path().join("none")), 0);
    }
}
