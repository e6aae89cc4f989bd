//! A tree as layers, each below a limit.
//!
//! Files go into layers in path order. A layer is closed before a file that might not fit: what it has written so far, what the
//! compressor may still hold and the file as if it could not be compressed at all. So no layer is ever begun twice, and the
//! limit holds whatever the content is.

use super::blob::Blob;
use super::layer::{Compression, Layer};
use super::tree::{self, Entry, Kind, Owners};
use super::{Options, Teller};
use crate::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What a compressor may hold back: blocks of 128 KiB (zstd) or 64 KiB (gzip), and what stands between them and the file.
const HELD: u64 = 1 << 20;
/// Headers of one entry, with records of long names and attributes.
const HEADERS: u64 = 4 << 10;
/// Docker unpacks at most 127; the rest is for what is put on top.
const MOST: usize = 120;
/// Below this, an ordinary image would have more layers than any engine takes.
pub(super) const SMALLEST_LIMIT: u64 = 4 << 20;

/// Writes the layers of a tree into a directory.
pub(super) fn write(root: &Path, owners: &Owners, options: &Options, directory: &Path, tell: &Teller) -> Result<Vec<Blob>> {
    let entries = tree::read(root, owners)?;
    let all: u64 = entries.iter().map(size).sum();
    let directories: HashMap<&Path, &Entry> =
        entries.iter().filter(|e| e.kind == Kind::Directory).map(|e| (e.path.as_path(), e)).collect();
    let mut layers = Vec::new();
    let create = |number: usize| Layer::create(directory.join(format!("layer-{number}")), options.compression);
    let mut layer = create(0)?;
    let (mut done, mut last) = (0, Path::new(""));
    for entry in &entries {
        tell.say(|| format!("packing {} of {} MiB", done >> 20, all >> 20))?;
        if !layer.is_empty() && layer.written() + HELD + most(entry) > options.layer_max {
            layers.push(below(layer.finish()?, options.layer_max, last)?);
            if layers.len() >= MOST {
                return Err(Error::Invalid(format!(
                    "with at most {} MiB a layer this would be more than {MOST} layers, and engines take no more than 127; \
                     choose a larger limit",
                    options.layer_max >> 20
                )));
            }
            layer = create(layers.len())?;
        }
        let more = match &entry.kind {
            Kind::File { more, .. } => &more[..],
            _ => &[],
        };
        for path in std::iter::once(&entry.path).chain(more) {
            for parent in parents(path, &layer) {
                if let Some(parent) = directories.get(parent.as_path()) {
                    layer.entry(root, parent)?;
                }
            }
        }
        if !(entry.kind == Kind::Directory && layer.has_directory(&entry.path)) {
            layer.entry(root, entry)?;
        }
        if layer.written() > options.layer_max {
            return Err(too_large(&entry.path, layer.written(), options.layer_max));
        }
        (done, last) = (done + size(entry), &entry.path);
    }
    layers.push(below(layer.finish()?, options.layer_max, last)?);
    Ok(layers)
}

/// What the limit promises, looked at once more when it is written. `last` is what went in last.
pub(super) fn below(layer: Blob, limit: u64, last: &Path) -> Result<Blob> {
    if layer.size <= limit { Ok(layer) } else { Err(too_large(last, layer.size, limit)) }
}

fn too_large(path: &Path, size: u64, limit: u64) -> Error {
    Error::Invalid(format!(
        "`/{}` does not fit into one layer: it takes {} MiB compressed, and a layer may have {} MiB; choose a larger limit",
        path.display(),
        size.div_ceil(1 << 20),
        limit >> 20
    ))
}

fn size(entry: &Entry) -> u64 {
    if let Kind::File { size, .. } = entry.kind { size } else { 0 }
}

/// What an entry takes at most, compressed, with the directories on its way.
fn most(entry: &Entry) -> u64 {
    let names = 1 + if let Kind::File { more, .. } = &entry.kind { more.len() as u64 } else { 0 };
    let depth = entry.path.components().count() as u64;
    let size = size(entry);
    size + size / 1000 + HEADERS * names * depth
}

/// The directories on the way to a path that a layer has not named yet, the outermost first.
fn parents(path: &Path, layer: &Layer) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = path
        .ancestors()
        .skip(1)
        .take_while(|p| !p.as_os_str().is_empty() && !layer.has_directory(p))
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Refuses what can't work before anything is written.
pub(super) fn check(options: &Options) -> Result<()> {
    match options.layer_max {
        limit if limit < SMALLEST_LIMIT => Err(Error::Invalid(format!(
            "a layer of at most {} bytes is too small to be of use; choose {} MiB or more",
            limit,
            SMALLEST_LIMIT >> 20
        ))),
        _ => Ok(()),
    }
}

impl Compression {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    /// Text that can't be compressed.
    fn noise(size: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..size)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("usr/share/deep");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o750)).unwrap();
        for number in 0..20_u64 {
            std::fs::write(deep.join(format!("noise-{number:02}")), noise(900_000, number)).unwrap();
            std::fs::write(deep.join(format!("zeros-{number:02}")), vec![0; 3_000_000]).unwrap();
        }
        std::fs::hard_link(deep.join("noise-00"), root.path().join("zz-again")).unwrap();
        root
    }

    fn options(mebibytes: u64) -> Options {
        Options { layer_max: mebibytes << 20, compression: Compression::Gzip }
    }

    fn names(layer: &Blob) -> Vec<(String, u32)> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(layer.source.read_from(0).unwrap()));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            std::io::copy(&mut entry.by_ref(), &mut std::io::sink()).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), entry.header().mode().unwrap())
        });
        entries.collect()
    }

    #[test]
    fn each_layer_is_below_the_limit_and_whole_in_itself() {
        let (root, out, again) = (tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let layers = write(root.path(), &Owners::Kept, &options(5), out.path(), &Teller::silent()).unwrap();
        assert!(layers.len() > 3, "{} layers", layers.len());
        let mut seen = Vec::new();
        for layer in &layers {
            assert!(layer.size <= 5 << 20, "{}", layer.size);
            let names = names(layer);
            assert_eq!(names[..3].iter().map(|name| name.0.as_str()).collect::<Vec<_>>(), ["usr", "usr/share", "usr/share/deep"]);
            assert_eq!(names[2].1, 0o750);
            seen.extend(names.into_iter().map(|name| name.0).filter(|name| name.contains("noise") || name.contains("again")));
        }
        assert_eq!(seen.len(), 21, "every file once: {seen:?}");
        assert!(names(&layers[0]).iter().any(|name| name.0 == "zz-again"), "all names of a file are in one layer");
        let second = write(root.path(), &Owners::Kept, &options(5), again.path(), &Teller::silent()).unwrap();
        let digests = |layers: &[Blob]| layers.iter().map(|layer| layer.digest.clone()).collect::<Vec<_>>();
        assert_eq!(digests(&layers), digests(&second));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_by_its_name() {
        let (root, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(root.path().join("compresses"), vec![1; 20 << 20]).unwrap();
        write(root.path(), &Owners::Kept, &options(4), out.path(), &Teller::silent()).unwrap();
        std::fs::write(root.path().join("large"), noise(6 << 20, 1)).unwrap();
        let error = write(root.path(), &Owners::Kept, &options(4), out.path(), &Teller::silent()).unwrap_err();
        assert!(matches!(&error, Error::Invalid(m) if m.contains("`/large`") && m.contains("4 MiB")), "{error}");
        assert!(check(&Options { layer_max: 1000, ..Options::default() }).is_err());
    }
}
