//! One file out of a split disk.

use super::chain::{Format, check_safe};
use super::pipeline;
use super::qcow2::writer::{CLUSTER, Writer};
use super::source::{Source, is_zero};
use super::split::{Manifest, digest};
use super::{Meter, Unfinished, absent, at, home, invalid, room};
use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Puts the split disk in `directory` together as `output`: raw, or qcow2 with zstd. The parts' digests are checked first.
pub fn join(directory: &Path, output: &Path, format: Format, meter: &Meter) -> Result<()> {
    absent(output)?;
    let manifest = Manifest::read(directory)?;
    check(directory, &manifest, meter)?;
    let links = check_safe(&manifest.open_path(directory))?;
    let names = links.iter().rev().map(|link| link.path.file_name().unwrap_or_default().to_string_lossy());
    if !names.eq(manifest.parts.iter().map(|part| part.file.as_str())) {
        return Err(invalid(directory, "its parts are chained in another way than the manifest says"));
    }
    let source = Source::of(links)?;
    if source.size() != manifest.virtual_size {
        return Err(invalid(directory, "the manifest's size is not that of the disk"));
    }
    let needed = match format {
        Format::Qcow2 => manifest.size(),
        Format::Raw => data(&source, meter)?,
        other => return Err(Error::Invalid(format!("{} is not written here: raw and qcow2 are", other.driver()))),
    };
    room(home(output), needed)?;
    meter.begin("writing", source.size());
    if format == Format::Raw { raw(&source, output, meter) } else { qcow2(&source, output, meter) }
}

/// Bytes of the disk that are stored.
fn data(source: &Source, meter: &Meter) -> Result<u64> {
    let (mut clusters, mut position) = (0, 0);
    while let Some(found) = if position < source.size() { source.next_data(position)? } else { None } {
        meter.check()?;
        clusters += 1;
        position = (found / CLUSTER + 1) * CLUSTER;
    }
    Ok(clusters * CLUSTER)
}

/// Parts are there, whole and unchanged.
fn check(directory: &Path, manifest: &Manifest, meter: &Meter) -> Result<()> {
    meter.begin("checking parts", manifest.size());
    for part in &manifest.parts {
        let path = directory.join(&part.file);
        let length = path.metadata().map_err(|e| at(&path, &e))?.len();
        if length != part.size {
            return Err(invalid(&path, &format!("it has {length} bytes, and the manifest says {}", part.size)));
        }
    }
    for part in &manifest.parts {
        let path = directory.join(&part.file);
        let file = Counted(File::open(&path).map_err(|e| at(&path, &e))?, meter);
        let found = digest(file).map_err(|e| at(&path, &e))?;
        meter.check()?;
        if found != part.sha256 {
            return Err(invalid(&path, "its digest is not that of the manifest: it was changed or damaged"));
        }
    }
    Ok(())
}

/// Counts what is read, and ends when the job is stopped.
struct Counted<'a>(File, &'a Meter);

impl std::io::Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.1.check().map_err(std::io::Error::other)?;
        let read = self.0.read(buffer)?;
        self.1.add(read as u64);
        Ok(read)
    }
}

/// Everything that is not zero, into one compressed file.
pub(crate) fn qcow2(source: &Source, output: &Path, meter: &Meter) -> Result<()> {
    let guard = Unfinished::beside(output, "partial")?;
    let mut writer = Writer::new(guard.create()?, source.size(), None);
    pipeline::pack(source, output, meter, |cluster, packed| writer.add(cluster, &packed).map_err(|e| at(output, &e)))?;
    writer.finish().map_err(|e| at(output, &e))?;
    guard.finish(output)
}

fn raw(source: &Source, output: &Path, meter: &Meter) -> Result<()> {
    let guard = Unfinished::beside(output, "partial")?;
    let file = guard.create()?;
    let size = source.size();
    file.set_len(size).map_err(|e| at(output, &e))?;
    let make = || {
        Ok(|cluster: u64| {
            let length = (size - cluster * CLUSTER).min(CLUSTER);
            let mut buffer = vec![0; length as usize];
            source.read(&mut buffer, cluster * CLUSTER)?;
            Ok((!is_zero(&buffer)).then_some(buffer))
        })
    };
    pipeline::run(
        size,
        meter,
        |from| source.next_data(from),
        make,
        |cluster, data| {
            file.write_all_at(&data, cluster * CLUSTER).map_err(|e| at(output, &e))?;
            Ok(true)
        },
    )?;
    file.sync_data().map_err(|e| at(output, &e))?;
    guard.finish(output)
}
