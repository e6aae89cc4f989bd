//! The disk of a desk: what it wrote over its template, bounded.
//!
//! A disk is a sparse file with an ext4 of the size that was asked for, mounted through a loop device inside the desk's
//! namespace and nowhere else. A desk that fills it gets `ENOSPC`, whatever it does. An empty one is formatted once per
//! size and copied, holes left out: about 2 MiB.
//!
//! Whoever attaches a disk holds a lock on it, and the loop device keeps the locked file open. So the lock ends when the
//! last mount is gone, and a disk is never mounted twice, although the kernel unmounts some time after the last process.
//!
//! Where there are no loop devices, or no right to use them, the disk is a plain directory, and its size is only watched.

use super::directory::{Directory, is_full, trouble};
use crate::{Error, Result};
use linux_raw_sys::loop_device::{
    LO_FLAGS_AUTOCLEAR, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LOOP_GET_STATUS64, loop_config, loop_info64,
};
use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The smallest disk that ext4 with a journal is sensible on.
pub(crate) const SMALLEST_MIB: u64 = 32;
/// Room that stays free on the host: below it no disk is made, because the desks that run could not write either.
const KEPT_FREE: u64 = 128 << 20;
/// The kernel takes apart the mounts of a dead sandbox in the background; on a busy machine with many of them that takes its time.
const RELEASE_LIMIT: Duration = Duration::from_secs(20);
const RELEASE_LOOK: Duration = Duration::from_millis(2);

/// What holds the files of a desk, by its name in the desk's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Disk {
    Image(String),
    Directory(String),
}

impl Disk {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Image(name) | Self::Directory(name) => name,
        }
    }

    /// A disk of the same kind for the next life.
    pub(crate) fn next(&self) -> Self {
        let number = self.name().split(['-', '.']).nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) + 1;
        match self {
            Self::Image(_) => Self::Image(format!("disk-{number}.ext4")),
            Self::Directory(_) => Self::Directory(format!("disk-{number}")),
        }
    }

    pub(crate) fn first(image: bool) -> Self {
        if image { Self::Image("disk-1.ext4".into()) } else { Self::Directory("disk-1".into()) }
    }
}

/// The empty disk of a size, made if it is not there.
pub(crate) fn blank(path: &Path, mib: u64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let temporary = path.with_extension(format!("{:08x}.new", rand::random::<u32>()));
    let made = (|| {
        File::create_new(&temporary)?.set_len(mib << 20)?;
        let output = Command::new("mkfs.ext4")
            // The journal is small: it is copied with every desk, and a desk writes little at once.
            .args(["-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0"])
            .arg(&temporary)
            .env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        std::fs::rename(&temporary, path)
    })();
    made.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        match e.kind() {
            io::ErrorKind::NotFound => Error::Unsupported {
                provider: "local",
                what: "a disk".into(),
                reason: "mkfs.ext4 is not installed; install the package e2fsprogs".into(),
            },
            _ => trouble("format", path, &e),
        }
    })
}

/// Copies a file, its holes left out.
pub(crate) fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let from = File::open(from)?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    if rustix::fs::ioctl_ficlone(&to, &from).is_ok() {
        return Ok(());
    }
    copy_data(&from, &to)
}

/// Copies what is data into an empty file; the rest becomes a hole.
pub(crate) fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let start = match seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // Not every file system knows its holes; then all is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(e) => return Err(e.into()),
        };
        let end = seek(from, SeekFrom::Hole(start)).unwrap_or(length);
        copy_range(from, to, start, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read, mut written) = (start, start);
    while read < end {
        let length = usize::try_from(end - read).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), length) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return copy_bytes(from, to, read, end),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn copy_bytes(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let piece = buffer.get_mut(..wanted).unwrap_or_default();
        let length = from.read_at(piece, at)?;
        if length == 0 {
            break;
        }
        to.write_all_at(piece.get(..length).unwrap_or_default(), at)?;
        at += length as u64;
    }
    Ok(())
}

/// Refuses when the host's own disk is nearly full.
pub(crate) fn room(path: &Path) -> Result<()> {
    let Ok(fs) = rustix::fs::statvfs(path) else { return Ok(()) };
    let free = fs.f_bavail * fs.f_frsize;
    if free < KEPT_FREE {
        return Err(Error::Full(format!(
            "the disk of this machine has {} MiB left at {}, and {} MiB are kept for the desks that run",
            free >> 20,
            path.display(),
            KEPT_FREE >> 20
        )));
    }
    Ok(())
}

/// Bytes that a disk takes on the host.
pub(crate) fn size(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    let own = meta.blocks() * 512;
    if !meta.is_dir() {
        return own;
    }
    own + std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path())).sum::<u64>()
}

