//! Room on disk: asked for before a build, counted after it, given back.

use crate::{Error, Result};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// What a build may take: `base` is a tree of 1.24 GB, its packages are below 369 MB, and the rest is reserve for larger
/// templates. A sum of sizes, not a measured peak.
const BUILD_NEEDS: u64 = 2_500 << 20;

/// So long a process needs at most to die of a signal.
const MOMENT: Duration = Duration::from_millis(50);

pub(super) fn enough(directory: &Path) -> Result<()> {
    enough_for(directory, BUILD_NEEDS, "a build")
}

/// Whether so many bytes are free.
pub(crate) fn enough_for(directory: &Path, needs: u64, what: &str) -> Result<()> {
    let stat = rustix::fs::statvfs(directory).map_err(|e| Error::Failed(format!("{}: {e}", directory.display())))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= needs {
        return Ok(());
    }
    Err(Error::Full(format!(
        "{what} needs {} MiB in {}, and {} MiB are free; HOTDESK_IMAGES can name another directory",
        needs >> 20,
        directory.display(),
        free >> 20
    )))
}

/// Bytes that a tree takes on disk. Files with several names count once.
pub(crate) fn disk_size(tree: &Path) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut open = vec![tree.to_path_buf()];
    let mut size = 0;
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(data) = entry.metadata() else { continue };
            if data.nlink() < 2 || data.is_dir() || seen.insert(data.ino()) {
                size += data.blocks() * 512;
            }
            if data.is_dir() {
                open.push(entry.path());
            }
        }
    }
    size
}

/// Removes a tree, also one with directories that even their owner may not write.
pub(crate) fn remove_tree(tree: &Path) -> Result<()> {
    for last in [false, false, false, true] {
        match std::fs::remove_dir_all(tree) {
            Ok(()) => break,
            Err(e) if e.kind() == ErrorKind::NotFound => break,
            Err(e) if e.kind() == ErrorKind::PermissionDenied && !last => open_up(tree),
            // Somebody who is being ended just now still wrote into it.
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty && !last => std::thread::sleep(MOMENT),
            Err(e) => return Err(Error::Failed(format!("{} can't be removed: {e}", tree.display()))),
        }
    }
    Ok(())
}

fn open_up(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        open_up(&entry.path());
    }
}
