//! Layers of trees that were packed before.
//!
//! ```text
//!   IMAGES/oci/blobs/HEX          layers, by their digest
//!   IMAGES/oci/trees/KEY.json     which layers a tree became, with one limit and one compression
//!   IMAGES/oci/work-…/            being written; what a dead process left there is removed at the next open
//!   IMAGES/oci/lock               held while any of it is used
//! ```

use super::Teller;
use super::blob::{Blob, Source};
use super::tree::Owners;
use super::{Options, layers, spec};
use crate::{Error, Result, Rootfs};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Changes whenever the same tree would become other layers.
const RECIPE: &str = "layers 1";
/// Begins the name of a directory that is being written.
const WORK: &str = "work-";

pub(super) struct Store {
    directory: PathBuf,
    trees: PathBuf,
    /// Shared with others who use it; nobody removes anything meanwhile.
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct Packed {
    /// Digest of the tree: without it these layers are of no use.
    tree: String,
    layers: Vec<PackedLayer>,
}

#[derive(Serialize, Deserialize)]
struct PackedLayer {
    digest: String,
    diff_id: String,
    size: u64,
    media_type: String,
}

impl Store {
    /// `images` is the library's directory. What is of no use any more is removed, unless somebody else is at work.
    pub(super) fn open(images: &Path) -> Result<Self> {
        let directory = images.join("oci");
        let fail = |e: std::io::Error| Error::Failed(format!("{} can't be used: {e}", directory.display()));
        for part in ["blobs", "trees"] {
            std::fs::create_dir_all(directory.join(part)).map_err(fail)?;
        }
        let lock = File::options().create(true).truncate(false).write(true).open(directory.join("lock")).map_err(fail)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            sweep(&directory, &images.join("rootfs"));
        }
        flock(&lock, FlockOperation::LockShared).map_err(|e| fail(e.into()))?;
        Ok(Self { directory, trees: images.join("rootfs"), _lock: lock })
    }

    /// A directory that goes away with its owner.
    pub(super) fn work(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(WORK)
            .tempdir_in(&self.directory)
            .map_err(|e| Error::Failed(format!("{} can't be written: {e}", self.directory.display())))
    }

    /// The layers of a tree: found, or packed now.
    pub(super) fn layers(&self, rootfs: &Rootfs, owners: &Owners, options: &Options, tell: &Teller) -> Result<Vec<Blob>> {
        let words = format!("{RECIPE}\n{}\n{}\n{}\n{owners:?}", rootfs.digest, options.layer_max, options.compression.name());
        let key = spec::digest_of(words.as_bytes());
        let list = self.directory.join("trees").join(format!("{}.json", key.trim_start_matches("sha256:")));
        if let Some(found) = self.find(&list) {
            return Ok(found);
        }
        let work = self.work()?;
        let mut packed = layers::write(&rootfs.path, owners, options, work.path(), tell)?;
        let fail = |e: std::io::Error| Error::Failed(format!("{} can't be written: {e}", self.directory.display()));
        for layer in &mut packed {
            let place = self.directory.join("blobs").join(layer.hex());
            if let Source::File(from) = &layer.source {
                std::fs::rename(from, &place).map_err(fail)?;
            }
            layer.source = Source::File(place);
        }
        let describe = |layer: &Blob| PackedLayer {
            digest: layer.digest.clone(),
            diff_id: layer.diff_id.clone().unwrap_or_default(),
            size: layer.size,
            media_type: layer.media_type.clone(),
        };
        let text = Packed { tree: rootfs.digest.clone(), layers: packed.iter().map(describe).collect() };
        let half = work.path().join("list");
        std::fs::write(&half, serde_json::to_vec_pretty(&text).unwrap_or_default()).map_err(fail)?;
        std::fs::rename(&half, &list).map_err(fail)?;
        Ok(packed)
    }

    fn find(&self, list: &Path) -> Option<Vec<Blob>> {
        let packed: Packed = serde_json::from_slice(&std::fs::read(list).ok()?).ok()?;
        if !self.trees.join(&packed.tree).is_dir() {
            return None;
        }
        let layers = packed.layers.into_iter().map(|layer| {
            let path = self.directory.join("blobs").join(layer.digest.strip_prefix("sha256:")?);
            // The size is what a crash before everything was on disk would change.
            (spec::is_digest(&layer.digest) && path.metadata().ok()?.len() == layer.size).then_some(Blob {
                digest: layer.digest,
                size: layer.size,
                media_type: layer.media_type,
                diff_id: Some(layer.diff_id),
                source: Source::File(path),
            })
        });
        layers.collect()
    }
}

/// Removes work of the dead, lists of trees that are gone, and layers that no list names.
fn sweep(directory: &Path, trees: &Path) {
    let entries = |part: &str| std::fs::read_dir(directory.join(part)).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries("").filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(WORK))) {
        let _ = std::fs::remove_dir_all(path);
    }
    let mut used = HashSet::new();
    for list in entries("trees") {
        let packed = std::fs::read(&list).ok().and_then(|text| serde_json::from_slice::<Packed>(&text).ok());
        match packed.filter(|packed| trees.join(&packed.tree).is_dir()) {
            Some(packed) => used.extend(packed.layers.into_iter().map(|layer| layer.digest)),
            None => drop(std::fs::remove_file(&list)),
        }
    }
    for blob in entries("blobs") {
        let name = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !used.contains(&format!("sha256:{name}")) {
            let _ = std::fs::remove_file(blob);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_packed_once_and_go_with_their_tree() {
        let images = tempfile::tempdir().unwrap();
        let path = images.path().join("rootfs/abc");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("file"), "text").unwrap();
        let rootfs = Rootfs { template: "t".into(), path: path.clone(), digest: "abc".into() };
        let pack = || {
            let store = Store::open(images.path()).unwrap();
            store.layers(&rootfs, &Owners::Kept, &Options::default(), &Teller::silent()).unwrap()
        };
        let blobs = || std::fs::read_dir(images.path().join("oci/blobs")).unwrap().count();
        let first = pack();
        // Nothing is read again, or else the change would be seen: a tree never changes under its name.
        std::fs::write(path.join("file"), "other").unwrap();
        assert_eq!(pack()[0].digest, first[0].digest);
        std::fs::create_dir(images.path().join("oci/work-dead")).unwrap();
        // Layers that are damaged are packed again.
        std::fs::write(images.path().join("oci/blobs").join(first[0].hex()), "x").unwrap();
        assert_ne!(pack()[0].digest, first[0].digest);
        assert!(!images.path().join("oci/work-dead").exists());
        std::fs::remove_dir_all(&path).unwrap();
        let store = Store::open(images.path()).unwrap();
        assert_eq!(blobs(), 0);
        // While somebody is at work, nothing is removed.
        std::fs::write(images.path().join("oci/blobs/x"), "").unwrap();
        Store::open(images.path()).unwrap();
        assert_eq!(blobs(), 1);
        drop(store);
        Store::open(images.path()).unwrap();
        assert_eq!(blobs(), 0);
    }
}
