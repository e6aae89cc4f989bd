//! A copy of an overlay's upper layer that can be the lower layer of others.
//!
//! Everything that a layer says is kept: owners, modes, times, links between files, holes, extended attributes, names that
//! are deleted (devices 0:0) and directories that hide what is below them. What only the overlay that
//! wrote it understands is left out.

use super::disk::copy_data;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, futimens, linkat, mkdirat, mknodat, openat, readlinkat, statat, symlinkat, utimensat,
};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Extended attributes of overlays that mean something in a lower layer. The second form is that of ordinary users.
pub(crate) const OPAQUE: [&CStr; 2] = [c"trusted.overlay.opaque", c"user.overlay.opaque"];
/// More than any attribute that the file systems in question keep.
const LARGEST_ATTRIBUTE: usize = 64 << 10;
/// Directories in directories. Each takes two descriptors, of which a process has 1024, and a part of the stack; a desk can nest them
/// without end.
const DEEPEST: usize = 400;

/// Copies a tree to a new directory. Returns the bytes that it takes. A tree that does not exist is an empty one.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    copy_shifted(from, to, 0)
}

/// The same, with all owners moved up.
pub(crate) fn copy_shifted(from: &Path, to: &Path, shift: u32) -> io::Result<u64> {
    std::fs::create_dir(to)?;
    let to_fd = open_directory(rustix::fs::CWD, to)?;
    let from_fd = match open_directory(rustix::fs::CWD, from) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        from => from?,
    };
    let mut copy = Copy { target: to_fd.try_clone()?, links: HashMap::new(), bytes: 0, shift };
    copy.directory(&from_fd, &to_fd, Path::new(""), 0)?;
    Ok(copy.bytes)
}

struct Copy {
    target: OwnedFd,
    /// Files with several names, by their first one.
    links: HashMap<(u64, u64), PathBuf>,
    bytes: u64,
    shift: u32,
}

