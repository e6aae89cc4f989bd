//! One layer: a tar stream, compressed while it is written, with both of its names (`digest` of the bytes that travel,
//! `diff_id` of what they unpack to). The same entries give the same bytes.

use super::blob::{Blob, Source};
use super::spec;
use super::tree::{Entry, Kind};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// How hard gzip tries: its own default.
const GZIP_LEVEL: u32 = 6;
/// The same for zstd: a little beyond its default, and still far quicker than gzip.
const ZSTD_LEVEL: i32 = 6;
/// Compressors get their input in pieces of one size, whoever writes.
const PIECE: usize = 256 << 10;
/// A name up to this length fits into a plain header.
const SHORT_NAME: usize = 100;

/// How the layers of a tree are packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Every registry and every Docker takes it.
    #[default]
    Gzip,
    /// Smaller and quicker; Docker 23 and newer.
    Zstd,
}

/// A layer that is being written into a file.
pub(super) struct Layer {
    tar: Builder<Sums<BufWriter<Packer>>>,
    compression: Compression,
    path: PathBuf,
    /// Directories that this layer has already: each layer names all directories on the way to its files, so that unpacking one
    /// never makes up their owner, mode or time.
    directories: HashSet<PathBuf>,
    /// Bytes that went into the compressor.
    taken: u64,
}

impl Layer {
    pub(super) fn create(path: PathBuf, compression: Compression) -> Result<Self> {
        let fail = |e: io::Error| Error::Failed(format!("{} can't be written: {e}", path.display()));
        let file = Sums::new(BufWriter::with_capacity(PIECE, File::create(&path).map_err(fail)?));
        let packer = match compression {
            Compression::Gzip => {
                Packer::Gzip(flate2::GzBuilder::new().mtime(0).write(file, flate2::Compression::new(GZIP_LEVEL)))
            }
            Compression::Zstd => Packer::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL).map_err(fail)?),
        };
        let mut tar = Builder::new(Sums::new(BufWriter::with_capacity(PIECE, packer)));
        tar.sparse(false);
        Ok(Self { tar, compression, path, directories: HashSet::new(), taken: 0 })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Compressed bytes that have come out so far. What the compressor still holds comes on top: see [`super::layers`].
    pub(super) fn written(&self) -> u64 {
        self.tar.get_ref().inner.get_ref().written()
    }

    pub(super) fn has_directory(&self, path: &Path) -> bool {
        self.directories.contains(path)
    }

    pub(super) fn entry(&mut self, root: &Path, entry: &Entry) -> Result<()> {
        let outcome = match &entry.kind {
            Kind::Directory => {
                self.directories.insert(entry.path.clone());
                self.append(entry, EntryType::Directory, &entry.path, None, 0, &mut io::empty())
            }
            Kind::Symlink { to } => self.append(entry, EntryType::Symlink, &entry.path, Some(to), 0, &mut io::empty()),
            Kind::File { .. } => return self.file(&root.join(&entry.path), entry),
        };
        outcome.map_err(|e| self.failed(&e))
    }

    /// A file, wherever it is, with all its names.
    pub(super) fn file(&mut self, from: &Path, entry: &Entry) -> Result<()> {
        let Kind::File { size, more } = &entry.kind else { return Ok(()) };
        let unreadable = |e: io::Error| Error::Failed(format!("{} can't be read: {e}", from.display()));
        let mut file = File::open(from).map_err(unreadable)?.take(*size);
        self.append(entry, EntryType::Regular, &entry.path, None, *size, &mut file).map_err(|e| self.failed(&e))?;
        if file.limit() > 0 {
            return Err(unreadable(io::Error::other("it became shorter while it was read")));
        }
        for name in more {
            self.append(entry, EntryType::Link, name, Some(&entry.path), 0, &mut io::empty()).map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }

    /// A file that is on no disk.
    pub(super) fn bytes(&mut self, entry: &Entry, bytes: &[u8]) -> Result<()> {
        self.append(entry, EntryType::Regular, &entry.path, None, bytes.len() as u64, &mut &*bytes).map_err(|e| self.failed(&e))
    }

    fn append(
        &mut self,
        entry: &Entry,
        kind: EntryType,
        path: &Path,
        link: Option<&Path>,
        size: u64,
        data: &mut dyn Read,
    ) -> io::Result<()> {
        self.taken += 512 + size;
        append(&mut self.tar, entry, kind, path, link, size, data)
    }

    fn failed(&self, e: &io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full(format!("the disk ran full while {} was written", self.path.display()))
            }
            _ => Error::Failed(format!("a layer can't be written to {}: {e}", self.path.display())),
        }
    }

    pub(super) fn finish(self) -> Result<Blob> {
        let path = self.path.clone();
        let fail = |e: io::Error| Error::Failed(format!("{} can't be written: {e}", path.display()));
        let (packer, diff_id, _) = self.tar.into_inner().map_err(fail)?.finish();
        let packer = packer.into_inner().map_err(|e| fail(e.into_error()))?;
        let file = match packer {
            Packer::Gzip(encoder) => encoder.finish(),
            Packer::Zstd(encoder) => encoder.finish(),
        };
        let (file, digest, size) = file.map_err(fail)?.finish();
        file.into_inner().map_err(|e| fail(e.into_error()))?;
        let media_type = match self.compression {
            Compression::Gzip => spec::LAYER_GZIP,
            Compression::Zstd => spec::LAYER_ZSTD,
        };
        Ok(Blob { digest, size, media_type: media_type.into(), diff_id: Some(diff_id), source: Source::File(self.path) })
    }
}

