//! Any archive as an upload: it is unpacked or refused. Nothing outside of its directory changes, and nothing in it has more rights than
//! an ordinary file.

use super::unpack;
use crate::fuzz::{blocks, room};
use bytes::Bytes;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

pub(crate) fn run(input: &[u8]) {
    let Some((size, archive)) = input.split_first() else { return };
    let archive = blocks::repaired(archive);
    let pieces: Vec<_> = archive.chunks(usize::from(*size) * 16 + 1).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let room = room::Room::new();
    std::fs::create_dir(room.path().join("outside")).unwrap();
    std::fs::write(room.path().join("outside/keep"), "keep").unwrap();
    let told = room.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pieces = futures_util::stream::iter::<Vec<std::io::Result<_>>>(pieces);
        let told = runtime.block_on(unpack("/box".into(), pieces));
        look(Path::new("/box"));
        told
    });
    if let Ok(told) = told {
        assert!(told.entries <= archive.len() as u64 / 512, "{told:?}");
    }
    let mut left: Vec<_> = std::fs::read_dir(room.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| name != "box");
    assert_eq!(left, ["outside"]);
    let outside: Vec<_> =
        std::fs::read_dir(room.path().join("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["keep"]);
    let keep = room.path().join("outside/keep");
    assert_eq!((std::fs::read(&keep).unwrap(), std::fs::metadata(&keep).unwrap().nlink()), (b"keep".to_vec(), 1));
}

fn look(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        assert!(!(kind.is_block_device() || kind.is_char_device() || kind.is_fifo() || kind.is_socket()), "{path:?}");
        if kind.is_symlink() {
            let to = std::fs::canonicalize(&path);
            assert!(to.as_ref().is_ok_and(|to| to.starts_with("/box")) || to.is_err(), "{path:?} leads to {to:?}");
            continue;
        }
        assert_eq!(meta.mode() & 0o7000, 0, "{path:?}");
        if kind.is_dir() {
            look(&path);
        }
    }
}
