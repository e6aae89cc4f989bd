//! The end of a desk's processes, and of what the kernel holds for them.

use super::Inner;
use super::desk::blocking;
use super::directory::{DeskDirectory, Record, Running};
use super::disk;
use crate::{Error, Result};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// A process that was killed is gone at once, unless it waits for a disk.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The keeper ends when the desk did.
pub(super) const KEEPER_LIMIT: Duration = Duration::from_secs(5);
/// The kernel takes apart mounts in the background; so long it is waited for, so that nothing is left.
const RELEASE_LIMIT: Duration = Duration::from_secs(20);
const RELEASE_LOOK: Duration = Duration::from_millis(1);

impl Inner {
    /// Ends every process of a desk; with a grace it is asked first.
    pub(super) async fn end(&self, id: &str, desk: &DeskDirectory, grace: Option<Duration>) -> Result<()> {
        let group = self.group(id);
        if let Some(running) = desk.running() {
            if let Some(grace) = grace
                && running.is_alive()
            {
                running.init.signal(Signal::TERM);
                running.init.gone(grace).await;
            }
            if running.init.is_alive() && running.init.is_first_of_its_namespace() {
                running.init.signal(Signal::KILL);
            }
            if let Some(group) = &group {
                // One that is frozen does not die.
                let _ = group.thaw();
            }
            if !running.init.gone(KILL_LIMIT).await {
                return Err(Error::Failed(format!(
                    "the desk's first process, {}, does not end although it was killed; it may wait for a disk",
                    running.init.pid
                )));
            }
            if !running.keeper.gone(KEEPER_LIMIT).await {
                running.keeper.signal(Signal::KILL);
                running.keeper.gone(KILL_LIMIT).await;
            }
        }
        if let Some(group) = group {
            group.kill();
        }
        let _ = std::fs::remove_file(desk.running_file());
        Ok(())
    }

    /// Kills a desk and forgets it at once, for one that takes its place. Its keeper goes first, so that it notes nothing.
    pub(super) fn dismiss(&self, id: &str, desk: &DeskDirectory) -> Option<Running> {
        let running = desk.running().filter(Running::is_alive)?;
        running.keeper.signal(Signal::KILL);
        running.init.signal(Signal::KILL);
        // One that is frozen does not die.
        let _ = self.group(id).map(|group| group.thaw());
        let _ = std::fs::remove_file(desk.running_file());
        Some(running)
    }

    /// Waits until the kernel has let go of the desk's disk.
    pub(super) async fn released(&self, desk: &DeskDirectory) {
        self.released_disks(desk, &disks_of(desk)).await;
    }

    async fn released_disks(&self, desk: &DeskDirectory, disks: &[PathBuf]) {
        let end = tokio::time::Instant::now() + RELEASE_LIMIT;
        while !disks.iter().all(|disk| disk::is_free(disk)) {
            if tokio::time::Instant::now() > end {
                tracing::warn!(path = %desk.path.display(), "the kernel still holds the disk of a desk that ended");
                return;
            }
            tokio::time::sleep(RELEASE_LOOK).await;
        }
    }

    pub(super) async fn remove_group(&self, id: &str) -> Result<()> {
        let Some(group) = self.group(id) else { return Ok(()) };
        blocking(move || {
            group.remove().map_err(|e| Error::Failed(format!("the control group of the desk can't be removed: {e}")))
        })
        .await
    }

    /// Removes disks that a reset left behind.
    pub(super) async fn discard_other_disks(&self, desk: &DeskDirectory, record: &Record) {
        let current = desk.disk(&record.disk);
        let others: Vec<_> = disks_of(desk).into_iter().filter(|disk| *disk != current).collect();
        self.released_disks(desk, &others).await;
        for disk in others {
            let _ = self.directory.discard(&disk);
        }
    }
}

/// All disks in a desk's directory; more than one only while it is reset.
fn disks_of(desk: &DeskDirectory) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&desk.path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("disk-")).map(|entry| entry.path()).collect()
}
