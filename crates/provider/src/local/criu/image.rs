//! What is written beside CRIU's own files, and the one of them that is different in every copy.
//!
//! ```text
//! memory/ID/*.img        CRIU's
//!          /hotdesk      the binary that the desk runs, the same file
//!          /files/N/     what was in the N-th mount of `saved.json`, if that is one in memory
//!          /saved.json   what a restore must know; written last
//! ```

use crate::local::ids::Ids;
use crate::local::sandbox::{Outcome, Step};
use rustix::fs::{AtFlags, Mode};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// The name of [`Saved`] in the directory of a saved state; it is written last, so what has it is whole.
pub(crate) const FILE: &str = "saved.json";
/// The desk's program.
pub(crate) const BINARY: &str = "hotdesk";
const FILES: &str = "files";

/// What a restore must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// Mounts that a restore has to provide.
    pub(crate) mounts: Vec<Mount>,
    /// The token that the desk's server knows.
    pub(crate) token: String,
    pub(crate) ids: Ids,
    /// For the one who wonders why a restore fails after a change of kernel.
    pub(crate) kernel: String,
    pub(crate) version: String,
}

impl Saved {
    pub(crate) fn read(images: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(images.join(FILE))?)?)
    }
}

/// A mount of a desk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    pub(crate) folder: bool,
    /// Its files are in memory and saved with it.
    pub(crate) in_memory: bool,
}

impl Mount {
    /// Mounted over a part of `/proc` or `/sys` in order to hide it.
    pub(crate) fn hides(&self) -> bool {
        self.point.starts_with("/proc") || self.point.starts_with("/sys")
    }
}

/// The mounts that CRIU is not to deal with: all but the root, and what only the owner of the namespaces can mount.
pub(crate) fn mounts(pid: i32) -> io::Result<Vec<Mount>> {
    let text = std::fs::read(format!("/proc/{pid}/mountinfo"))?;
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    Ok(parse(&text)
        .into_iter()
        .map(|(point, kind)| {
            let seen = root.join(point.strip_prefix("/").unwrap_or(&point));
            let folder = std::fs::symlink_metadata(seen).is_ok_and(|meta| meta.is_dir());
            let mut mount = Mount { point, folder, in_memory: false };
            // What hides something is empty, and the devices are made anew.
            mount.in_memory = kind == "tmpfs" && folder && !mount.hides() && mount.point != Path::new("/dev");
            mount
        })
        .collect())
}

/// Mount points and kinds, without those that CRIU restores.
fn parse(text: &[u8]) -> Vec<(PathBuf, String)> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.nth(4)?)));
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some((point, String::from_utf8_lossy(kind).into_owned()))
    });
    let ours = ["proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2"];
    lines.filter(|(point, kind)| point != Path::new("/") && !ours.contains(&kind.as_str())).collect()
}

/// Blanks and the like are written as octal numbers.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

pub(crate) fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Copies the files of a desk that are in memory. Its processes stand still, so nothing changes under our eyes.
pub(crate) fn save_memory_files(pid: i32, ids: Ids, to: &Path) -> Outcome<()> {
    let mounts = mounts(pid).step(|| "read the desk's mounts".into())?;
    let files = to.join(FILES);
    crate::local::directory::remove_all(&files).step(|| "make room for files".into())?;
    for (number, mount) in mounts.iter().enumerate().filter(|(_, mount)| mount.in_memory) {
        let from = PathBuf::from(format!("/proc/{pid}/root")).join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let to = files.join(number.to_string());
        std::fs::create_dir_all(&to).step(|| "make room for files".into())?;
        let device = std::fs::symlink_metadata(&from).step(|| format!("look at {}", mount.point.display()))?.dev();
        copy(&from, &to, device, &|owner| owner.wrapping_sub(ids.uid(0)))
            .step(|| format!("save the files in {}", mount.point.display()))?;
    }
    Ok(())
}

/// Puts the files of the N-th mount where it is mounted now.
pub(crate) fn restore_memory_files(images: &Path, number: usize, ids: Ids, to: &Path) -> io::Result<()> {
    let from = images.join(FILES).join(number.to_string());
    let Ok(meta) = std::fs::symlink_metadata(&from) else { return Ok(()) };
    copy(&from, to, meta.dev(), &|owner| owner.wrapping_add(ids.uid(0)))
}

