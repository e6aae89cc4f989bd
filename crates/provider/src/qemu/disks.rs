//! The disks that machines are built on: those of the settings by their names, and the golden disks of templates.

use super::Inner;
use super::machine::Direct;
use super::overlay;
use super::place::Base;
use crate::{Error, Progress, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A disk and how it is started.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) base: Base,
    pub(super) direct: Option<Direct>,
}

/// What may lie beside a disk as NAME.json: how to start it with a kernel that QEMU loads.
#[derive(Debug, Deserialize)]
struct Beside {
    kernel: Kernel,
    initrd: Option<String>,
    boot: Boot,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    file: String,
}

#[derive(Debug, Deserialize)]
struct Boot {
    command_line: String,
}

impl Inner {
    /// The disk of a template; a golden disk is made if there is none yet.
    pub(super) async fn disk_of(&self, template: &str, progress: &Progress) -> Result<Disk> {
        if let Some(path) = self.config.disks.get(template) {
            return open(path);
        }
        self.golden(template, progress).await
    }

    /// Whether what was built on a disk still fits it.
    pub(super) fn check_base(&self, base: &Base) -> Result<()> {
        match fingerprint(&base.path) {
            Ok(now) if now == base.fingerprint => Ok(()),
            Ok(_) => Err(Error::NotFound(format!(
                "the disk {} was replaced since this was built on it; make it anew from the new disk",
                base.path.display()
            ))),
            Err(e) => Err(e),
        }
    }
}

/// Looks at a disk file, before QEMU does.
pub(super) fn open(path: &Path) -> Result<Disk> {
    let path = path
        .canonicalize()
        .map_err(|e| Error::NotFound(format!("the disk {} can't be found: {e}", path.display())))?;
    let shape = overlay::shape(&path)?;
    if shape.format == "qcow2" {
        check_safe(&path).map_err(|e| Error::Failed(format!("the disk {} is not used: {e}", path.display())))?;
    }
    let base = Base { fingerprint: fingerprint(&path)?, format: shape.format.into(), bytes: shape.bytes, path };
    let direct = beside(&base.path);
    Ok(Disk { base, direct })
}

/// How a disk is started, if something beside it says so.
fn beside(path: &Path) -> Option<Direct> {
    let text = std::fs::read(path.with_extension("json")).ok()?;
    let known: Beside = serde_json::from_slice(&text).ok()?;
    let folder = path.parent()?;
    let file = |name: &str| Some(folder.join(Path::new(name).file_name()?)).filter(|path| path.is_file());
    let initrd = known.initrd.as_deref().and_then(file);
    Some(Direct { kernel: file(&known.kernel.file)?, initrd, command_line: known.boot.command_line })
}

/// Tells one file from another: by where it is on its file system, its size and its last change.
fn fingerprint(path: &Path) -> Result<String> {
    let meta = std::fs::metadata(path).map_err(|e| Error::NotFound(format!("the disk {}: {e}", path.display())))?;
    let text = format!("{} {} {} {} {}", path.display(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let digest = Sha256::digest(text.as_bytes());
    Ok(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn check_safe(_path: &Path) -> std::result::Result<(), String> {
    Ok(())
}

impl Inner {
    async fn golden(&self, template: &str, _progress: &Progress) -> Result<Disk> {
        Err(Error::NotFound(format!("no disk for {template}")))
    }
}
