//! Zip archives: which disk is inside, and where. Names inside are compared, never used as paths.

use super::remote::Remote;
use crate::{Error, Result};
use std::io::{self, Read};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
/// The end's record and the longest comment behind it, and the locator before it.
const TAIL: u64 = 22 + 65_535 + 20;
/// Of the list of files; that of an archive with one disk has a few hundred bytes.
const LARGEST_LIST: u64 = 16 << 20;
/// Sizes that are told elsewhere.
const ELSEWHERE: u64 = 0xffff_ffff;
const DISKS: [&str; 7] = ["qcow2", "img", "raw", "vmdk", "vdi", "vhdx", "qcow"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) method: Method,
    /// Of the file, and packed. Not known of entries that are read as they come and tell it afterwards.
    pub(super) size: Option<u64>,
    pub(super) packed: Option<u64>,
    pub(super) crc: Option<u32>,
    /// Of its own header.
    offset: u64,
    encrypted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflate,
    Zstd,
    Other(u16),
}

/// Finds the disk in an archive by the list at its end. Returns it, and where its bytes begin.
pub(super) async fn find(remote: &Remote, size: u64, wanted: Option<&str>) -> Result<(Entry, u64)> {
    let part = async |from, length| match remote.part(from, length).await {
        Some(part) => part,
        None => Err(Error::Failed("the archive can only be read as a whole".into())),
    };
    let wrong = |why: &str| Error::Invalid(format!("{}: {why}", remote.url));
    let tail_at = size.saturating_sub(TAIL);
    let tail = part(tail_at, size - tail_at).await?;
    let end = end(&tail).ok_or_else(|| wrong("it is a zip archive without an end: it is cut off"))?;
    let (list_at, list_size) = match end {
        Place::List { at, size } => (at, size),
        Place::Record64 { at } => {
            if at.checked_add(56).is_none_or(|end| end > size) {
                return Err(wrong("its list of files lies outside of it"));
            }
            let record = part(at, 56).await?;
            if u32_at(&record, 0) != END_64 {
                return Err(wrong("its list of files is damaged"));
            }
            (u64_at(&record, 48), u64_at(&record, 40))
        }
    };
    if list_size > LARGEST_LIST || list_at.checked_add(list_size).is_none_or(|end| end > size) {
        return Err(wrong("its list of files lies outside of it: it is cut off or damaged"));
    }
    if list_size == 0 {
        return Err(wrong("there is no file in it"));
    }
    let entries = list(&part(list_at, list_size).await?).ok_or_else(|| wrong("its list of files is damaged"))?;
    let entry = choose(entries, wanted).map_err(|why| wrong(&why))?;
    if entry.offset.checked_add(30).is_none_or(|end| end > size) {
        return Err(wrong("a file of it lies outside of it"));
    }
    let header = part(entry.offset, 30).await?;
    if u32_at(&header, 0) != LOCAL {
        return Err(wrong("the header of a file in it is damaged"));
    }
    let data = entry.offset + 30 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
    if entry.packed.and_then(|packed| data.checked_add(packed)).is_none_or(|end| end > size) {
        return Err(wrong("a file of it lies outside of it: it is cut off or damaged"));
    }
    Ok((entry, data))
}

enum Place {
    List { at: u64, size: u64 },
    Record64 { at: u64 },
}

/// Where the list of files is, from the last bytes of an archive.
fn end(tail: &[u8]) -> Option<Place> {
    let at = (0..tail.len().checked_sub(21)?)
        .rev()
        .find(|at| u32_at(tail, *at) == END && at + 22 + usize::from(u16_at(tail, at + 20)) <= tail.len())?;
    let (size, list) = (u64::from(u32_at(tail, at + 12)), u64::from(u32_at(tail, at + 16)));
    if size != ELSEWHERE && list != ELSEWHERE {
        return Some(Place::List { at: list, size });
    }
    let locator = at.checked_sub(20)?;
    (u32_at(tail, locator) == LOCATOR_64).then(|| Place::Record64 { at: u64_at(tail, locator + 8) })
}

