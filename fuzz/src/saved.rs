//! Any archive as a machine that was put away: a record and a disk come out, or nothing. No name in it becomes a path, and the disk is
//! no larger than the archive.

use super::unpack_archive;
use crate::fuzz::{blocks, room};

pub(crate) fn run(input: &[u8]) {
    let room = room::Room::new();
    let (from, disk) = (room.path().join("archive"), room.path().join("disk"));
    std::fs::write(&from, blocks::repaired(input)).unwrap();
    let unpacked = unpack_archive(&from, &disk);
    let mut left: Vec<_> = std::fs::read_dir(room.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| name != "disk");
    assert_eq!(left, ["archive"]);
    match std::fs::metadata(&disk) {
        Ok(meta) => assert!(meta.len() <= input.len() as u64, "{} bytes", meta.len()),
        Err(_) => assert!(unpacked.is_err()),
    }
}
