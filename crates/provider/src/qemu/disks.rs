//! The disks that machines are built on: those of the settings by their names, and the golden disks of templates.

use super::Inner;
use super::machine::Direct;
use super::overlay;
use super::place::Base;
use crate::local::directory::{trouble, write_bytes};
use crate::local::image_error;
use crate::{Error, Progress, Result};
use hotdesk_image::{DiskFormat, DiskWish};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// A disk and how it is started.
#[derive(Debug, Clone)]
pub struct Disk {
    pub base: Base,
    pub direct: Option<Direct>,
}

impl Disk {
    /// A disk in that folder which holds what differs from this one. One that is there is kept, unless what is below it was replaced.
    pub fn over(&self, folder: &Path, bytes: u64) -> Result<PathBuf> {
        let (path, note) = (folder.join("disk.qcow2"), folder.join("disk.below"));
        let mark = format!("{} {bytes}", self.base.fingerprint);
        if path.is_file() && std::fs::read_to_string(&note).is_ok_and(|known| known == mark) {
            return Ok(path);
        }
        let _ = std::fs::remove_file(&path);
        overlay::create(&path, &self.base.path, &self.base.format, bytes)?;
        write_bytes(&note, mark.as_bytes(), 0o600).map_err(|e| trouble("write", &note, &e))?;
        Ok(path)
    }
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
    /// Has everything at hand that desks of a template need.
    pub(super) async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        self.program()?;
        match self.config.disks.get(template) {
            Some(path) => open(path).map(drop),
            None => {
                let tree = self.context.images.rootfs(template).map(|rootfs| rootfs.digest).unwrap_or_default();
                let known = self.known(template).filter(|(of, disk)| *of == tree && self.check_base(&disk.base).is_ok());
                if known.is_none() {
                    self.build(template, progress).await?;
                }
                Ok(())
            }
        }
    }

    fn known(&self, template: &str) -> Option<(String, Disk)> {
        self.golden.lock().unwrap_or_else(PoisonError::into_inner).get(template).cloned()
    }

    /// The disk of a template; a golden disk is made if there is none yet.
    pub(super) async fn disk_of(&self, template: &str, progress: &Progress) -> Result<Disk> {
        if let Some(path) = self.config.disks.get(template) {
            return open(path);
        }
        self.golden(template, progress).await
    }

    /// The golden disk of a template. Whether it is still the newest is looked at when the template is prepared, not for each desk.
    async fn golden(&self, template: &str, progress: &Progress) -> Result<Disk> {
        match self.known(template).filter(|(_, disk)| self.check_base(&disk.base).is_ok()) {
            Some((_, disk)) => Ok(disk),
            None => self.build(template, progress).await,
        }
    }

    async fn build(&self, template: &str, progress: &Progress) -> Result<Disk> {
        let wish = DiskWish { format: DiskFormat::Qcow2, size: None, binary: self.context.binary.clone() };
        let disk = self.context.images.disk(template, &wish, |stage| progress.stage(stage)).await.map_err(image_error)?;
        let mut opened = open(&disk.path())?;
        opened.direct = Some(Direct {
            kernel: disk.kernel(),
            initrd: Some(disk.initrd()),
            command_line: disk.info.boot.command_line.clone(),
        });
        let known = (disk.info.rootfs.clone(), opened.clone());
        self.golden.lock().unwrap_or_else(PoisonError::into_inner).insert(template.to_owned(), known);
        Ok(opened)
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
pub fn open(path: &Path) -> Result<Disk> {
    let path = path.canonicalize().map_err(|e| Error::NotFound(format!("the disk {} can't be found: {e}", path.display())))?;
    let shape = overlay::shape(&path)?;
    if shape.format == "qcow2" {
        hotdesk_image::disk::check_safe(&path)
            .map_err(|e| Error::Failed(format!("the disk {} is not used: {e}", path.display())))?;
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
