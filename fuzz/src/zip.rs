//! Any bytes as an archive with a disk: whether it is read by its list or from its beginning, the same disk comes out, or none.

use super::{Entry, find, stream_to};
use crate::disk::Meter;
use crate::disk::fetch::arrival::{Arrival, Follow};
use crate::disk::fetch::remote::Remote;
use crate::disk::fetch::unpack::{Packing, unpack};
use crate::fuzz::room;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(input: &[u8]) {
    let room = room::Room::new();
    let path = room.path().join("archive");
    std::fs::write(&path, input).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let remote = runtime.block_on(Remote::open(&format!("file://{}", path.display()))).unwrap();
    let listed = runtime.block_on(find(&remote, input.len() as u64, None)).ok();
    let first = stream_to(&mut &*input, None).ok();
    let by_list = listed.as_ref().and_then(|(entry, at)| {
        assert!(entry.packed.is_some_and(|packed| at + packed <= input.len() as u64));
        out(&path, Packing::Entry { entry: entry.clone(), at: *at })
    });
    let in_order = out(&path, Packing::Zip { wanted: None });
    let told = |entry: &Entry| (entry.name.clone(), entry.crc);
    // The list and the files of an archive may say different things; where they do not, nor do the disks.
    if let (Some((listed, _)), Some(first), Some(by_list), Some(in_order)) = (&listed, &first, by_list, in_order)
        && told(listed) == told(first)
        && listed.size == first.size
    {
        assert!(by_list == in_order);
    }
    let whole = Packing::of(input);
    if matches!(whole, Packing::Gzip | Packing::Zstd) {
        out(&path, whole);
    }
}

fn out(path: &Path, packing: Packing) -> Option<Vec<u8>> {
    let file = Arc::new(File::open(path).unwrap());
    let length = file.metadata().unwrap().len();
    let follow = Follow {
        file,
        arrival: Arc::new(Arrival::whole(length)),
        meter: Arc::new(Meter::default()),
        position: 0,
        hash: Some(Default::default()),
        frugal: false,
        punched: 0,
    };
    let disk = path.with_file_name("disk");
    let (size, _) = unpack(follow, &packing, &File::create(&disk).unwrap()).ok()?;
    let disk = std::fs::read(disk).unwrap();
    assert_eq!(disk.len() as u64, size);
    Some(disk)
}
