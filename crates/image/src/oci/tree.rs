//! A tree on disk as a list of entries, in path order. What the list says depends on the tree alone: owners, modes, whole
//! seconds, extended attributes, names of one file; never on inode numbers or on the order in which a directory is read.

use crate::{Error, Result};
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The attributes that belong to a file's meaning: what it may do, and what people wrote on it. Others belong to the host.
const CAPABILITY: &str = "security.capability";
const USER: &str = "user.";

/// A file, directory or link of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Relative to the tree.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) time: u64,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Symlink {
        to: PathBuf,
    },
    File {
        size: u64,
        /// Its further names. They are written with the first, because an engine may unpack each layer by itself, and then finds
        /// no name of another layer.
        more: Vec<PathBuf>,
    },
}

/// Who owns what in the image.
#[derive(Debug, Clone)]
pub(super) enum Owners {
    /// As on disk.
    Kept,
    /// A tree that was built without root belongs to whoever built it; inside it must belong to root, and the user's home
    /// to the user.
    Made { home: PathBuf, uid: u32 },
}

impl Owners {
    pub(super) fn of_built(home: &str, uid: u32) -> Self {
        match rustix::process::geteuid().is_root() {
            true => Self::Kept,
            false => Self::Made { home: home.trim_start_matches('/').into(), uid },
        }
    }

    fn of(&self, path: &Path, data: &std::fs::Metadata) -> (u32, u32) {
        match self {
            Self::Kept => (data.uid(), data.gid()),
            Self::Made { home, uid } if path.starts_with(home) => (*uid, *uid),
            Self::Made { .. } => (0, 0),
        }
    }
}

/// All entries below a directory, each directory before what is in it.
pub(super) fn read(root: &Path, owners: &Owners) -> Result<Vec<Entry>> {
    let fail = |path: &Path, e: io::Error| Error::Failed(format!("{} can't be read: {e}", root.join(path).display()));
    let mut entries: Vec<Entry> = Vec::new();
    // Where the first name of a file with several is.
    let mut first: HashMap<(u64, u64), usize> = HashMap::new();
    // The next to look at is at the end; children are pushed in reverse.
    let mut open = children(root, Path::new("")).map_err(|e| fail(Path::new(""), e))?;
    while let Some(path) = open.pop() {
        let full = root.join(&path);
        let data = full.symlink_metadata().map_err(|e| fail(&path, e))?;
        let kind = data.file_type();
        let kind = if kind.is_dir() {
            open.extend(children(root, &path).map_err(|e| fail(&path, e))?);
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Symlink { to: std::fs::read_link(&full).map_err(|e| fail(&path, e))? }
        } else if kind.is_file() {
            if data.nlink() > 1 {
                let known = *first.entry((data.dev(), data.ino())).or_insert(entries.len());
                if let Some(Kind::File { more, .. }) = entries.get_mut(known).map(|entry| &mut entry.kind) {
                    more.push(path);
                    continue;
                }
            }
            Kind::File { size: data.len(), more: Vec::new() }
        } else {
            // Devices, sockets, pipes: whoever runs the image brings its own.
            continue;
        };
        let (uid, gid) = owners.of(&path, &data);
        let attributes = attributes(&full).map_err(|e| fail(&path, e))?;
        let (mode, time) = (data.permissions().mode() & 0o7777, data.mtime().max(0) as u64);
        entries.push(Entry { path, kind, mode, uid, gid, time, attributes });
    }
    Ok(entries)
}

fn children(root: &Path, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = std::fs::read_dir(root.join(directory))?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

fn attributes(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let size = match rustix::fs::llistxattr(path, &mut [0_u8; 0]) {
        Ok(size) => size,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(e) => return Err(e.into()),
    };
    if size == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0; size];
    let size = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut found = Vec::new();
    for name in names[..size].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok()) {
        if name == CAPABILITY || name.starts_with(USER) {
            let mut value = vec![0; rustix::fs::lgetxattr(path, name, &mut [0_u8; 0])?];
            let size = rustix::fs::lgetxattr(path, name, &mut value[..])?;
            value.truncate(size);
            found.push((name.to_owned(), value));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_paths_and_a_file_with_two_names_is_one_entry() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir(at("b")).unwrap();
        std::fs::write(at("b/z"), "text").unwrap();
        std::fs::hard_link(at("b/z"), at("a")).unwrap();
        std::fs::hard_link(at("b/z"), at("c")).unwrap();
        std::os::unix::fs::symlink("/nowhere", at("b/link")).unwrap();
        std::fs::write(at("b.c"), "").unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
        let entries = read(root.path(), &Owners::Made { home: "b".into(), uid: 7 }).unwrap();
        let paths: Vec<_> = entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a", "b", "b/link", "b.c"]);
        assert_eq!(entries[0].kind, Kind::File { size: 4, more: vec!["b/z".into(), "c".into()] });
        assert_eq!(entries[2].kind, Kind::Symlink { to: "/nowhere".into() });
        assert_eq!(entries.iter().map(|entry| entry.uid).collect::<Vec<_>>(), [0, 7, 7, 0]);
    }
}
