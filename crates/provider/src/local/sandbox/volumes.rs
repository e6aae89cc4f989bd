//! Volumes of a desk, opened on the host. What is in them was written by desks, so nothing is reached by way of a link.

use super::mounts::change;
use super::{Outcome, Plan, Step};
use crate::VolumePlace;
use crate::local::ids::{Ids, USER};
use linux_raw_sys::general::{MOUNT_ATTR_IDMAP, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::mount::{OpenTreeFlags, open_tree};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A mount of each volume that is not mounted anywhere yet, and where in the desk it goes, without the first slash.
pub(super) fn open<'a>(plan: &'a Plan, shift: Option<BorrowedFd<'_>>) -> Outcome<Vec<(OwnedFd, &'a str)>> {
    plan.volumes.iter().map(|volume| Ok((tree(volume, plan.ids, shift)?, volume.at.trim_start_matches('/')))).collect()
}

fn tree(volume: &VolumePlace, ids: Ids, shift: Option<BorrowedFd<'_>>) -> Outcome<OwnedFd> {
    let what = || format!("mount the volume {}", volume.name);
    let top = rustix::fs::open(&volume.directory, DIRECTORY, Mode::empty())
        .step(|| format!("open the volume {}, which may have been deleted", volume.name))?;
    // The fleet made it; the desk's user is its owner from the first use on.
    if rustix::fs::fstat(&top).step(what)?.st_uid == 0 {
        own(&top, ids).step(what)?;
    }
    let source = match &volume.subpath {
        Some(subpath) => beneath(top, subpath, ids).step(|| format!("open {subpath:?} of the volume {}", volume.name))?,
        None => top,
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&source, "", flags).step(what)?;
    let mut attributes = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID;
    if volume.read_only {
        attributes |= MOUNT_ATTR_RDONLY;
    }
    change(tree.as_fd(), attributes.into(), None).step(what)?;
    // A bucket has no owners: everybody who reaches its mount may do what the mount allows.
    if let Some(users) = shift.filter(|_| volume.source.is_none()) {
        change(tree.as_fd(), MOUNT_ATTR_IDMAP.into(), Some(users))
            .step(|| format!("shift the owners of the volume {}", volume.name))?;
    }
    Ok(tree)
}

/// A directory of a volume, made if it is missing.
fn beneath(top: OwnedFd, subpath: &str, ids: Ids) -> rustix::io::Result<OwnedFd> {
    let mut at = top;
    for part in subpath.split('/') {
        let made = match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(e) => return Err(e),
        };
        at = rustix::fs::openat2(&at, part, DIRECTORY, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?;
        if made {
            own(&at, ids)?;
        }
    }
    Ok(at)
}

/// Gives a directory to the desk's user.
fn own(directory: &OwnedFd, ids: Ids) -> rustix::io::Result<()> {
    if ids.is_rootless() {
        return Ok(());
    }
    let owner = ids.on_disk(USER);
    rustix::fs::chownat(directory, "", Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)), AtFlags::EMPTY_PATH)
}
