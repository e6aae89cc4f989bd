//! Golden disks: a template's root file system as a disk that boots by itself, with the desk's server on it.
//!
//! ```text
//!   tree (IMAGES/rootfs) ─► mke2fs ─► + hotdesk, kernel, initrd (debugfs) ─► times settled ─► boot loader ─► raw, qcow2, tar.gz
//! ```
//!
//! The disk has one partition, `LABEL=hotdesk`, which is the root. A BIOS boots it; QEMU boots it faster with the kernel and initrd
//! that lie beside it. Process 1 is `hotdesk boot`: it sets up the machine and runs `hotdesk desk` as the template's user.
//! Nothing here needs root, and nothing is mounted.

mod cloud;
mod filesystem;
mod info;
mod initrd;
mod kernel;
mod loader;
mod times;
mod tool;

use crate::builder::{disk_size, enough_for, remove_tree};
use crate::{Error, Library, Result, Template, digest};
use filesystem::{Extra, Home};
pub use info::{Boot, DiskInfo, KernelInfo};
use kernel::Chosen;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The time of everything that the build itself makes; the same as in trees.
const EPOCH: u64 = 1_767_225_600;
const SECTOR: u64 = 512;
/// The partition begins at 1 MiB, as all tools expect.
const FIRST_SECTOR: u64 = 2048;
/// A new kind of disk gets a new name by this number.
const RECIPE: &str = "1";
/// Room that a disk must have beyond what is put on it: logs, caches, a browser's profile.
const LEAST_ROOM: u64 = 256 << 20;
/// Sizes are multiples of this: so large are the blocks of the file system, and it looks tidy.
const SIZE_STEP: u64 = 1 << 20;
/// The size of a disk when nobody says another. It is sparse: what is not used takes no room.
pub const DEFAULT_SIZE: u64 = 8 << 30;

/// What a disk should be like.
#[derive(Debug, Clone)]
pub struct DiskWish {
    pub format: DiskFormat,
    /// Bytes; None: 8 GiB, or more if the template does not fit.
    pub size: Option<u64>,
    /// The `hotdesk` program that runs inside.
    pub binary: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFormat {
    Qcow2,
    Raw,
    /// `disk.raw` in a tar.gz, as Google's clouds import it.
    Gce,
}

impl DiskFormat {
    pub fn extension(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
            Self::Gce => "tar.gz",
        }
    }
}

/// A disk that was built. Its files are shared by whoever asks for the same one: boot an overlay, or a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Disk {
    /// The directory of all its files.
    pub directory: PathBuf,
    pub info: DiskInfo,
}

impl Disk {
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.info.disk)
    }

    pub fn kernel(&self) -> PathBuf {
        self.directory.join(&self.info.kernel.file)
    }

    pub fn initrd(&self) -> PathBuf {
        self.directory.join(&self.info.initrd)
    }

    /// Copies disk, kernel, initrd and description to `to` and beside it, with its name.
    pub fn copy_to(&self, to: &Path) -> Result<DiskInfo> {
        let fail = |path: &Path, e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
        let stem = to.file_name().and_then(|name| name.to_str()).unwrap_or("disk");
        let stem = stem.strip_suffix(&format!(".{}", self.info.format.extension())).unwrap_or(stem).to_owned();
        let beside = |end: &str| to.with_file_name(format!("{stem}.{end}"));
        copy_sparse(&self.path(), to).map_err(|e| fail(to, e))?;
        let mut info = self.info.clone();
        info.disk = to.file_name().map_or_else(|| info.disk.clone(), |name| name.to_string_lossy().into_owned());
        for (from, name, end) in [(self.kernel(), &mut info.kernel.file, "kernel"), (self.initrd(), &mut info.initrd, "initrd")] {
            let path = beside(end);
            std::fs::copy(&from, &path).map_err(|e| fail(&path, e))?;
            *name = format!("{stem}.{end}");
        }
        let path = beside("json");
        std::fs::write(&path, info.to_json()?).map_err(|e| fail(&path, e))?;
        Ok(info)
    }
}

