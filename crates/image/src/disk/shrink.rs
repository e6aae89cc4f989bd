//! A disk as small as it gets: one qcow2 file with zstd, without zeros and, if wanted, without what its file systems
//! don't use.

use super::chain::{args_of, check_safe};
use super::source::Source;
use super::{Chain, Meter, Unfinished, absent, free, home, join, partitions, room, split, tools};
use crate::{Error, Result};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shrunk {
    /// What the files take on this machine's disk.
    pub before: u64,
    pub after: u64,
    /// What could not be done, and why.
    pub notes: Vec<String>,
}

/// Writes the disk `input` as `output`. With `free_space`, blocks that ext file systems inside do not use are left out too; the
/// input itself is never written.
pub fn shrink(input: &Path, output: &Path, free_space: bool, meter: &Meter) -> Result<Shrunk> {
    absent(output)?;
    let links = check_safe(input)?;
    let before = links.iter().filter_map(|link| link.file.metadata().ok()).map(|data| data.blocks() * 512).sum();
    let mut notes = Vec::new();
    if links.iter().all(|link| link.format.native()) {
        notes = native(input, links, output, free_space, meter)?;
    } else {
        if free_space {
            notes.push("free space was not looked for: shrink the result once more for that".into());
        }
        meter.begin("converting by qemu-img", 0);
        let guard = Unfinished::beside(output, "partial")?;
        let target = guard.path().to_string_lossy().into_owned();
        let from = args_of(&links)?.filename();
        let args = ["convert", "-c", "-O", "qcow2", "-o", "compression_type=zstd", &from, &target];
        let output_of = tools::run("qemu-img", &args, meter)?;
        if output_of.code != Some(0) {
            return Err(Error::Failed(format!("qemu-img convert failed: {}", output_of.text)));
        }
        guard.finish(output)?;
    }
    let after = output.metadata().map_or(0, |data| data.blocks() * 512);
    Ok(Shrunk { before, after, notes })
}

fn native(input: &Path, links: Chain, output: &Path, free_space: bool, meter: &Meter) -> Result<Vec<String>> {
    let source = Source::of(links)?;
    let starts = if free_space { partitions::ext(&source)? } else { Vec::new() };
    if starts.is_empty() {
        write(&source, input, output, meter)?;
        let note = "there is no ext file system on it whose free space could be left out".to_owned();
        return Ok(if free_space { vec![note] } else { Vec::new() });
    }
    match free::hide(check_safe(input)?, source.size(), output, &starts, meter) {
        Ok((chain, _overlay, notes)) => {
            write(&Source::of(chain)?, input, output, meter)?;
            Ok(notes)
        }
        Err(e) => {
            meter.check()?;
            write(&source, input, output, meter)?;
            Ok(vec![format!("free space was kept, zeros were not: {e}")])
        }
    }
}

fn write(source: &Source, input: &Path, output: &Path, meter: &Meter) -> Result<()> {
    room(home(output), split::estimate(source, input, meter)?)?;
    meter.begin("writing", source.size());
    join::qcow2(source, output, meter)
}
