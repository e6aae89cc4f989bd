//! Images on disk: an OCI layout (a directory), or one tar that is a layout and can be loaded by Docker of any version.
//!
//! Both appear complete or not at all, and blobs are streamed: nothing is held in memory.

use super::blob::{Blob, Source};
use super::{Image, Teller, spec};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Larger texts are neither indexes nor manifests of ours.
const LARGEST_TEXT: u64 = 4 << 20;
const PIECE: usize = 1 << 20;

impl Image {
    /// Writes a layout into a directory: a new one, an empty one, or one that is a layout and becomes this one.
    pub(super) fn write_layout(&self, to: &Path, name: &str, tell: &Teller) -> Result<()> {
        let fail = |e: io::Error| failed(to, &e);
        let there = to.symlink_metadata().is_ok();
        if there && !to.join(spec::LAYOUT_FILE).is_file() && to.read_dir().map_err(fail)?.next().is_some() {
            return Err(Error::Invalid(format!(
                "{} has other things in it; name a directory that is empty, is an OCI layout, or does not exist",
                to.display()
            )));
        }
        let blobs = to.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).map_err(fail)?;
        let mut sent = Sent::new(self, "writing", tell);
        for blob in self.blobs() {
            let place = blobs.join(blob.hex());
            if place.metadata().is_ok_and(|data| data.len() == blob.size) {
                sent.add(blob.size)?;
                continue;
            }
            // The same file under a second name where that can be; nobody writes into it.
            if let Source::File(from) = &blob.source
                && std::fs::hard_link(from, &place).is_ok()
            {
                sent.add(blob.size)?;
                continue;
            }
            let mut half = tempfile::NamedTempFile::new_in(&blobs).map_err(fail)?;
            copy(blob, half.as_file_mut(), &mut sent, to)?;
            publish(half, &place).map_err(fail)?;
        }
        let put = |name: &str, bytes: &[u8]| {
            let mut half = tempfile::NamedTempFile::new_in(to)?;
            half.write_all(bytes)?;
            publish(half, &to.join(name))
        };
        put("index.json", &self.index(name)).map_err(fail)?;
        put(spec::LAYOUT_FILE, spec::LAYOUT.as_bytes()).map_err(fail)?;
        // What another image left.
        for path in blobs.read_dir().map_err(fail)?.flatten().map(|entry| entry.path()) {
            if !self.blobs().any(|blob| path.ends_with(blob.hex())) {
                std::fs::remove_file(path).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// Writes the tar to a new file.
    pub(super) fn write_archive(&self, to: &Path, name: &str, tell: &Teller) -> Result<()> {
        let fail = |e: io::Error| failed(to, &e);
        if to.is_dir() {
            return Err(Error::Invalid(format!("{} is a directory, not a file", to.display())));
        }
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let half = tempfile::NamedTempFile::new_in(directory).map_err(fail)?;
        self.stream(half.as_file(), name, to, tell)?;
        publish(half, to).map_err(fail)
    }

    /// The tar as a stream.
    pub(super) fn stream(&self, out: impl Write, name: &str, to: &Path, tell: &Teller) -> Result<()> {
        let fail = |e: io::Error| failed(to, &e);
        let mut tar = Builder::new(BufWriter::with_capacity(PIECE, out));
        let mut sent = Sent::new(self, "writing", tell);
        let place = |blob: &Blob| format!("blobs/sha256/{}", blob.hex());
        let docker = [spec::DockerEntry {
            config: place(&self.config),
            repo_tags: vec![name.to_owned()],
            layers: self.layers.iter().map(place).collect(),
        }];
        let docker = serde_json::to_vec(&docker).unwrap_or_default();
        for (name, bytes) in
            [(spec::LAYOUT_FILE, spec::LAYOUT.as_bytes()), ("index.json", &self.index(name)), ("manifest.json", &docker)]
        {
            tar.append(&header(name, bytes.len() as u64, EntryType::Regular), bytes).map_err(fail)?;
        }
        for directory in ["blobs/", "blobs/sha256/"] {
            tar.append(&header(directory, 0, EntryType::Directory), io::empty()).map_err(fail)?;
        }
        for blob in self.blobs() {
            let reader = blob.source.read_from(0).map_err(|e| unreadable(blob, &e))?;
            let mut counted = Counted { inner: reader, sent: &mut sent, count: 0 };
            tar.append(&header(&place(blob), blob.size, EntryType::Regular), &mut counted).map_err(fail)?;
            if counted.count != blob.size {
                return Err(unreadable(blob, &io::Error::other("it is shorter than it was")));
            }
        }
        tar.into_inner().and_then(|mut out| out.flush()).map_err(fail)
    }

    /// What an OCI layout holds, for a push. Layers are named by their digests; that they are what their names say is found out
    /// by whoever gets them.
    pub fn open(layout: &Path) -> Result<Self> {
        let read = |path: PathBuf| {
            let fail = |e: &dyn std::fmt::Display| {
                Error::Invalid(format!("{} is not an OCI layout that can be read: {}: {e}", layout.display(), path.display()))
            };
            let size = path.metadata().map_err(|e| fail(&e))?.len();
            if size > LARGEST_TEXT {
                return Err(fail(&format!("{size} bytes are too many")));
            }
            std::fs::read(&path).map_err(|e| fail(&e))
        };
        let wrong = |what: String| Error::Invalid(format!("{}: {what}", layout.display()));
        let index: spec::Index =
            serde_json::from_slice(&read(layout.join("index.json"))?).map_err(|e| wrong(format!("index.json: {e}")))?;
        let [descriptor] = &index.manifests[..] else {
            return Err(wrong(format!("it has {} images; one is wanted", index.manifests.len())));
        };
        let blob = |descriptor: &spec::Descriptor| {
            if !spec::is_digest(&descriptor.digest) {
                return Err(wrong(format!("`{}` is not a digest that is known here", descriptor.digest)));
            }
            let hex = descriptor.digest.trim_start_matches("sha256:");
            let path = layout.join("blobs/sha256").join(hex);
            match path.metadata() {
                Ok(data) if data.is_file() && data.len() == descriptor.size => Ok(Blob {
                    digest: descriptor.digest.clone(),
                    size: descriptor.size,
                    media_type: descriptor.media_type.clone(),
                    diff_id: None,
                    source: Source::File(path),
                }),
                Ok(data) => Err(wrong(format!("blob {hex} has {} bytes instead of {}", data.len(), descriptor.size))),
                Err(e) => Err(wrong(format!("blob {hex}: {e}"))),
            }
        };
        let Source::File(path) = blob(descriptor)?.source else { return Err(wrong("it has no manifest".into())) };
        let text = read(path)?;
        if spec::digest_of(&text) != descriptor.digest {
            return Err(wrong("the manifest is not what its digest says".into()));
        }
        let manifest: spec::Manifest = serde_json::from_slice(&text).map_err(|e| wrong(format!("the manifest: {e}")))?;
        Ok(Self {
            manifest: Blob::of_bytes(text, &manifest.media_type),
            config: blob(&manifest.config)?,
            layers: manifest.layers.iter().map(blob).collect::<Result<_>>()?,
            rooms: Vec::new(),
        })
    }

    fn index(&self, name: &str) -> Vec<u8> {
        let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let mut manifest = spec::Descriptor::of(&self.manifest);
        manifest.annotations = BTreeMap::from([(spec::NAME.into(), tag.into()), (spec::FULL_NAME.into(), name.into())]);
        let index = spec::Index { schema_version: 2, media_type: spec::INDEX.into(), manifests: vec![manifest] };
        serde_json::to_vec(&index).unwrap_or_default()
    }
}

/// How far it is, counted over all blobs.
struct Sent<'a> {
    what: &'static str,
    done: u64,
    all: u64,
    tell: &'a Teller,
}

impl<'a> Sent<'a> {
    fn new(image: &Image, what: &'static str, tell: &'a Teller) -> Self {
        Self { what, done: 0, all: image.size(), tell }
    }

