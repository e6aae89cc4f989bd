//! Any archive as what a desk wrote: it is unpacked or refused. No more is written than was allowed, nothing gets rights that an archive
//! can't give, and what was unpacked says the same when it is packed and unpacked again.

use super::{Ids, pack, unpack};
use crate::fuzz::{blocks, room};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const IDS: Ids = Ids::Mapped { base: 1 << 20 };
const LIMIT: u64 = 2000;

pub(crate) fn run(input: &[u8]) {
    let first = room::Room::new();
    let unpacked = first.inside(|| unpack(file(&blocks::repaired(input)), IDS, LIMIT));
    let tree = look(first.path());
    let written = |tree: &Tree| tree.values().filter(|entry| entry.kind == "file").map(|entry| entry.size).sum::<u64>();
    // A file may be written one byte too far before that is noticed.
    assert!(written(&tree) <= LIMIT + 1, "{}", written(&tree));
    let Ok(told) = unpacked else { return };
    assert!(told <= LIMIT);
    let packed = file(&[]);
    pack(&[first.path()], IDS, packed.try_clone().unwrap()).unwrap();
    (&packed).seek(SeekFrom::Start(0)).unwrap();
    let second = room::Room::new();
    second.inside(|| unpack(packed, IDS, LIMIT)).unwrap();
    assert_eq!(tree, look(second.path()));
}

fn file(bytes: &[u8]) -> File {
    let file = rustix::fs::memfd_create("archive", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

type Tree = BTreeMap<PathBuf, Entry>;

#[derive(Debug, PartialEq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    to: Option<PathBuf>,
}

fn look(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let name = match () {
                () if kind.is_dir() => "directory",
                () if kind.is_file() => "file",
                () if kind.is_symlink() => "link",
                () if kind.is_fifo() => "pipe",
                () if kind.is_char_device() && meta.rdev() == 0 => "deleted",
                () => panic!("{path:?} is {kind:?}"),
            };
            let size = if kind.is_file() { meta.size() } else { 0 };
            let owner = (meta.uid(), meta.gid());
            assert!(owner.0 < super::super::ids::COUNT && owner.1 < super::super::ids::COUNT, "{path:?} belongs to {owner:?}");
            let to = kind.is_symlink().then(|| std::fs::read_link(&path).unwrap());
            // Of links and pipes, no mode is kept.
            let mode = if kind.is_dir() || kind.is_file() { meta.mode() & 0o7777 } else { 0 };
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), Entry { kind: name, mode, owner, size, to });
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    tree
}
