//! Any file as a disk: it is read to its end or refused, and nothing outside of its directory is a part of it.

use super::{chain, partitions, source::Source};
use crate::fuzz::room;

/// So many stretches with data are read.
const MOST: usize = 100;

pub(crate) fn run(input: &[u8]) {
    let room = room::Room::new();
    let path = room.path().join("disk");
    std::fs::write(&path, input).unwrap();
    std::fs::write(room.path().join("base"), [7; 1000]).unwrap();
    let Ok(links) = chain::check_safe(&path) else { return };
    assert!(links.iter().all(|link| link.path.parent() == path.canonicalize().unwrap().parent()));
    let Ok(source) = Source::of(links) else { return };
    if let Ok(found) = partitions::ext(&source) {
        assert!(found.iter().all(|start| *start < source.size()));
    }
    let (mut position, mut buffer) = (0, [0; 3000]);
    for _ in 0..MOST {
        let Ok(Some(found)) = source.next_data(position) else { return };
        assert!(found >= position && found < source.size());
        if source.read(&mut buffer, found).is_err() {
            return;
        }
        position = found + 512;
    }
}
