//! Copies and archives of what a desk wrote, made where its disk is mounted: in a namespace that ends with the helper.

use super::{Outcome, Step, Trouble, mounts, spawn};
use crate::local::archive;
use crate::local::cgroup::Group;
use crate::local::disk::{self, Disk};
use crate::local::ids::Ids;
use crate::local::tree;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Copies the upper layer of a desk into a new directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Save {
    pub(crate) from: Source,
    /// The loop device of a desk that runs.
    pub(crate) loop_device: Option<u32>,
    /// Stands still while it is copied.
    pub(crate) group: Option<Group>,
    pub(crate) to: PathBuf,
}

/// Writes the saved layers of a desk and its upper layer as one archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Export {
    pub(crate) from: Source,
    /// The uppermost first.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) to: PathBuf,
}

/// Makes an upper layer out of an archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Import {
    pub(crate) to: Source,
    pub(crate) from: PathBuf,
    /// Most bytes that are taken from the archive.
    pub(crate) limit: u64,
}

/// The disk of a desk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) desk: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) ids: Ids,
    pub(crate) stage: PathBuf,
}

impl Save {
    pub(super) fn run(&self) -> Outcome<u64> {
        let upper = self.upper()?;
        let _still = self.group.as_ref().map(Still::stop).transpose()?;
        self.copy(&upper)
    }

    /// Where the files are, in a namespace of mounts that only we have from now on.
    pub(crate) fn upper(&self) -> Outcome<PathBuf> {
        self.from.mount(self.loop_device)
    }

    pub(crate) fn copy(&self, upper: &Path) -> Outcome<u64> {
        tree::copy(upper, &self.to).step(|| format!("copy the desk's files to {}", self.to.display()))
    }
}

impl Export {
    pub(super) fn run(&self) -> Outcome<u64> {
        let to = File::options().write(true).open(&self.to).or_else(|_| File::create(&self.to));
        let to = to.step(|| format!("open {}", self.to.display()))?;
        let upper = self.from.mount(None)?;
        let layers: Vec<&Path> = self.layers.iter().rev().map(PathBuf::as_path).chain([upper.as_path()]).collect();
        archive::pack(&layers, self.from.ids, to).step(|| "pack the desk's files".into())
    }
}

impl Import {
    pub(super) fn run(&self) -> Outcome<u64> {
        let from = File::open(&self.from).step(|| format!("open {}", self.from.display()))?;
        let upper = self.to.mount(None)?;
        // Whatever the archive names is beneath the desk's own files now.
        rustix::process::chroot(&upper).step(|| "enter the desk's files".into())?;
        rustix::process::chdir("/").step(|| "enter the desk's files".into())?;
        archive::unpack(from, self.to.ids, self.limit).step(|| "unpack the desk's files".into())
    }
}

impl Source {
    /// Mounts the disk, and says where its upper layer is.
    fn mount(&self, running: Option<u32>) -> Outcome<PathBuf> {
        if let Ids::Single { uid, gid } = self.ids {
            become_owner(uid, gid)?;
            let upper = self.desk.join(self.disk.name()).join("upper");
            std::fs::create_dir_all(&upper).step(|| format!("make {}", upper.display()))?;
            return Ok(upper);
        }
        spawn::private_mounts()?;
        mounts::enter_stage(&self.stage)?;
        match running {
            Some(number) => {
                let image = self.desk.join(self.disk.name());
                if !disk::is_behind(number, &image) {
                    return Err(Trouble::new(format!("loop device {number} does not hold the disk of the desk any more")));
                }
                std::fs::create_dir("raw").step(|| "make a place for the disk".into())?;
                // The same file system once more, not a second one on the same disk.
                mounts::mount_image(Path::new(&format!("/dev/loop{number}")))?;
            }
            None => drop(mounts::lay_disk(&self.desk, &self.disk, self.ids, None)?),
        }
        Ok(self.stage.join("raw/upper"))
    }
}

/// Root of a user namespace in which only we are: files of ours that are closed to ourselves can be read, and
/// deleted names can be kept.
fn become_owner(uid: u32, gid: u32) -> Outcome<()> {
    // SAFETY: there is one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.step(|| "make a namespace of users".into())?;
    for (name, text) in [("setgroups", "deny".to_owned()), ("gid_map", format!("0 {gid} 1")), ("uid_map", format!("0 {uid} 1"))] {
        std::fs::write(format!("/proc/self/{name}"), text).step(|| format!("write {name}"))?;
    }
    Ok(())
}

/// A group of processes that stand still as long as this lives.
struct Still<'a>(&'a Group);

impl<'a> Still<'a> {
    fn stop(group: &'a Group) -> Outcome<Self> {
        group.freeze().step(|| "stop the desk's programs for a moment".into())?;
        Ok(Self(group))
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        let _ = self.0.thaw();
    }
}