impl Copy {
    /// The content and attributes of a directory. Never by way of a link: what is copied may be changed meanwhile.
    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(io::Error::other(format!("its directories are nested more than {DEEPEST} deep")));
        }
        // Its names first: a directory that is being read takes a descriptor too.
        let names = Dir::read_from(from)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        for name in names.collect::<Result<Vec<_>, _>>()? {
            if [c".", c".."].contains(&name.as_c_str()) {
                continue;
            }
            let stat = match statat(from, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(rustix::io::Errno::NOENT) => continue,
                stat => stat?,
            };
            self.entry(from, to, &name, &stat, &path.join(std::ffi::OsStr::from_bytes(name.to_bytes())), depth)?;
        }
        let stat = rustix::fs::fstat(from)?;
        attributes(from.as_fd(), to.as_fd())?;
        self.finish(to.as_fd(), &stat)
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat, path: &Path, depth: usize) -> io::Result<()> {
        self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 {
            if let Some(first) = self.links.get(&(stat.st_dev, stat.st_ino)) {
                return Ok(linkat(&self.target, first, to, name, AtFlags::empty())?);
            }
            self.links.insert((stat.st_dev, stat.st_ino), path.to_owned());
        }
        match kind {
            FileType::Directory => {
                mkdirat(to, name, Mode::from_raw_mode(0o700))?;
                self.directory(&open_directory(from.as_fd(), name)?, &open_directory(to.as_fd(), name)?, path, depth + 1)
            }
            FileType::RegularFile => {
                // Without waiting: it may have become a pipe since.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let source = openat(from, name, flags, Mode::empty())?;
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let target = openat(to, name, flags, Mode::from_raw_mode(0o600))?;
                if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
                    copy_data(&File::from(source.try_clone()?), &File::from(target.try_clone()?))?;
                }
                attributes(source.as_fd(), target.as_fd())?;
                self.finish(target.as_fd(), stat)
            }
            FileType::Symlink => {
                symlinkat(&readlinkat(from, name, Vec::new())?, to, name)?;
                self.finish_by_name(to, name, stat)
            }
            // A deleted name. Other devices can't be made in a desk.
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                mknodat(to, name, FileType::CharacterDevice, Mode::empty(), 0)?;
                self.finish_by_name(to, name, stat)
            }
            FileType::Fifo => {
                mknodat(to, name, FileType::Fifo, Mode::from_raw_mode(stat.st_mode), 0)?;
                self.finish_by_name(to, name, stat)
            }
            // A socket without the program that listens on it is nothing.
            _ => Ok(()),
        }
    }

    /// Owner, mode and times, the times last because everything else changes them.
    fn finish(&self, to: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
        let (uid, gid) = self.owner(stat);
        fchown(to, Some(uid), Some(gid))?;
        fchmod(to, Mode::from_raw_mode(stat.st_mode))?;
        Ok(futimens(to, &times(stat))?)
    }

    fn finish_by_name(&self, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
        let (uid, gid) = self.owner(stat);
        chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(utimensat(to, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn owner(&self, stat: &Stat) -> (Uid, Gid) {
        (Uid::from_raw(stat.st_uid.saturating_add(self.shift)), Gid::from_raw(stat.st_gid.saturating_add(self.shift)))
    }
}

fn open_directory(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: i64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    #[expect(clippy::useless_conversion, reason = "their types differ between architectures")]
    Timestamps {
        last_access: time(stat.st_atime.into(), i64::try_from(stat.st_atime_nsec).unwrap_or(0)),
        last_modification: time(stat.st_mtime.into(), i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
    }
}

/// Copies the extended attributes that a layer keeps.
fn attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    for (name, value) in kept_attributes(from)? {
        fsetxattr(to, name.as_c_str(), &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// The extended attributes of a file that belong to it, not to the overlay that wrote it.
pub(crate) fn kept_attributes(file: BorrowedFd<'_>) -> io::Result<Vec<(CString, Vec<u8>)>> {
    let mut names = vec![0; LARGEST_ATTRIBUTE];
    let length = match flistxattr(file, &mut names) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        length => length?,
    };
    let names = names.get(..length).unwrap_or_default();
    let mut found = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok()) {
        if !is_kept(name) {
            continue;
        }
        let mut value = vec![0; LARGEST_ATTRIBUTE];
        let length = fgetxattr(file, name, &mut value)?;
        value.truncate(length);
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

fn is_kept(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    if OPAQUE.contains(&name) {
        return true;
    }
    let of_an_overlay = bytes.starts_with(b"user.overlay.");
    (bytes.starts_with(b"user.") && !of_an_overlay) || bytes == b"security.capability" || bytes.starts_with(b"system.posix_acl_")
}

/// Whether a directory hides what is below it.
pub(crate) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    OPAQUE.iter().any(|name| matches!(fgetxattr(directory, *name, &mut [0; 8]), Ok(1..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_layer_is_copied_with_all_that_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir_all(from.join("sub/inner")).unwrap();
        std::fs::write(from.join("sub/file"), "text").unwrap();
        std::fs::hard_link(from.join("sub/file"), from.join("second")).unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 8 << 20).unwrap();
        std::fs::set_permissions(from.join("sub"), std::fs::Permissions::from_mode(0o1751)).unwrap();
        let file = File::open(from.join("sub/file")).unwrap();
        let _ = fsetxattr(&file, c"user.mine", b"1", XattrFlags::empty());
        let _ = fsetxattr(&file, c"user.overlay.origin", b"1", XattrFlags::empty());
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(7)).unwrap();
        let root = rustix::process::geteuid().is_root();
        if root {
            let whiteout = from.join("gone");
            mknodat(rustix::fs::CWD, &whiteout, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
            std::os::unix::fs::chown(from.join("sub/inner"), Some(1000), Some(1000)).unwrap();
            let inner = File::open(from.join("sub/inner")).unwrap();
            fsetxattr(&inner, OPAQUE[0], b"y", XattrFlags::empty()).unwrap();
        }
        assert!(copy(&from, &to).unwrap() < 1 << 20);

        let meta = |name: &str| std::fs::symlink_metadata(to.join(name)).unwrap();
        assert_eq!(std::fs::read(to.join("second")).unwrap(), b"text");
        assert_eq!(meta("second").ino(), meta("sub/file").ino());
        assert_eq!(meta("sub/file").mtime(), 7);
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
        assert_eq!(meta("sparse").len(), (8 << 20) + 3);
        assert_eq!(meta("sub").permissions().mode() & 0o7777, 0o1751);
        let kept = kept_attributes(File::open(to.join("sub/file")).unwrap().as_fd()).unwrap();
        assert!(kept.iter().all(|(name, _)| name.as_c_str() == c"user.mine"));
        if root {
            assert_eq!(meta("gone").rdev(), 0);
            assert_eq!(meta("sub/inner").uid(), 1000);
            assert!(is_opaque(File::open(to.join("sub/inner")).unwrap().as_fd()));
        }
    }

    #[test]
    fn names_need_not_be_text() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let name = Path::new(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir_all(from.join(name)).unwrap();
        std::fs::write(from.join(name).join("a"), "text").unwrap();
        // By whichever of them it is met first.
        std::fs::hard_link(from.join(name).join("a"), from.join("b")).unwrap();
        std::fs::hard_link(from.join(name).join("a"), from.join(name).join("c")).unwrap();
        copy(&from, &to).unwrap();
        let inode = |path: PathBuf| std::fs::metadata(path).unwrap().ino();
        assert_eq!(inode(to.join(name).join("a")), inode(to.join("b")));
        assert_eq!(inode(to.join(name).join("c")), inode(to.join("b")));
    }

    #[test]
    fn a_tree_without_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let deep = |levels: usize| {
            let (from, to) = (folder.path().join(format!("from-{levels}")), folder.path().join(format!("to-{levels}")));
            std::fs::create_dir_all((0..levels).fold(from.clone(), |path, _| path.join("d"))).unwrap();
            copy(&from, &to)
        };
        deep(DEEPEST).unwrap();
        assert!(deep(DEEPEST + 1).unwrap_err().to_string().contains("nested"));
    }

    #[test]
    fn nothing_is_an_empty_layer() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(copy(&folder.path().join("nothing"), &folder.path().join("to")).unwrap(), 0);
        assert!(folder.path().join("to").is_dir());
    }
}
