//! Writes a compressed qcow2 file in one pass, from the first cluster of the disk to the last, and knows at every moment
//! how large the file would be if it ended now. Thus a part of a chain never exceeds its limit, and nothing is
//! written twice.
//!
//! ```text
//!   cluster 0: header | 1: table of reference counts | first table | data and second tables, as they come | counts
//! ```

use super::header::MAGIC;
use super::{COMPRESSED, COPIED};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// QEMU's default, and what its compression works on: larger ones compress better but make small reads slow.
pub(crate) const CLUSTER: u64 = 64 << 10;
const BITS: u32 = 16;
/// Entries of a table, and counts in a block of counts.
const ENTRIES: u64 = CLUSTER / 8;
const COUNTS: u64 = CLUSTER / 2;

/// A cluster as it goes into a file.
pub(crate) enum Packed {
    Zstd(Vec<u8>),
    /// What compression does not make smaller.
    Plain(Vec<u8>),
}

impl Packed {
    pub(crate) fn new(compressor: &mut zstd::bulk::Compressor<'_>, data: &[u8]) -> io::Result<Self> {
        let mut packed = Vec::with_capacity(zstd::zstd_safe::compress_bound(data.len()));
        compressor.compress_to_buffer(data, &mut packed)?;
        // A sector of profit at least: the entry counts in sectors.
        if packed.len() + 512 > data.len() { Ok(Self::Plain(data.to_vec())) } else { Ok(Self::Zstd(packed)) }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Zstd(data) | Self::Plain(data) => data.len() as u64,
        }
    }
}

pub(crate) struct Writer {
    file: File,
    size: u64,
    backing: Option<String>,
    l1: Vec<u64>,
    /// The second table of the stretch that is being written, and which one it is.
    l2: Vec<u64>,
    l2_index: Option<usize>,
    /// How many refer to each cluster of the file.
    counts: Vec<u16>,
    /// Where the next compressed cluster goes; it may share a cluster of the file with others.
    fill: u64,
    /// Clusters of data so far.
    pub(crate) written: u64,
}

impl Writer {
    /// A file for a disk of `size` bytes; what it does not hold is in `backing`, a name in the same directory.
    pub(crate) fn new(file: File, size: u64, backing: Option<String>) -> Self {
        let l1_clusters = Self::l1_clusters(size);
        let counts = vec![1; 2 + l1_clusters as usize];
        let fill = counts.len() as u64 * CLUSTER;
        let l1 = vec![0; size.div_ceil(ENTRIES * CLUSTER) as usize];
        Self { file, size, backing, l1, l2: vec![0; ENTRIES as usize], l2_index: None, counts, fill, written: 0 }
    }

    fn l1_clusters(size: u64) -> u64 {
        size.div_ceil(ENTRIES * CLUSTER).div_ceil(ENTRIES).max(1)
    }

    /// The smallest file that holds a cluster of a disk of this size.
    pub(crate) fn least(size: u64) -> u64 {
        (2 + Self::l1_clusters(size) + 1 + 1 + 2) * CLUSTER
    }

    /// How large the file is if it ends after `more` bytes of another cluster.
    pub(crate) fn length_with(&self, more: u64) -> u64 {
        // One more cluster for what is cut at a border, and two second tables: the present one and a new one.
        let clusters = self.counts.len() as u64 + more.div_ceil(CLUSTER) + 1 + 2;
        (clusters + blocks(clusters)) * CLUSTER
    }

    /// Adds a cluster of the disk. They must come in order.
    pub(crate) fn add(&mut self, cluster: u64, data: &Packed) -> io::Result<()> {
        let (first, second) = ((cluster / ENTRIES) as usize, (cluster % ENTRIES) as usize);
        if self.l2_index != Some(first) {
            self.flush_l2()?;
            self.l2_index = Some(first);
        }
        let entry = match data {
            Packed::Plain(data) => {
                let offset = self.allocate(1);
                self.file.write_all_at(data, offset)?;
                offset | COPIED
            }
            Packed::Zstd(data) => {
                let offset = self.room(data.len() as u64);
                self.file.write_all_at(data, offset)?;
                let sectors = (offset + data.len() as u64).div_ceil(512) - offset / 512;
                offset | (sectors - 1) << (62 - (BITS - 8)) | COMPRESSED
            }
        };
        if let Some(place) = self.l2.get_mut(second) {
            *place = entry;
        }
        self.written += 1;
        Ok(())
    }