    fn add(&mut self, count: u64) -> Result<()> {
        self.done += count;
        let (done, all) = (self.done >> 20, self.all >> 20);
        self.tell.say(|| format!("{} {done} of {all} MiB", self.what))
    }
}

struct Counted<'a, 'b, R> {
    inner: R,
    sent: &'a mut Sent<'b>,
    count: u64,
}

impl<R: Read> Read for Counted<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        self.sent.add(count as u64).map_err(io::Error::other)?;
        Ok(count)
    }
}

fn copy(blob: &Blob, to: &mut File, sent: &mut Sent<'_>, place: &Path) -> Result<()> {
    let reader = blob.source.read_from(0).map_err(|e| unreadable(blob, &e))?;
    let mut counted = Counted { inner: io::BufReader::with_capacity(PIECE, reader), sent, count: 0 };
    let count = io::copy(&mut counted, to).map_err(|e| failed(place, &e))?;
    if count == blob.size { Ok(()) } else { Err(unreadable(blob, &io::Error::other("it is shorter than it was"))) }
}

/// Gives a finished file its name, readable for everybody as other files are.
fn publish(half: tempfile::NamedTempFile, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    half.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    half.persist(to)?;
    Ok(())
}

fn header(name: &str, size: u64, kind: EntryType) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(super::MOMENT_S);
    // The names are ours, and short.
    let _ = header.set_path(name);
    header.set_cksum();
    header
}

fn failed(to: &Path, e: &io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Full(format!("the disk ran full while {} was written", to.display()))
        }
        _ => Error::Failed(format!("{} can't be written: {e}", to.display())),
    }
}

fn unreadable(blob: &Blob, e: &io::Error) -> Error {
    Error::Failed(format!("the blob {} can't be read: {e}", blob.digest))
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/oci.rs"]
pub(crate) mod fuzz;

/// Whether the bytes of every blob are what its name says.
#[cfg(test)]
pub(super) fn verify(image: &Image) {
    for blob in image.blobs() {
        assert_eq!(super::layer::sum(blob.source.read_from(0).unwrap()).unwrap(), blob.digest);
    }
}