/// A tree of files on one device. Sockets and pipes are left out: CRIU makes those that are in use.
fn copy(from: &Path, to: &Path, device: u64, owner: &impl Fn(u32) -> u32) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let meta = std::fs::symlink_metadata(&source)?;
        let kind = meta.file_type();
        if meta.dev() != device {
            // Another mount; its place is made with it.
            continue;
        }
        if kind.is_dir() {
            match std::fs::create_dir(&target) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            copy(&source, &target, device, owner)?;
        } else if kind.is_symlink() {
            symlink(std::fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            std::fs::copy(&source, &target)?;
        } else if kind.is_fifo() {
            rustix::fs::mknodat(rustix::fs::CWD, &target, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        } else {
            continue;
        }
        lchown(&target, Some(owner(meta.uid())), Some(owner(meta.gid())))?;
        if !kind.is_symlink() {
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        }
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: meta.atime(), tv_nsec: meta.atime_nsec() as _ },
            last_modification: rustix::fs::Timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() as _ },
        };
        rustix::fs::utimensat(rustix::fs::CWD, &target, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Makes a directory with all of CRIU's files in it, as links, and users of its own: whoever restores from it gets the
/// processes in a user namespace that maps its users to the host's from `base` on.
///
/// CRIU reads some of them as the new namespace's root, who is nobody on the host: so everybody may read them who gets this
/// far, which the directories above let nobody.
pub(crate) fn with_users(images: &Path, to: &Path, base: u32, count: u32) -> io::Result<()> {
    std::fs::create_dir(to)?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))?;
    for entry in std::fs::read_dir(images)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        if name.to_string_lossy().starts_with("userns-") {
            std::fs::write(to.join(&name), users(base, count))?;
            std::fs::set_permissions(to.join(&name), std::fs::Permissions::from_mode(0o644))?;
        } else if name.to_string_lossy().ends_with(".img") {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
            std::fs::hard_link(&path, to.join(&name))?;
        }
    }
    Ok(())
}

/// CRIU's file of a user namespace: two numbers that say what it is, a length, and a message of protocol buffers.
fn users(base: u32, count: u32) -> Vec<u8> {
    const COMMON: u32 = 0x5456_4319;
    const USERS: u32 = 0x5547_4906;
    let mut extent = Vec::new();
    for (field, value) in [(1u8, 0), (2, base), (3, count)] {
        extent.push(field << 3);
        varint(&mut extent, value);
    }
    let mut message = Vec::new();
    // Users, then groups.
    for field in [1u8, 2] {
        message.push(field << 3 | 2);
        varint(&mut message, extent.len() as u32);
        message.extend(&extent);
    }
    [&COMMON.to_le_bytes()[..], &USERS.to_le_bytes(), &(message.len() as u32).to_le_bytes(), &message].concat()
}

fn varint(to: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_written_as_criu_does() {
        // What CRIU 4.2 wrote for a map of `0 0 65536`.
        let written = [
            0x19, 0x43, 0x56, 0x54, 0x06, 0x49, 0x47, 0x55, 0x14, 0, 0, 0, 0x0a, 8, 8, 0, 0x10, 0, 0x18, 0x80, 0x80, 4, 0x12, 8,
            8, 0, 0x10, 0, 0x18, 0x80, 0x80, 4,
        ];
        assert_eq!(users(0, 65_536), written);
    }

    #[test]
    fn a_copy_shares_everything_but_its_users() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("core-1.img"), "core").unwrap();
        std::fs::write(from.join("userns-9.img"), users(0, 65_536)).unwrap();
        std::fs::write(from.join(FILE), "{}").unwrap();
        with_users(&from, &to, 600_000, 65_536).unwrap();
        assert_eq!(std::fs::read(to.join("core-1.img")).unwrap(), b"core");
        assert_eq!(std::fs::read(to.join("userns-9.img")).unwrap(), users(600_000, 65_536));
        assert_eq!(std::fs::read(from.join("userns-9.img")).unwrap(), users(0, 65_536));
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 2);
    }

    #[test]
    fn mounts_are_told_apart() {
        let text = b"99 68 0:39 / / rw - overlay overlay rw\n\
            100 99 0:42 / /proc rw - proc proc rw\n\
            42 100 0:42 /sys /proc/sys ro,nosuid - proc proc rw\n\
            46 100 0:6 /null /proc/keys rw - tmpfs dev rw\n\
            113 99 0:47 / /run rw,nosuid shared:7 - tmpfs run rw,size=16384k\n\
            110 101 0:44 / /dev/pts rw - devpts devpts rw\n\
            114 113 254:0 /a /run/with\\040blank rw - ext4 /dev/vda rw\n";
        let found = parse(text);
        let points: Vec<_> = found.iter().map(|(point, kind)| (point.to_str().unwrap(), kind.as_str())).collect();
        assert_eq!(points, [("/proc/keys", "tmpfs"), ("/run", "tmpfs"), ("/run/with blank", "ext4")]);
    }

    #[test]
    fn files_in_memory_are_copied_with_their_owners() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        for path in [&from.join("user/1000"), &to] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(from.join("user/1000/x"), "text").unwrap();
        std::fs::set_permissions(from.join("user/1000"), std::fs::Permissions::from_mode(0o1700)).unwrap();
        symlink("user", from.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("bus")).unwrap();
        let device = std::fs::metadata(&from).unwrap().dev();
        copy(&from, &to, device, &|owner| owner).unwrap();
        assert_eq!(std::fs::read(to.join("link/1000/x")).unwrap(), b"text");
        assert_eq!(std::fs::metadata(to.join("user/1000")).unwrap().mode() & 0o7777, 0o1700);
        assert!(!to.join("bus").exists(), "sockets are made by who listens");
    }
}