    /// Whole clusters at the end of the file.
    fn allocate(&mut self, clusters: u64) -> u64 {
        let offset = self.counts.len() as u64 * CLUSTER;
        self.counts.extend(std::iter::repeat_n(1, clusters as usize));
        offset
    }

    /// Room for compressed bytes: behind the last ones, and over the border of a cluster only if the next is free.
    fn room(&mut self, length: u64) -> u64 {
        let end = self.counts.len() as u64 * CLUSTER;
        let border = self.fill.next_multiple_of(CLUSTER);
        if self.fill + length > border && border != end {
            self.fill = end;
        }
        let offset = self.fill;
        self.fill += length;
        let (first, last) = ((offset / 512 * 512) / CLUSTER, (self.fill.next_multiple_of(512) - 1) / CLUSTER);
        for cluster in first..=last {
            match self.counts.get_mut(cluster as usize) {
                Some(count) => *count += 1,
                None => self.counts.push(1),
            }
        }
        offset
    }

    fn flush_l2(&mut self) -> io::Result<()> {
        let Some(index) = self.l2_index.take() else { return Ok(()) };
        let offset = self.allocate(1);
        self.file.write_all_at(&big_endian(&self.l2), offset)?;
        if let Some(entry) = self.l1.get_mut(index) {
            *entry = offset | COPIED;
        }
        self.l2.fill(0);
        Ok(())
    }

    /// Writes what belongs at the beginning and the end. Returns the file and its length.
    pub(crate) fn finish(mut self) -> io::Result<(File, u64)> {
        self.flush_l2()?;
        let data = self.counts.len() as u64;
        let count_blocks = blocks(data);
        let start = self.allocate(count_blocks);
        let table: Vec<u64> = (0..count_blocks).map(|block| start + block * CLUSTER).collect();
        self.file.write_all_at(&big_endian(&table), CLUSTER)?;
        let mut counts: Vec<u8> = self.counts.iter().flat_map(|count| count.to_be_bytes()).collect();
        counts.resize((count_blocks * CLUSTER) as usize, 0);
        self.file.write_all_at(&counts, start)?;
        self.file.write_all_at(&big_endian(&self.l1), 2 * CLUSTER)?;
        self.file.write_all_at(&self.header(), 0)?;
        let length = self.counts.len() as u64 * CLUSTER;
        self.file.set_len(length)?;
        self.file.sync_data()?;
        Ok((self.file, length))
    }

    fn header(&self) -> Vec<u8> {
        const LENGTH: u32 = 112;
        const COMPRESSION_FEATURE: u64 = 1 << 3;
        let mut head = Vec::new();
        let backing = self.backing.as_deref().unwrap_or_default();
        // Behind the header: the format of the backing file (8 + 8 bytes) and the end of extensions.
        let name_at = if backing.is_empty() { 0 } else { u64::from(LENGTH) + 24 };
        head.extend(MAGIC);
        head.extend(3u32.to_be_bytes());
        head.extend(name_at.to_be_bytes());
        head.extend((backing.len() as u32).to_be_bytes());
        head.extend(BITS.to_be_bytes());
        head.extend(self.size.to_be_bytes());
        head.extend(0u32.to_be_bytes());
        head.extend((self.l1.len() as u32).to_be_bytes());
        head.extend((2 * CLUSTER).to_be_bytes());
        head.extend(CLUSTER.to_be_bytes());
        head.extend(1u32.to_be_bytes());
        head.extend(0u32.to_be_bytes());
        head.extend(0u64.to_be_bytes());
        head.extend(COMPRESSION_FEATURE.to_be_bytes());
        head.extend([0; 16]);
        head.extend(4u32.to_be_bytes());
        head.extend(LENGTH.to_be_bytes());
        head.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        if !backing.is_empty() {
            head.extend(0xe279_2acau32.to_be_bytes());
            head.extend(5u32.to_be_bytes());
            head.extend(b"qcow2\0\0\0");
        }
        head.extend([0; 8]);
        head.extend(backing.as_bytes());
        head
    }
}

/// Blocks of counts for so many clusters, themselves included.
fn blocks(clusters: u64) -> u64 {
    let mut blocks = 1;
    while blocks * COUNTS < clusters + blocks {
        blocks += 1;
    }
    blocks
}

fn big_endian(table: &[u64]) -> Vec<u8> {
    table.iter().flat_map(|entry| entry.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_themselves() {
        assert_eq!(blocks(1), 1);
        assert_eq!(blocks(COUNTS - 1), 1);
        assert_eq!(blocks(COUNTS), 2);
        assert_eq!(blocks(10 * COUNTS), 11);
    }
}
