//! A disk as a chain of compressed qcow2 files, each below a limit. Each part holds a stretch of the disk and has the part
//! before it as its backing file, by a name without a directory: QEMU opens the last one, wherever they all lie.

use super::pipeline::{self, Packer};
use super::qcow2::writer::{CLUSTER, Writer};
use super::source::Source;
use super::{Meter, Unfinished, at, chain, invalid, room};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::Digest;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The file beside the parts that tells what they are. It is written last: where it is, all parts are.
pub const MANIFEST: &str = "manifest.json";
/// Of the manifest's form.
const VERSION: u32 = 1;
/// A manifest is never larger: 128 parts of 200 bytes each are a tenth of it.
const LARGEST_MANIFEST: u64 = 1 << 20;
/// One of 64 clusters is compressed beforehand, to know how large the whole becomes.
fn in_sample(number: u64) -> bool {
    // Scattered, because disks have patterns.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58 == 0
}

/// What a split disk consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    /// What the guest sees.
    pub virtual_size: u64,
    /// No part is larger.
    pub max_part_size: u64,
    /// The part that QEMU opens.
    pub open: String,
    /// In the order of the chain.
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub file: String,
    pub size: u64,
    pub sha256: String,
    /// The stretch of the disk that it holds.
    pub from: u64,
    pub to: u64,
}

impl Manifest {
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(MANIFEST);
        let mut text = String::new();
        let file = std::fs::File::open(&path).map_err(|_| {
            invalid(directory, &format!("there is no {MANIFEST} in it, so it is no split disk, or one that was not finished"))
        })?;
        file.take(LARGEST_MANIFEST).read_to_string(&mut text).map_err(|e| at(&path, &e))?;
        let manifest: Self = serde_json::from_str(&text).map_err(|e| invalid(&path, &format!("it can't be read: {e}")))?;
        let plain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', ':', '\0']);
        if manifest.version != VERSION {
            return Err(invalid(&path, &format!("its version is {}, and {VERSION} is known", manifest.version)));
        }
        if manifest.parts.is_empty() || !manifest.parts.iter().all(|part| plain(&part.file)) || !plain(&manifest.open) {
            return Err(invalid(&path, "the names of its parts are no names"));
        }
        Ok(manifest)
    }

    /// The file that QEMU opens.
    pub fn open_path(&self, directory: &Path) -> PathBuf {
        directory.join(&self.open)
    }

    /// All files together.
    pub fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.size).sum()
    }
}

/// Cuts the disk `input` into parts of at most `max` bytes in `directory`, which is made if need be.
pub fn split(input: &Path, directory: &Path, max: u64, meter: &Meter) -> Result<Manifest> {
    let source = Source::open(input)?;
    let size = source.size();
    if max < Writer::least(size) + 2 * CLUSTER {
        let least = (Writer::least(size) + 2 * CLUSTER) >> 10;
        return Err(Error::Invalid(format!("parts of {} KiB are too small for this disk; {least} KiB are the least", max >> 10)));
    }
    let made = !directory.exists();
    std::fs::create_dir_all(directory).map_err(|e| at(directory, &e))?;
    let result = into(&source, input, directory, max, meter);
    if result.is_err() && made {
        // Only if it is empty, as it should be.
        let _ = std::fs::remove_dir(directory);
    }
    result
}

fn into(source: &Source, input: &Path, directory: &Path, max: u64, meter: &Meter) -> Result<Manifest> {
    super::absent(&directory.join(MANIFEST))?;
    remove_remains(directory);
    let expected = estimate(source, input, meter)?;
    room(directory, expected)?;
    let count = expected.div_ceil(max).max(1);
    if count > chain::LONGEST_CHAIN as u64 {
        return Err(Error::Invalid(format!(
            "it would become {count} parts, and {} are the most that can be chained; choose larger parts",
            chain::LONGEST_CHAIN
        )));
    }
    let mut parts = Parts { directory, size: source.size(), max, even: expected.div_ceil(count), count, ..Parts::new(directory) };
    meter.begin("writing parts", source.size());
    pipeline::pack(source, input, meter, |cluster, packed| {
        if parts.full(packed.len()) {
            parts.close(cluster * CLUSTER)?;
        }
        let (writer, guard) = parts.open()?;
        writer.add(cluster, &packed).map_err(|e| at(guard.path(), &e))
    })?;
    parts.open()?;
    parts.close(source.size())?;
    parts.finish()
}

