//! Any texts as an image on disk: it is read or refused, none of its blobs lies elsewhere, and it reads the same when it is written again.
//!
//! Lines with nothing but `--` part the files: the index, the manifest, then blobs. `DIGEST1` stands for the digest of the second file
//! in those before it and `SIZE1` for its size, and so on.

use super::Image;
use crate::fuzz::room;
use crate::oci::{Teller, blob::Source, spec};

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(reference) = text.parse::<crate::oci::registry::Reference>() {
        assert_eq!(reference.to_string().parse::<crate::oci::registry::Reference>().unwrap(), reference);
    }
    let mut files: Vec<String> = text.split("\n--\n").take(5).map(str::to_owned).collect();
    let room = room::Room::new();
    let layout = room.path().join("layout");
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    while files.len() > 1 {
        let (file, number) = (files.pop().unwrap(), files.len());
        let digest = spec::digest_of(file.as_bytes());
        std::fs::write(blobs.join(digest.trim_start_matches("sha256:")), &file).unwrap();
        for before in &mut files {
            let told = before.replace(&format!("DIGEST{number}"), &digest);
            *before = told.replace(&format!("SIZE{number}"), &file.len().to_string());
        }
    }
    std::fs::write(layout.join("index.json"), &files[0]).unwrap();
    std::fs::write(layout.join(spec::LAYOUT_FILE), spec::LAYOUT).unwrap();
    let Ok(image) = Image::open(&layout) else { return };
    for blob in image.blobs() {
        if let Source::File(path) = &blob.source {
            assert_eq!((path.parent().unwrap(), path.metadata().unwrap().len()), (&*blobs, blob.size));
        }
    }
    let copy = room.path().join("copy");
    image.write_layout(&copy, "name:tag", &Teller::silent()).unwrap();
    let again = Image::open(&copy).unwrap();
    assert_eq!((again.digest(), again.layers(), again.size()), (image.digest(), image.layers(), image.size()));
    image.write_archive(&room.path().join("image.tar"), "name:tag", &Teller::silent()).unwrap();
}
