//! Disks of virtual machines: fetched, looked at, made smaller, cut into parts that QEMU opens as they are, put
//! together, compared.
//!
//! ```text
//!   fetch    URL ──► ranges in parallel ──► unpacked while it comes ──► a sparse file
//!   shrink   disk ──► [free space of its file systems out] ──► zeros out ──► one qcow2 file, zstd
//!   split    disk ──► zeros out ──► part-000 ◄─ part-001 ◄─ part-002: a chain of qcow2 files, zstd, each below a limit
//!   join     a chain ──► one file
//!   verify   are two disks the same for their guest?
//! ```
//!
//! Raw and qcow2 are read and qcow2 is written here, without QEMU, because then a part ends exactly where its limit is,
//! nothing is written twice, and a hostile header meets a parser that can't be led out of its file. Memory does not grow
//! with disks, but for ten bytes per 64 KiB that are written.
//!
//! Every function leaves either its whole result or nothing under the name that was asked for.

mod chain;
pub(crate) mod fetch;
mod free;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/src/disk.rs"]
pub(crate) mod fuzz;
mod info;
mod join;
mod partitions;
mod pipeline;
mod qcow2;
mod shrink;
mod source;
mod split;
mod tools;
mod verify;

pub use chain::{Format, Link, OpenArgs, check_safe, check_safe_in, open_args};
pub use fetch::{Fetch, Fetched, fetch};
pub use info::{File, Info, info};
pub use join::join;
pub use qcow2::header::{Compression, Header};
pub use shrink::{Shrunk, shrink};
pub use split::{MANIFEST, Manifest, Part, split};
pub use verify::{Difference, verify};

use crate::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The files of a disk, the one that is opened first.
pub(crate) type Chain = Vec<Link>;

/// How far a long job is, and the way to stop it. Shared between who works and who watches.
#[derive(Debug, Default)]
pub struct Meter {
    done: AtomicU64,
    all: AtomicU64,
    stage: Mutex<String>,
    stopped: AtomicBool,
}

impl Meter {
    /// Bytes done, and all bytes (0: not known).
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }

    /// What is being done.
    pub fn stage(&self) -> String {
        self.stage.lock().map(|stage| stage.clone()).unwrap_or_default()
    }

    /// Makes the job end soon, with an error and without leftovers.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, stage: &str, all: u64) {
        if let Ok(mut now) = self.stage.lock() {
            stage.clone_into(&mut now);
        }
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    pub(crate) fn reach(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) { Err(Error::Failed("it was stopped".into())) } else { Ok(()) }
    }
}

/// What happened to a file.
pub(crate) fn at(path: &Path, e: &io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full(format!("{}: {e}", path.display())),
        io::ErrorKind::InvalidData => Error::Invalid(format!("{}: {e}", path.display())),
        io::ErrorKind::NotFound => Error::Invalid(format!("{}: there is no such file", path.display())),
        _ => Error::Failed(format!("{}: {e}", path.display())),
    }
}

pub(crate) fn invalid(path: &Path, why: &str) -> Error {
    Error::Invalid(format!("{}: {why}", path.display()))
}

/// A path under a name for the time being; it is removed unless it was finished.
pub(crate) struct Unfinished {
    path: PathBuf,
    armed: bool,
}

impl Unfinished {
    /// `disk.qcow2` is written as `.disk.qcow2.SUFFIX` beside it.
    pub(crate) fn beside(path: &Path, suffix: &str) -> Result<Self> {
        let name = path.file_name().ok_or_else(|| invalid(path, "it is no name of a file"))?;
        let name = format!(".{}.{suffix}", name.to_string_lossy());
        Ok(Self { path: path.with_file_name(name), armed: true })
    }

    pub(crate) fn create(&self) -> Result<std::fs::File> {
        let mut options = std::fs::File::options();
        options.read(true).write(true).create(true).truncate(true);
        options.open(&self.path).map_err(|e| at(&self.path, &e))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn finish(mut self, path: &Path) -> Result<()> {
        std::fs::rename(&self.path, path).map_err(|e| at(path, &e))?;
        self.armed = false;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.armed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses to write over something.
pub(crate) fn absent(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(invalid(path, "it is there already; remove it first, or choose another name"));
    }
    Ok(())
}

/// Refuses to begin what can't end: `needed` bytes in the file system of `directory`.
pub(crate) fn room(directory: &Path, needed: u64) -> Result<()> {
    let free = free_room(directory)?;
    if free >= needed {
        return Ok(());
    }
    let (needed, free) = (needed.div_ceil(1 << 20), free >> 20);
    Err(Error::Full(format!("it needs {needed} MiB in {}, and {free} MiB are free", directory.display())))
}

pub(crate) fn free_room(directory: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(directory).map_err(|e| at(directory, &e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The directory that a file is in.
pub(crate) fn home(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}