/// A layer of one file that is packed already: nothing is compressed, and nothing is copied either, because what stands around the
/// file is all that has to be known.
pub(super) fn stored(directories: &[Entry], entry: &Entry, file: PathBuf) -> Result<Blob> {
    let fail = |e: io::Error| Error::Failed(format!("{} can't be read: {e}", file.display()));
    let length = file.metadata().map_err(fail)?.len();
    let mut tar = Builder::new(Vec::new());
    for directory in directories {
        append(&mut tar, directory, EntryType::Directory, &directory.path, None, 0, &mut io::empty()).map_err(fail)?;
    }
    // The header alone, with the size of what follows.
    headers(&mut tar, entry, &entry.path, None).map_err(fail)?;
    let header = header(entry, EntryType::Regular, &entry.path, None, length);
    tar.get_mut().extend_from_slice(header.as_bytes());
    let before = std::mem::take(tar.get_mut());
    let padding = (512 - length % 512) % 512;
    let after = vec![0; padding as usize + END];
    let size = before.len() as u64 + length + after.len() as u64;
    let source = Source::Around { before, file, length, after };
    let digest = sum(source.read_from(0).map_err(|e| Error::Failed(format!("a part of the disk can't be read: {e}")))?)?;
    Ok(Blob { diff_id: Some(digest.clone()), digest, size, media_type: spec::LAYER_TAR.into(), source })
}

/// The end of a tar: two empty blocks.
const END: usize = 1024;
/// What a layer of one stored file takes besides the file: directories, headers, padding, end.
pub(super) const STORED_OVERHEAD: u64 = 8 << 10;

fn append<W: Write>(
    tar: &mut Builder<W>,
    entry: &Entry,
    kind: EntryType,
    path: &Path,
    link: Option<&Path>,
    size: u64,
    data: &mut dyn Read,
) -> io::Result<()> {
    headers(tar, entry, path, link)?;
    tar.append(&header(entry, kind, path, link, size), data)
}

/// What does not fit into a plain header, as PAX records before it.
fn headers<W: Write>(tar: &mut Builder<W>, entry: &Entry, path: &Path, link: Option<&Path>) -> io::Result<()> {
    let names: Vec<(String, &[u8])> =
        entry.attributes.iter().map(|(name, value)| (format!("SCHILY.xattr.{name}"), &value[..])).collect();
    let mut records: Vec<(&str, &[u8])> = Vec::new();
    if bytes(path).len() >= SHORT_NAME {
        records.push(("path", bytes(path)));
    }
    if let Some(link) = link.map(bytes).filter(|link| link.len() >= SHORT_NAME) {
        records.push(("linkpath", link));
    }
    // A link's attributes are those of the file that it leads to.
    if link.is_none() {
        records.extend(names.iter().map(|(name, value)| (name.as_str(), *value)));
    }
    if records.is_empty() { Ok(()) } else { tar.append_pax_extensions(records) }
}

fn header(entry: &Entry, kind: EntryType, path: &Path, link: Option<&Path>, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(entry.time);
    if let Some(plain) = header.as_ustar_mut() {
        cut(&mut plain.name, bytes(path));
        cut(&mut plain.linkname, link.map(bytes).unwrap_or_default());
    }
    header.set_cksum();
    header
}