/// Opens an image that nobody else has attached; waits a while for the kernel to let go of it.
pub(crate) fn open_alone(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let end = Instant::now() + RELEASE_LIMIT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(RELEASE_LOOK),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other(format!("it is still attached after {} s", RELEASE_LIMIT.as_secs())));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether nobody has the image attached. One that does not exist is free.
pub(crate) fn is_free(path: &Path) -> bool {
    File::open(path).map_or(true, |file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// A loop device with a file behind it, which goes when its last mount does.
pub(crate) struct Loop {
    pub(crate) number: u32,
    /// Open until it is mounted, or it would go at once.
    _device: File,
}

impl Loop {
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    /// Puts a file behind a free loop device.
    pub(crate) fn attach(file: &File) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        // Others take free ones too; so many tries in a row fail only if something is badly wrong.
        for _ in 0..256 {
            // SAFETY: this request takes no argument and answers a number.
            let number = unsafe { nix::libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE.into()) };
            let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
            let path = format!("/dev/loop{number}");
            let device = match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(device) => device,
                // The device's file appears a moment after the device.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    make_node(&path, number)?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            // SAFETY: a structure of numbers, for which all zeros is a valid value.
            let mut config: loop_config = unsafe { std::mem::zeroed() };
            config.fd = u32::try_from(file.as_raw_fd()).unwrap_or(u32::MAX);
            config.info.lo_flags = LO_FLAGS_AUTOCLEAR as u32;
            // SAFETY: the request takes a pointer to this structure, which lives until it returns.
            match unsafe { nix::libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE.into(), &raw const config) } {
                0 => return Ok(Self { number, _device: device }),
                _ => match io::Error::last_os_error() {
                    e if e.raw_os_error() == Some(nix::libc::EBUSY) => continue,
                    e => return Err(e),
                },
            }
        }
        Err(io::Error::other("no loop device is free"))
    }
}

/// Where `/dev` is not kept by the kernel, as in containers, nobody makes the file.
fn make_node(path: &str, number: u32) -> io::Result<()> {
    const MAJOR: u32 = 7;
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::BlockDevice,
        rustix::fs::Mode::from_raw_mode(0o660),
        rustix::fs::makedev(MAJOR, number),
    );
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether loop devices can be used here; if not, why.
pub(crate) fn loops_work(directory: &Directory) -> std::result::Result<(), String> {
    let probe = directory.blank(&format!("{:08x}.probe", rand::random::<u32>()));
    let tried = (|| {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&probe)?;
        file.set_len(1 << 20)?;
        Loop::attach(&file).map(drop)
    })();
    let _ = std::fs::remove_file(&probe);
    tried.map_err(|e: io::Error| match e.kind() {
        _ if is_full(&e) => "the disk of this machine is full".to_owned(),
        io::ErrorKind::PermissionDenied => "loop devices may not be used".to_owned(),
        io::ErrorKind::NotFound => "there are no loop devices".to_owned(),
        _ => e.to_string(),
    })
}

/// Whether that file, and no other, is behind a loop device.
pub(crate) fn is_behind(number: u32, image: &Path) -> bool {
    let asked = (|| {
        let device = File::open(format!("/dev/loop{number}"))?;
        // SAFETY: a structure of numbers, for which all zeros is a valid value.
        let mut info: loop_info64 = unsafe { std::mem::zeroed() };
        // SAFETY: the request fills this structure, which lives until it returns.
        match unsafe { nix::libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64.into(), &raw mut info) } {
            0 => Ok(info),
            _ => Err(io::Error::last_os_error()),
        }
    })();
    match (asked, std::fs::metadata(image)) {
        (Ok(info), Ok(image)) => info.lo_inode == image.ino() && info.lo_device == image.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_numbered() {
        assert_eq!(Disk::first(true).next(), Disk::Image("disk-2.ext4".into()));
        assert_eq!(Disk::first(false).next().next(), Disk::Directory("disk-3".into()));
    }

    #[test]
    fn holes_stay_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", (32 << 20) + 5).unwrap();
        copy_sparse(&from, &to).unwrap();
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        assert!(size(&to) < 1 << 20, "{} bytes", size(&to));
    }

    #[test]
    fn an_empty_disk_is_made_once_and_is_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("64.ext4");
        blank(&path, 64).unwrap();
        let made = std::fs::metadata(&path).unwrap();
        assert_eq!(made.len(), 64 << 20);
        assert!(size(&path) < 8 << 20);
        blank(&path, 64).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), made.ino());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_disk_has_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d");
        assert!(is_free(&path));
        std::fs::write(&path, "").unwrap();
        let held = open_alone(&path).unwrap();
        assert!(!is_free(&path));
        drop(held);
        assert!(is_free(&path));
    }
}
