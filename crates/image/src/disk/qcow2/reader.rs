//! Reads one qcow2 file: which parts of the disk it holds, and their bytes. What it does not hold is its backing
//! file's business (see [`super::super::source`]).

use super::header::{Compression, Header};
use super::{COMPRESSED, OFFSET, ZERO};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

pub(crate) struct Reader {
    file: File,
    length: u64,
    pub(crate) header: Header,
    l1: Vec<u64>,
    /// The second table that was used last: disks are read from one end to the other.
    l2: Mutex<Option<(u64, Arc<Vec<u64>>)>>,
}

/// What a file says about a stretch of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing: look into the backing file.
    Absent,
    Zero,
    /// Bytes at this offset of the file.
    Plain(u64),
    Compressed {
        offset: u64,
        length: u64,
    },
}

impl Reader {
    pub(crate) fn open(file: File, header: Header) -> io::Result<Self> {
        if header.extended_l2 || header.external_data {
            return Err(damaged("its kind (sub-clusters or a file for data) is not read here: qemu-img convert makes it plain"));
        }
        let length = file.metadata()?.len();
        // Not more than the size needs: the header may claim more entries than are used.
        let needed = header.size.div_ceil(1 << (2 * header.cluster_bits - 3)) as usize;
        let l1 = table(&file, header.l1_offset, needed)?;
        Ok(Self { file, length, header, l1, l2: Mutex::new(None) })
    }

    /// What the file has for a cluster of the disk.
    pub(crate) fn place(&self, cluster: u64) -> io::Result<Place> {
        let bits = self.header.cluster_bits;
        let (first, second) = (cluster >> (bits - 3), cluster & ((1 << (bits - 3)) - 1));
        let Some(l2_offset) = self.l1.get(first as usize).map(|entry| entry & OFFSET).filter(|offset| *offset != 0) else {
            return Ok(Place::Absent);
        };
        let entry = *self.l2(l2_offset)?.get(second as usize).unwrap_or(&0);
        if entry & COMPRESSED != 0 {
            let shift = 62 - (bits - 8);
            let offset = entry & ((1 << shift) - 1);
            let sectors = ((entry >> shift) & ((1 << (bits - 8)) - 1)) + 1;
            let length = (sectors * 512 - (offset & 511)).min(self.length.saturating_sub(offset));
            return Ok(Place::Compressed { offset, length });
        }
        if entry & ZERO != 0 && self.header.version >= 3 {
            return Ok(Place::Zero);
        }
        match entry & OFFSET {
            0 => Ok(Place::Absent),
            offset if offset & (self.header.cluster() - 1) != 0 => Err(damaged("a cluster of it lies between two clusters")),
            offset => Ok(Place::Plain(offset)),
        }
    }

    /// The first cluster at or behind `cluster` that the file says anything about.
    pub(crate) fn next_present(&self, mut cluster: u64) -> io::Result<Option<u64>> {
        let per_table = 1u64 << (self.header.cluster_bits - 3);
        let clusters = self.header.size.div_ceil(self.header.cluster());
        while cluster < clusters {
            let offset = self.l1.get((cluster / per_table) as usize).map_or(0, |entry| entry & OFFSET);
            if offset == 0 {
                cluster = (cluster / per_table + 1) * per_table;
                continue;
            }
            let table = self.l2(offset)?;
            let from = (cluster % per_table) as usize;
            if let Some(found) = table.iter().skip(from).position(|entry| entry & !super::COPIED != 0) {
                let found = cluster + found as u64;
                return Ok((found < clusters).then_some(found));
            }
            cluster = (cluster / per_table + 1) * per_table;
        }
        Ok(None)
    }

    /// Fills `buffer` with a whole cluster.
    pub(crate) fn read(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        match place {
            Place::Absent | Place::Zero => buffer.fill(0),
            Place::Plain(offset) => self.plain(offset, buffer)?,
            Place::Compressed { offset, length } => {
                let mut packed = vec![0; length as usize];
                self.file.read_exact_at(&mut packed, offset).map_err(cut)?;
                unpack(self.header.compression, &packed, buffer)?;
            }
        }
        Ok(())
    }

    /// Files end in the middle of their last cluster when they were made so; what is missing are zeros, as for QEMU.
    fn plain(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset >= self.length {
            return Err(cut(ErrorKind::UnexpectedEof.into()));
        }
        let there = ((self.length - offset) as usize).min(buffer.len());
        let (data, rest) = buffer.split_at_mut(there);
        rest.fill(0);
        self.file.read_exact_at(data, offset)
    }

    fn l2(&self, offset: u64) -> io::Result<Arc<Vec<u64>>> {
        let mut kept = self.l2.lock().map_err(|_| io::Error::other("a reader of the disk failed"))?;
        if let Some((at, table)) = &*kept
            && *at == offset
        {
            return Ok(table.clone());
        }
        if offset & (self.header.cluster() - 1) != 0 {
            return Err(damaged("a table of it lies between two clusters"));
        }
        let read = Arc::new(table(&self.file, offset, 1 << (self.header.cluster_bits - 3))?);
        *kept = Some((offset, read.clone()));
        Ok(read)
    }
}

fn table(file: &File, offset: u64, entries: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; entries * 8];
    file.read_exact_at(&mut bytes, offset).map_err(cut)?;
    Ok(bytes.chunks_exact(8).map(|entry| u64::from_be_bytes(entry.try_into().unwrap_or_default())).collect())
}

fn unpack(compression: Compression, packed: &[u8], buffer: &mut [u8]) -> io::Result<()> {
    let wrong = || damaged("a compressed cluster of it can't be unpacked");
    match compression {
        Compression::Zlib => {
            let mut engine = flate2::Decompress::new(false);
            engine.decompress(packed, buffer, flate2::FlushDecompress::Finish).map_err(|_| wrong())?;
            if engine.total_out() != buffer.len() as u64 {
                return Err(wrong());
            }
        }
        Compression::Zstd => {
            // A cluster is padded up to a sector, so the end of the frame is looked for.
            let end = zstd::zstd_safe::find_frame_compressed_size(packed).map_err(|_| wrong())?;
            let packed = packed.get(..end).ok_or_else(wrong)?;
            if zstd::bulk::decompress_to_buffer(packed, buffer).map_err(|_| wrong())? != buffer.len() {
                return Err(wrong());
            }
        }
    }
    Ok(())
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn cut(e: io::Error) -> io::Error {
    if e.kind() == ErrorKind::UnexpectedEof { damaged("it is cut off: it refers to bytes behind its end") } else { e }
}
