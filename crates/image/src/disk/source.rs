//! A disk as the guest sees it: bytes and holes, whatever files and formats are behind.

use super::chain::{Format, Link};
use super::qcow2::reader::{Place, Reader};
use super::{at, invalid};
use crate::Result;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// QEMU counts disks in sectors.
const SECTOR: u64 = 512;

pub(crate) struct Source {
    /// The file that is opened first, then what is behind it.
    layers: Vec<Layer>,
    size: u64,
}

struct Layer {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Raw { file: File, length: u64 },
    Qcow2(Box<Reader>),
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::of(super::chain::check_safe(path)?)
    }

    pub(crate) fn of(links: Vec<Link>) -> Result<Self> {
        let mut layers = Vec::new();
        for link in links {
            let kind = match (link.format, link.header) {
                (Format::Qcow2, Some(header)) => {
                    Kind::Qcow2(Box::new(Reader::open(link.file, header).map_err(|e| at(&link.path, &e))?))
                }
                (Format::Raw, _) => {
                    let length = link.file.metadata().map_err(|e| at(&link.path, &e))?.len();
                    Kind::Raw { file: link.file, length }
                }
                (other, _) => {
                    let name = other.driver();
                    let why = format!("it is {name}, which is not read here; hotdesk disk shrink makes a qcow2 file of it");
                    return Err(invalid(&link.path, &why));
                }
            };
            layers.push(Layer { path: link.path, kind });
        }
        let size = match layers.first().map(|layer| &layer.kind) {
            Some(Kind::Raw { length, .. }) => length.next_multiple_of(SECTOR),
            Some(Kind::Qcow2(reader)) => reader.header.size,
            None => 0,
        };
        Ok(Self { layers, size })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The first byte at or behind `from` that may be other than zero.
    pub(crate) fn next_data(&self, from: u64) -> Result<Option<u64>> {
        let mut first = None;
        for layer in &self.layers {
            let found = layer.next_data(from).map_err(|e| at(&layer.path, &e))?.filter(|found| *found < self.size);
            first = match (first, found) {
                (Some(a), Some(b)) => Some(u64::min(a, b)),
                (a, b) => a.or(b),
            };
            if first == Some(from) {
                break;
            }
        }
        Ok(first)
    }

    /// Fills the buffer; behind the end are zeros.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.read_layer(0, buffer, offset)
    }

    fn read_layer(&self, index: usize, buffer: &mut [u8], offset: u64) -> Result<()> {
        let Some(layer) = self.layers.get(index) else {
            buffer.fill(0);
            return Ok(());
        };
        match &layer.kind {
            Kind::Raw { file, length } => raw(file, *length, buffer, offset).map_err(|e| at(&layer.path, &e)),
            Kind::Qcow2(reader) => self.read_qcow2(index, reader, buffer, offset),
        }
    }

    fn read_qcow2(&self, index: usize, reader: &Reader, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        let path = &self.layers[index].path;
        let cluster = reader.header.cluster();
        while !buffer.is_empty() {
            // A backing file may be shorter than what is above it.
            if offset >= reader.header.size {
                buffer.fill(0);
                return Ok(());
            }
            let within = offset % cluster;
            let length = ((cluster - within) as usize).min(buffer.len());
            let (now, rest) = buffer.split_at_mut(length);
            match reader.place(offset / cluster).map_err(|e| at(path, &e))? {
                Place::Absent => self.read_layer(index + 1, now, offset)?,
                Place::Plain(host) => reader.read(Place::Plain(host + within), now).map_err(|e| at(path, &e))?,
                place if length as u64 == cluster => reader.read(place, now).map_err(|e| at(path, &e))?,
                place => {
                    let mut whole = vec![0; cluster as usize];
                    reader.read(place, &mut whole).map_err(|e| at(path, &e))?;
                    now.copy_from_slice(&whole[within as usize..within as usize + length]);
                }
            }
            buffer = rest;
            offset += length as u64;
        }
        Ok(())
    }
}

impl Layer {
    fn next_data(&self, from: u64) -> io::Result<Option<u64>> {
        match &self.kind {
            Kind::Raw { file, .. } => next_data(file, from),
            Kind::Qcow2(reader) => {
                let cluster = reader.header.cluster();
                Ok(reader.next_present(from / cluster)?.map(|found| (found * cluster).max(from)))
            }
        }
    }
}

fn raw(file: &File, length: u64, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let there = length.saturating_sub(offset).min(buffer.len() as u64) as usize;
    let (data, rest) = buffer.split_at_mut(there);
    rest.fill(0);
    file.read_exact_at(data, offset)
}

/// Where a file has data at or behind `from`.
pub(crate) fn next_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(from)) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Where the data that a file has at `from` ends.
pub(crate) fn next_hole(file: &File, from: u64) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(from))?)
}

/// Compares words, which is as fast as memory.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    // SAFETY: every pattern of bits is a value of u128.
    let (head, words, tail) = unsafe { data.align_to::<u128>() };
    head.iter().chain(tail).all(|byte| *byte == 0)
        && words.chunks(64).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found() {
        let mut data = vec![0; 65_537];
        assert!(is_zero(&data) && is_zero(&[]));
        for at in [0, 1, 17, 40_000, 65_536] {
            data[at] = 1;
            assert!(!is_zero(&data));
            data[at] = 0;
        }
    }
}