fn list(mut bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while bytes.len() >= 46 && u32_at(bytes, 0) == CENTRAL {
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(bytes, at)));
        let (packed, size, offset) = (u32_at(bytes, 20), u32_at(bytes, 24), u32_at(bytes, 42));
        let [packed, size, offset] = [packed, size, offset].map(u64::from);
        let fields = bytes.get(46 + name..46 + name + extra)?;
        let [size, packed, offset] = wide(fields, [size, packed, offset]);
        entries.push(Entry {
            name: String::from_utf8_lossy(bytes.get(46..46 + name)?).into_owned(),
            method: Method::of(u16_at(bytes, 10)),
            size: Some(size),
            packed: Some(packed),
            crc: Some(u32_at(bytes, 16)),
            offset,
            encrypted: u16_at(bytes, 8) & 1 != 0,
        });
        bytes = bytes.get(46 + name + extra + comment..)?;
    }
    Some(entries)
}

/// The values that did not fit are in an extra field, in this order.
fn wide<const N: usize>(mut fields: &[u8], mut values: [u64; N]) -> [u64; N] {
    while fields.len() >= 4 {
        let (kind, length) = (u16_at(fields, 0), usize::from(u16_at(fields, 2)));
        let Some(data) = fields.get(4..4 + length) else { break };
        if kind == 1 {
            let mut at = 0;
            for value in values.iter_mut().filter(|value| **value == ELSEWHERE) {
                if data.len() >= at + 8 {
                    *value = u64_at(data, at);
                    at += 8;
                }
            }
        }
        fields = &fields[4 + length..];
    }
    values
}

fn choose(entries: Vec<Entry>, wanted: Option<&str>) -> Result<Entry, String> {
    let files: Vec<Entry> = entries.into_iter().filter(|entry| !entry.name.ends_with('/')).collect();
    let names = files.iter().map(|entry| format!("{:?}", entry.name)).take(20).collect::<Vec<_>>().join(", ");
    let mut fitting: Vec<Entry> = match wanted {
        Some(wanted) => files.into_iter().filter(|entry| entry.name == wanted).collect(),
        None if files.len() == 1 => files,
        None => files.into_iter().filter(|entry| is_disk(&entry.name)).collect(),
    };
    match (fitting.len(), fitting.pop()) {
        (1, Some(entry)) => entry.usable(),
        (0, _) => Err(format!("no file in it looks like a disk; there are: {names}")),
        _ => Err(format!("there are several disks in it, and --entry chooses one: {names}")),
    }
}

fn is_disk(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    // What macOS puts beside files.
    !name.starts_with("__MACOSX/") && ending.is_some_and(|ending| DISKS.contains(&ending.as_str()))
}

impl Entry {
    fn usable(self) -> Result<Self, String> {
        if self.encrypted {
            return Err(format!("{:?} in it is encrypted", self.name));
        }
        match self.method {
            Method::Other(number) => Err(format!("{:?} in it is packed in a way that is not known ({number})", self.name)),
            Method::Stored if self.packed != self.size => Err(format!("{:?} in it tells two sizes", self.name)),
            _ => Ok(self),
        }
    }
}

impl Method {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Stored,
            8 => Self::Deflate,
            93 => Self::Zstd,
            other => Self::Other(other),
        }
    }
}