/// What a killed one left.
fn remove_remains(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".part-") && name.ends_with(".qcow2.partial") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// About how large a disk becomes, from a sample.
pub(crate) fn estimate(source: &Source, input: &Path, meter: &Meter) -> Result<u64> {
    meter.begin("looking for data", source.size());
    let (mut clusters, mut sampled, mut packed, mut position) = (0u64, 0u64, 0u64, 0u64);
    let mut packer = Packer::new(input)?;
    while let Some(found) = if position < source.size() { source.next_data(position)? } else { None } {
        meter.check()?;
        meter.reach(found);
        if in_sample(clusters) {
            sampled += 1;
            packed += packer.pack(source, found / CLUSTER)?.map_or(0, |packed| packed.len());
        }
        clusters += 1;
        position = (found / CLUSTER + 1) * CLUSTER;
    }
    let data = (packed as f64 / sampled.max(1) as f64 * clusters as f64) as u64;
    // A hundredth for tables, and what each file begins with.
    Ok(data + data / 100 + Writer::least(source.size()))
}

/// The parts that are being made.
struct Parts<'a> {
    directory: &'a Path,
    size: u64,
    max: u64,
    /// What each part has if all are alike, and how many there are then.
    even: u64,
    count: u64,
    now: Option<(Writer, Unfinished)>,
    from: u64,
    done: Vec<(Unfinished, Part)>,
    /// The digest of the part that was finished last.
    digest: Option<JoinHandle<Result<String>>>,
}

impl<'a> Parts<'a> {
    fn new(directory: &'a Path) -> Self {
        Self { directory, size: 0, max: 0, even: 0, count: 0, now: None, from: 0, done: Vec::new(), digest: None }
    }

    fn full(&self, more: u64) -> bool {
        let Some((writer, _)) = &self.now else { return false };
        let length = writer.length_with(more);
        length > self.max || (length > self.even && (self.done.len() as u64) + 1 < self.count)
    }

    fn open(&mut self) -> Result<(&mut Writer, &Unfinished)> {
        if self.now.is_none() {
            if self.done.len() == chain::LONGEST_CHAIN {
                let most = chain::LONGEST_CHAIN;
                return Err(Error::Invalid(format!("it becomes more than {most} parts; choose larger ones")));
            }
            let guard = Unfinished::beside(&self.directory.join(name(self.done.len())), "partial")?;
            let backing = self.done.len().checked_sub(1).map(name);
            self.now = Some((Writer::new(guard.create()?, self.size, backing), guard));
        }
        match &mut self.now {
            Some((writer, guard)) => Ok((writer, guard)),
            None => Err(Error::Failed("a part could not be begun".into())),
        }
    }

    fn close(&mut self, to: u64) -> Result<()> {
        let Some((writer, guard)) = self.now.take() else { return Ok(()) };
        let (mut file, size) = writer.finish().map_err(|e| at(guard.path(), &e))?;
        if size > self.max {
            return Err(Error::Failed(format!("{} has {size} bytes, which is beyond the limit", guard.path().display())));
        }
        self.take_digest()?;
        let path = guard.path().to_path_buf();
        self.digest = Some(std::thread::spawn(move || {
            std::io::Seek::rewind(&mut file).map_err(|e| at(&path, &e))?;
            digest(file).map_err(|e| at(&path, &e))
        }));
        let part = Part { file: name(self.done.len()), size, sha256: String::new(), from: self.from, to };
        self.done.push((guard, part));
        self.from = to;
        Ok(())
    }

    fn take_digest(&mut self) -> Result<()> {
        if let (Some(digest), Some((_, part))) = (self.digest.take(), self.done.last_mut()) {
            part.sha256 = digest.join().map_err(|_| Error::Failed("a digest could not be made".into()))??;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Manifest> {
        self.take_digest()?;
        let (guards, parts): (Vec<_>, Vec<_>) = self.done.into_iter().unzip();
        let open = parts.last().map(|part| part.file.clone()).unwrap_or_default();
        let manifest = Manifest { version: VERSION, virtual_size: self.size, max_part_size: self.max, open, parts };
        let text = serde_json::to_string_pretty(&manifest).map_err(|e| Error::Failed(e.to_string()))? + "\n";
        for (guard, part) in guards.into_iter().zip(&manifest.parts) {
            guard.finish(&self.directory.join(&part.file))?;
        }
        let path = self.directory.join(MANIFEST);
        let guard = Unfinished::beside(&path, "partial")?;
        std::fs::write(guard.path(), text).map_err(|e| at(&path, &e))?;
        guard.finish(&path)?;
        Ok(manifest)
    }
}

fn name(index: usize) -> String {
    format!("part-{index:03}.qcow2")
}

/// SHA-256 of what is left to read, in hex.
pub(crate) fn digest(mut file: impl Read) -> std::io::Result<String> {
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(length) => hash.update(&buffer[..length]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