fn cut(field: &mut [u8], value: &[u8]) {
    let length = value.len().min(field.len() - 1);
    field[..length].copy_from_slice(&value[..length]);
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

enum Packer {
    Gzip(flate2::write::GzEncoder<Sums<BufWriter<File>>>),
    Zstd(zstd::Encoder<'static, Sums<BufWriter<File>>>),
}

impl Packer {
    fn written(&self) -> u64 {
        match self {
            Self::Gzip(encoder) => encoder.get_ref().count,
            Self::Zstd(encoder) => encoder.get_ref().count,
        }
    }
}

impl Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    /// A flush in the middle would end a block and make the result larger.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts and names what passes through.
struct Sums<W> {
    inner: W,
    hash: Sha256,
    count: u64,
}

impl<W> Sums<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), count: 0 }
    }

    fn finish(self) -> (W, String, u64) {
        (self.inner, spec::digest(&self.hash.finalize()), self.count)
    }
}

impl<W: Write> Write for Sums<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The digest of everything that a reader gives.
pub(super) fn sum(mut from: impl Read) -> Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(spec::digest(&hash.finalize())),
            Ok(count) => hash.update(&buffer[..count]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::Failed(format!("a layer can't be read: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            path: path.into(),
            kind: Kind::Directory,
            mode: 0o644,
            uid: 1000,
            gid: 1000,
            time: 1_700_000_000,
            attributes: vec![("user.note".into(), b"a b".to_vec())],
        }
    }

    /// Path, content, extended attributes.
    type Unpacked = (String, Vec<u8>, Vec<(String, Vec<u8>)>);

    fn unpacked(blob: &Blob) -> Vec<Unpacked> {
        let bytes = blob.source.read_from(0).unwrap();
        let plain: Box<dyn Read> = match blob.media_type.as_str() {
            spec::LAYER_GZIP => Box::new(flate2::read::GzDecoder::new(bytes)),
            spec::LAYER_ZSTD => Box::new(zstd::Decoder::new(bytes).unwrap()),
            _ => Box::new(bytes),
        };
        let mut archive = tar::Archive::new(plain);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let pax = entry.pax_extensions().unwrap().into_iter().flatten().map(|record| {
                let record = record.unwrap();
                (record.key().unwrap().to_owned(), record.value_bytes().to_vec())
            });
            let pax = pax.collect();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            found.push((name, content, pax));
        }
        found
    }

    #[test]
    fn long_names_and_attributes_survive_in_every_form() {
        let room = tempfile::tempdir().unwrap();
        let long = format!("{}/end", "directory/".repeat(30));
        for compression in [Compression::Gzip, Compression::Zstd] {
            let mut layer = Layer::create(room.path().join("layer"), compression).unwrap();
            layer.bytes(&entry("short"), b"one").unwrap();
            layer.bytes(&entry(&long), b"two").unwrap();
            let blob = layer.finish().unwrap();
            let found = unpacked(&blob);
            assert_eq!(found[0].0, "short");
            assert_eq!(found[0].2, [("SCHILY.xattr.user.note".to_owned(), b"a b".to_vec())]);
            assert_eq!((found[1].0.as_str(), &found[1].1[..]), (long.as_str(), &b"two"[..]));
            assert_eq!(blob.size, room.path().join("layer").metadata().unwrap().len());
            assert_eq!(blob.digest, sum(blob.source.read_from(0).unwrap()).unwrap());
        }
    }

    #[test]
    fn a_stored_layer_is_a_tar_around_the_file_and_can_be_read_from_anywhere() {
        let room = tempfile::tempdir().unwrap();
        for size in [0, 1, 511, 512, 513, 100_000] {
            let file = room.path().join("part");
            let content: Vec<u8> = (0..size).map(|n| (n * 7 % 251) as u8).collect();
            std::fs::write(&file, &content).unwrap();
            let blob = stored(&[entry("parts")], &entry("parts/one"), file).unwrap();
            let found = unpacked(&blob);
            assert_eq!(found.iter().map(|entry| entry.0.as_str()).collect::<Vec<_>>(), ["parts", "parts/one"]);
            assert_eq!(found[1].1, content);
            let mut whole = Vec::new();
            blob.source.read_from(0).unwrap().read_to_end(&mut whole).unwrap();
            assert_eq!(whole.len() as u64, blob.size);
            assert!(blob.size - size <= STORED_OVERHEAD);
            for offset in [0, 1, 512, 1500, 2048, blob.size / 2, blob.size - 1, blob.size] {
                let mut rest = Vec::new();
                blob.source.read_from(offset).unwrap().read_to_end(&mut rest).unwrap();
                assert_eq!(rest, &whole[offset as usize..], "{size} from {offset}");
            }
        }
    }
}
