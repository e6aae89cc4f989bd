//! Any file as a trace: everything in it is read or refused. An input is a list of records; signature, lengths and checksums are put in.

use super::{HEADER, Kind, Reader, SIGNATURE, hex};
use crate::fuzz::room;
use crate::trace::format::Header;

pub(crate) fn run(input: &[u8]) {
    let room = room::Room::new();
    let path = room.path().join("trace");
    std::fs::write(&path, file(input)).unwrap();
    let Ok(reader) = Reader::open(&path) else { return };
    let info = reader.info();
    assert!(info.bytes >= (SIGNATURE.len() + HEADER) as u64);
    for after in [0, 1, u64::MAX] {
        if let Ok(steps) = reader.steps(after, 100) {
            assert!(steps.len() as u64 <= info.steps);
        }
    }
    for (name, number) in reader.frames.keys().zip(reader.trees.keys()) {
        let _ = reader.tree(*number);
        let _ = reader.picture(&hex(name));
    }
    for name in reader.frames.keys() {
        if let Ok(picture) = reader.frame(&hex(name)) {
            assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
        }
    }
    for name in reader.strips.keys() {
        let _ = reader.strip(&hex(name));
    }
}

/// Each record of the input is a byte for its kind, two for its length, and its content. A kind above 128 is written as it comes, without
/// a header.
fn file(mut input: &[u8]) -> Vec<u8> {
    let mut file = SIGNATURE.to_vec();
    while let [kind, low, high, rest @ ..] = input {
        let (content, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        let known = [Kind::Head, Kind::Strip, Kind::Frame, Kind::Tree, Kind::Step, Kind::End];
        if *kind < 128
            && let Some(header) = Header::new(known[usize::from(*kind) % known.len()], content)
        {
            file.extend(header.bytes());
        }
        file.extend(content);
        input = rest;
    }
    file
}