impl Library {
    /// The template as a disk. Builds what is not built yet, the tree too; `stage` is told what goes on.
    /// Like [`Library::build`]: two builds of the same disk are done one after the other, and one that is dropped leaves nothing.
    pub async fn disk(&self, name: &str, wish: &DiskWish, stage: impl Fn(&str) + Send + Sync) -> Result<Disk> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(Error::Invalid("disks are made for x86-64 only; this machine is of another kind".into()));
        }
        tool::check(wish.format == DiskFormat::Qcow2)?;
        let rootfs = self.build(name, &stage).await?;
        let template = self.template(name)?;
        stage("choosing a kernel");
        let debs = self.store().debs();
        let chosen = kernel::choose(&debs).await?;
        let size = size(&rootfs.path, wish)?;
        let mut plan =
            Plan { template: &template, tree: &rootfs.path, rootfs: &rootfs.digest, wish, chosen, size, digest: String::new() };
        plan.digest = plan.digest()?;
        if let Some(disk) = self.find_disk(&plan.digest) {
            return Ok(disk);
        }
        let place = self.store().begin(&plan.digest, &stage).await?;
        if let Some(disk) = self.find_disk(&plan.digest) {
            return Ok(disk);
        }
        // The raw disk, and for a while the other format beside it.
        let needs = 2 * (disk_size(&rootfs.path) + LEAST_ROOM);
        enough_for(place.path(), needs, "a disk")?;
        let made = place.path().join("disk");
        std::fs::create_dir(&made).map_err(|e| Error::Failed(format!("{}: {e}", made.display())))?;
        plan.build(place.path(), &made, &debs, &stage).await?;
        stage("putting it into place");
        let directory = self.disks_directory().join(&plan.digest);
        let fail = |e: std::io::Error| Error::Failed(format!("the disk can't be put into place: {e}"));
        std::fs::create_dir_all(self.disks_directory()).map_err(fail)?;
        std::fs::rename(&made, &directory).map_err(fail)?;
        self.find_disk(&plan.digest).ok_or_else(|| Error::Failed("the disk that was built is gone".into()))
    }

    /// All disks that were built.
    pub fn disks(&self) -> Vec<Disk> {
        let entries = std::fs::read_dir(self.disks_directory()).into_iter().flatten().flatten();
        entries.filter_map(|entry| self.find_disk(entry.file_name().to_str()?)).collect()
    }

    /// Removes all disks of a template, unless somebody uses one of them.
    pub fn remove_disks(&self, name: &str) -> Result<()> {
        let disks: Vec<_> = self.disks().into_iter().filter(|disk| disk.info.template == name).collect();
        disks.iter().try_for_each(|disk| self.refuse_used(&format!("a disk of the template {name}"), &disk.info.digest))?;
        disks.iter().try_for_each(|disk| self.remove_disk(disk))
    }

    pub(crate) fn remove_disk(&self, disk: &Disk) -> Result<()> {
        remove_tree(&self.store().take_away(&disk.directory)?)
    }

    fn find_disk(&self, digest: &str) -> Option<Disk> {
        let directory = self.disks_directory().join(digest);
        let info = serde_json::from_slice(&std::fs::read(directory.join("disk.json")).ok()?).ok()?;
        Some(Disk { directory, info })
    }

    fn disks_directory(&self) -> PathBuf {
        self.directory().join("disks")
    }
}

/// One disk, decided.
struct Plan<'a> {
    template: &'a Template,
    tree: &'a Path,
    rootfs: &'a str,
    wish: &'a DiskWish,
    chosen: Chosen,
    size: u64,
    digest: String,
}

impl Plan<'_> {
    /// Names the disk by everything that goes into it.
    fn digest(&self) -> Result<String> {
        let mut hash = Sha256::new();
        let format = self.wish.format.extension();
        let size = self.size.to_string();
        let (kernel, shell) = (&self.chosen.kernel, &self.chosen.shell);
        let boot = info::boot_settings(self.template)?;
        let binary = digest_of(&self.wish.binary)?;
        let loader = loader::digest()?;
        for part in [
            RECIPE,
            self.rootfs,
            &binary,
            format,
            &size,
            &kernel.name,
            &kernel.version,
            &shell.version,
            &boot,
            &loader,
            initrd::SCRIPT,
            loader::SCRIPT,
            info::COMMAND_LINE,
            info::DIRECT_COMMAND_LINE,
        ] {
            hash.update(format!("{}\n{part}", part.len()));
        }
        Ok(digest::hex(&hash.finalize()))
    }

    async fn build(&self, work: &Path, made: &Path, debs: &Path, stage: &(dyn Fn(&str) + Send + Sync)) -> Result<()> {
        let fail = |path: &Path, e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
        stage("unpacking the kernel");
        let parts = kernel::unpack(&self.chosen, debs, work).await?;
        let (kernel, initrd, settings) = (made.join("disk.kernel"), made.join("disk.initrd"), work.join("boot.toml"));
        std::fs::copy(&parts.kernel, &kernel).map_err(|e| fail(&kernel, e))?;
        std::fs::write(&initrd, initrd::archive(&parts)?).map_err(|e| fail(&initrd, e))?;
        std::fs::write(&settings, info::boot_settings(self.template)?).map_err(|e| fail(&settings, e))?;
        let fstab = work.join("fstab");
        std::fs::write(&fstab, format!("LABEL={} / ext4 noatime 0 1\n", filesystem::LABEL)).map_err(|e| fail(&fstab, e))?;

        stage("making the root file system");
        let raw = made.join("disk.raw");
        let disk = File::options().create_new(true).read(true).write(true).open(&raw).map_err(|e| fail(&raw, e))?;
        disk.set_len(self.size).map_err(|e| fail(&raw, e))?;
        let extras = [
            Extra { path: "/usr/local/bin/hotdesk", from: self.wish.binary.clone(), mode: 0o755 },
            Extra { path: "/boot/vmlinuz", from: kernel, mode: 0o644 },
            Extra { path: "/boot/initrd", from: initrd, mode: 0o644 },
            Extra { path: info::BOOT_SETTINGS, from: settings, mode: 0o644 },
            Extra { path: "/etc/fstab", from: fstab, mode: 0o644 },
        ];
        let home = Home { path: &self.template.user.home(), uid: self.template.user.uid };
        filesystem::make(&raw, self.size, self.tree, &extras, &home).await?;
        let _ = std::fs::remove_file(raw.with_extension("commands"));
        times::settle(&disk, FIRST_SECTOR * SECTOR)?;
        stage("making it bootable");
        loader::write(&disk, self.size / SECTOR, &loader::core(work, info::COMMAND_LINE).await?)?;
        disk.sync_all().map_err(|e| fail(&raw, e))?;
        drop(disk);
        match self.wish.format {
            DiskFormat::Raw => {}
            DiskFormat::Qcow2 => {
                stage("writing qcow2");
                let to = made.join("disk.qcow2");
                let mut command = tool::command("qemu-img");
                command.args(["convert", "-f", "raw", "-O", "qcow2"]).args([&raw, &to]);
                tool::run(&mut command, "writing qcow2").await?;
                std::fs::remove_file(&raw).map_err(|e| fail(&raw, e))?;
            }
            DiskFormat::Gce => {
                stage("packing it");
                cloud::pack(made, &raw).await?;
                std::fs::remove_file(&raw).map_err(|e| fail(&raw, e))?;
            }
        }
        let path = made.join("disk.json");
        std::fs::write(&path, self.info().to_json()?).map_err(|e| fail(&path, e))
    }

    fn info(&self) -> DiskInfo {
        DiskInfo {
            template: self.template.name.clone(),
            digest: self.digest.clone(),
            rootfs: self.rootfs.to_owned(),
            format: self.wish.format,
            size_bytes: self.size,
            disk: format!("disk.{}", self.wish.format.extension()),
            kernel: KernelInfo {
                file: "disk.kernel".into(),
                package: self.chosen.kernel.name.clone(),
                version: self.chosen.kernel.version.clone(),
            },
            initrd: "disk.initrd".into(),
            boot: Boot::of(self.template),
        }
    }
}