/// Reads an archive from its beginning up to the bytes of its disk. Other files are passed over.
pub(super) fn stream_to(reader: &mut impl io::BufRead, wanted: Option<&str>) -> io::Result<Entry> {
    let mut names = Vec::new();
    loop {
        let mut header = [0; 30];
        reader.read_exact(&mut header).map_err(cut)?;
        match u32_at(&header, 0) {
            LOCAL => {}
            CENTRAL | END | END_64 => {
                let names = names.join(", ");
                return Err(wrong(&format!("no file in it looks like a disk; there are: {names}")));
            }
            _ => return Err(wrong("the header of a file in it is damaged")),
        }
        let (flags, name, extra) = (u16_at(&header, 6), u16_at(&header, 26), u16_at(&header, 28));
        let mut rest = vec![0; usize::from(name) + usize::from(extra)];
        reader.read_exact(&mut rest).map_err(cut)?;
        let (name, extra) = rest.split_at(name.into());
        let sizes = [u32_at(&header, 22), u32_at(&header, 18)].map(u64::from);
        let [size, packed] = wide(extra, sizes);
        // Told afterwards, where the sizes were not known beforehand.
        let later = flags & 8 != 0;
        let known = |value| (!later).then_some(value);
        let entry = Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: Method::of(u16_at(&header, 8)),
            size: known(size),
            packed: known(packed),
            crc: (!later).then(|| u32_at(&header, 14)),
            offset: 0,
            encrypted: flags & 1 != 0,
        };
        let is_it = wanted.map_or_else(|| is_disk(&entry.name), |wanted| wanted == entry.name);
        if is_it {
            let entry = entry.usable().map_err(|why| wrong(&why))?;
            if later && entry.method == Method::Stored {
                return Err(wrong("its disk is stored without a size: it can only be read from a server that sends parts"));
            }
            return Ok(entry);
        }
        names.push(format!("{:?}", entry.name));
        if names.len() > 20 {
            return Err(wrong("there are many files in it, and the first ones are no disks"));
        }
        pass(reader, &entry, later)?;
    }
}

/// Reads over a file that is not wanted.
fn pass(reader: &mut impl io::BufRead, entry: &Entry, later: bool) -> io::Result<()> {
    match (entry.packed, entry.method) {
        (Some(packed), _) if !later => {
            let passed = io::copy(&mut reader.take(packed), &mut io::sink())?;
            if passed == packed { Ok(()) } else { Err(cut(io::ErrorKind::UnexpectedEof.into())) }
        }
        (_, Method::Deflate) => {
            let size = io::copy(&mut flate2::bufread::DeflateDecoder::new(&mut *reader), &mut io::sink())?;
            descriptor(reader, size).map(drop)
        }
        _ => Err(wrong("a file before its disk has no size: it can only be read from a server that sends parts")),
    }
}

/// What is told behind a file: its checksum. With or without a mark, with short or long sizes.
pub(super) fn descriptor(reader: &mut impl Read, size: u64) -> io::Result<u32> {
    let mut word = [0; 4];
    reader.read_exact(&mut word).map_err(cut)?;
    let marked = u32::from_le_bytes(word) == DESCRIPTOR;
    if marked {
        reader.read_exact(&mut word).map_err(cut)?;
    }
    let crc = u32::from_le_bytes(word);
    // Both sizes are short, or both are long: the second one tells, because the first half of a long pair is the packed size.
    let mut sizes = [0; 8];
    reader.read_exact(&mut sizes).map_err(cut)?;
    if u64::from(u32_at(&sizes, 4)) != size {
        reader.read_exact(&mut sizes).map_err(cut)?;
        if u64_at(&sizes, 0) != size {
            return Err(wrong("the size of a file in it is not what it tells"));
        }
    }
    Ok(crc)
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn cut(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::UnexpectedEof { wrong("the archive is cut off") } else { e }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/src/zip.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lists_are_no_panic() {
        let mut state = 7u32;
        for length in 0..400 {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let _ = end(&bytes);
            let marked: Vec<u8> = [&CENTRAL.to_le_bytes(), bytes.as_slice()].concat();
            let _ = list(&marked);
            let marked: Vec<u8> = [&LOCAL.to_le_bytes(), bytes.as_slice()].concat();
            let _ = stream_to(&mut marked.as_slice(), None);
        }
    }

    #[test]
    fn disks_are_known_by_name() {
        assert!(is_disk("Ubuntu.QCOW2") && is_disk("../../etc/disk.img"));
        assert!(!is_disk("README.txt") && !is_disk("qcow2") && !is_disk("__MACOSX/._Ubuntu.qcow2"));
    }
}
