//! Where a disk has file systems of the ext family.

use super::source::Source;
use crate::Result;

const SECTOR: u64 = 512;
/// What partition tables may claim; real ones have 128 and a few.
const MOST_ENTRIES: u32 = 1024;
const MOST_LOGICAL: usize = 64;
/// Types of partitions in an MBR that hold others.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// The offsets of ext2, ext3 and ext4 file systems: on the bare disk, or in its partitions (GPT or MBR).
pub(crate) fn ext(source: &Source) -> Result<Vec<u64>> {
    if is_ext(source, 0)? {
        return Ok(vec![0]);
    }
    let mut starts = gpt(source)?;
    if starts.is_empty() {
        starts = mbr(source)?;
    }
    starts.sort_unstable();
    starts.dedup();
    let mut found = Vec::new();
    for start in starts {
        if start > 0 && start < source.size() && is_ext(source, start)? {
            found.push(start);
        }
    }
    Ok(found)
}

fn is_ext(source: &Source, start: u64) -> Result<bool> {
    let mut magic = [0; 2];
    source.read(&mut magic, start + 1024 + 56)?;
    Ok(magic == [0x53, 0xef])
}

fn gpt(source: &Source) -> Result<Vec<u64>> {
    let mut head = [0; 92];
    source.read(&mut head, SECTOR)?;
    if !head.starts_with(b"EFI PART") {
        return Ok(Vec::new());
    }
    let (table, count, size) = (u64_at(&head, 72), u32_at(&head, 80), u32_at(&head, 84));
    if !(128..=4096).contains(&size) {
        return Ok(Vec::new());
    }
    let mut starts = Vec::new();
    let mut entry = vec![0; size as usize];
    for index in 0..count.min(MOST_ENTRIES) {
        let offset = table.saturating_mul(SECTOR).saturating_add(u64::from(index) * u64::from(size));
        source.read(&mut entry, offset)?;
        if entry[..16] != [0; 16] {
            starts.push(u64_at(&entry, 32).saturating_mul(SECTOR));
        }
    }
    Ok(starts)
}

fn mbr(source: &Source) -> Result<Vec<u64>> {
    let mut starts = Vec::new();
    let mut chain = None;
    for (kind, start) in entries(source, 0)? {
        if EXTENDED.contains(&kind) {
            chain = Some(start);
        } else {
            starts.push(start);
        }
    }
    // Logical partitions: each table has one, and the place of the next table, counted from the first.
    let Some(first) = chain else { return Ok(starts) };
    let mut table = first;
    for _ in 0..MOST_LOGICAL {
        let mut next = None;
        for (kind, start) in entries(source, table)? {
            if EXTENDED.contains(&kind) {
                next = Some(first.saturating_add(start));
            } else {
                starts.push(table.saturating_add(start));
            }
        }
        match next {
            Some(next) if next > table => table = next,
            _ => break,
        }
    }
    Ok(starts)
}

/// Type and start of each partition in a table.
fn entries(source: &Source, table: u64) -> Result<Vec<(u8, u64)>> {
    let mut sector = [0; 512];
    source.read(&mut sector, table)?;
    if sector[510..] != [0x55, 0xaa] {
        return Ok(Vec::new());
    }
    let entries = sector[446..510].chunks_exact(16).map(|entry| (entry[4], u64::from(u32_at(entry, 8)) * SECTOR));
    Ok(entries.filter(|(kind, start)| *kind != 0 && *start != 0).collect())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}