/// How large the disk becomes; refused when the template does not fit.
fn size(tree: &Path, wish: &DiskWish) -> Result<u64> {
    let binary = wish.binary.metadata().map_err(|e| Error::Failed(format!("{}: {e}", wish.binary.display())))?.len();
    let content = disk_size(tree) + binary;
    // The file system's own tables, and files that fill their last block a little.
    let least = (content + content / 16 + LEAST_ROOM).next_multiple_of(SIZE_STEP);
    let step = if wish.format == DiskFormat::Gce { cloud::SIZE_STEP } else { SIZE_STEP };
    match wish.size {
        None => Ok(DEFAULT_SIZE.max(least).next_multiple_of(step)),
        Some(size) if size < least => Err(Error::Invalid(format!(
            "the disk must have at least {} MiB, because the template has {} MiB; {} MiB were asked for",
            least >> 20,
            content >> 20,
            size >> 20
        ))),
        Some(size) if size.div_ceil(SECTOR) > u64::from(u32::MAX) => {
            Err(Error::Invalid("a disk of this kind has at most 2 TiB".into()))
        }
        Some(size) => Ok(size.next_multiple_of(step)),
    }
}

fn digest_of(path: &Path) -> Result<String> {
    let fail = |e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
    let mut file = File::open(path).map_err(fail)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => return Ok(digest::hex(&hash.finalize())),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Copies a file and leaves out what is empty.
fn copy_sparse(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    use std::os::unix::fs::FileExt;
    let source = File::open(from)?;
    let target = File::create(to)?;
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    while at < size {
        let Ok(begin) = seek(&source, SeekFrom::Data(at)) else { break };
        let end = seek(&source, SeekFrom::Hole(begin))?;
        at = begin;
        while at < end {
            let count = buffer.len().min((end - at) as usize);
            source.read_exact_at(&mut buffer[..count], at)?;
            target.write_all_at(&buffer[..count], at)?;
            at += count as u64;
        }
    }
    target.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_sparse() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_owned() + "/../../target").unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"middle", 20 << 20).unwrap();
        copy_sparse(&from, &to).unwrap();
        assert_eq!(digest_of(&from).unwrap(), digest_of(&to).unwrap());
        assert!(to.metadata().unwrap().blocks() * 512 < 4 << 20);
    }

    #[test]
    fn a_disk_that_is_too_small_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("binary");
        std::fs::write(&binary, "x").unwrap();
        let mut wish = DiskWish { format: DiskFormat::Raw, size: Some(16 << 20), binary };
        let error = size(directory.path(), &wish).unwrap_err().to_string();
        assert!(error.contains("at least 257 MiB"), "{error}");
        wish.size = Some((1 << 30) + 1);
        assert_eq!(size(directory.path(), &wish).unwrap(), (1 << 30) + SIZE_STEP);
        wish.format = DiskFormat::Gce;
        assert_eq!(size(directory.path(), &wish).unwrap(), 2 << 30);
    }
}
