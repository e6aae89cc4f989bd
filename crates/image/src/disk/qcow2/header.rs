//! The first bytes of a qcow2 file, read without trust: everything that QEMU would follow out of the file (names of other
//! files, offsets, sizes) is looked at here before QEMU sees it.

pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// So much of a file is looked at. QEMU itself puts names right behind the header, within its first hundreds of bytes.
pub(crate) const HEAD: usize = 64 << 10;

/// QEMU's own limit on the table of tables, which bounds what a file can make us read.
const MOST_L1: u64 = 32 << 20;
/// Larger than any disk that is meant; what says more wants to fill a disk or a memory.
pub(crate) const MOST_SIZE: u64 = 64 << 40;
/// QEMU's own limit.
const LONGEST_NAME: u64 = 1023;
/// Of extensions; there are five kinds.
const MOST_EXTENSIONS: usize = 64;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const OTHER_COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// What a qcow2 file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    /// What the guest sees.
    pub size: u64,
    pub l1_entries: u32,
    pub l1_offset: u64,
    pub backing: Option<String>,
    pub backing_format: Option<String>,
    pub compression: Compression,
    pub external_data: bool,
    pub extended_l2: bool,
    pub snapshots: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    Zlib,
    Zstd,
}

impl Header {
    /// Reads the first bytes of a file (see [`HEAD`]) that has `length` bytes in all. The error is a reason.
    pub fn parse(head: &[u8], length: u64) -> Result<Self, String> {
        if head.get(..4) != Some(&MAGIC) {
            return Err("it is no qcow2 file".into());
        }
        let read = Bytes(head);
        let version = read.u32(4)?;
        if !(2..=3).contains(&version) {
            return Err(format!("its version is {version}, and 2 and 3 are known"));
        }
        let cluster_bits = read.u32(20)?;
        if !(9..=21).contains(&cluster_bits) {
            return Err(format!("its clusters have 2^{cluster_bits} bytes, and 2^9 to 2^21 are possible"));
        }
        let size = read.u64(24)?;
        if size > MOST_SIZE {
            return Err(format!("it claims {size} bytes, and {MOST_SIZE} are the most"));
        }
        if read.u32(32)? != 0 {
            return Err("it is encrypted".into());
        }
        let (features, header_length) = match version {
            2 => (0, 72),
            _ => (read.u64(72)?, u64::from(read.u32(100)?)),
        };
        if features & !(DIRTY | CORRUPT | EXTERNAL_DATA | OTHER_COMPRESSION | EXTENDED_L2) != 0 {
            return Err(format!("it needs features that are not known ({features:#x})"));
        }
        if features & CORRUPT != 0 {
            return Err("it is marked as corrupt; qemu-img check -r all may repair it".into());
        }
        let extended_l2 = features & EXTENDED_L2 != 0;
        let (l1_entries, l1_offset) = (read.u32(36)?, read.u64(40)?);
        l1_fits(l1_entries, l1_offset, size, cluster_bits, extended_l2, length)?;
        let compression = match features & OTHER_COMPRESSION != 0 {
            false => Compression::Zlib,
            true => match *head.get(104).ok_or(CUT)? {
                0 => Compression::Zlib,
                1 => Compression::Zstd,
                other => return Err(format!("its compression {other} is not known")),
            },
        };
        if version == 3 && (header_length < 104 || header_length % 8 != 0) {
            return Err(format!("its header claims {header_length} bytes"));
        }
        if (head.len() as u64) < header_length {
            return Err(CUT.into());
        }
        let backing = backing(&read, head, cluster_bits)?;
        let names_end = match &backing {
            Some((offset, _)) => *offset,
            None => head.len().min(1 << cluster_bits),
        };
        let (backing_format, data_file) = extensions(&read, head, header_length, names_end)?;
        Ok(Self {
            version,
            cluster_bits,
            size,
            l1_entries,
            l1_offset,
            backing: backing.map(|(_, name)| name),
            backing_format,
            compression,
            external_data: data_file || features & EXTERNAL_DATA != 0,
            extended_l2,
            snapshots: read.u32(60)?,
        })
    }

    pub(crate) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }
}

fn l1_fits(entries: u32, offset: u64, size: u64, cluster_bits: u32, extended: bool, length: u64) -> Result<(), String> {
    let table = u64::from(entries) * 8;
    if table > MOST_L1 {
        return Err(format!("its first table claims {table} bytes, and {MOST_L1} are the most"));
    }
    let per_table = (1u64 << cluster_bits) / if extended { 16 } else { 8 };
    let needed = size.div_ceil(per_table << cluster_bits);
    if u64::from(entries) < needed {
        return Err(format!("its first table has {entries} entries, and its size needs {needed}"));
    }
    if entries > 0 && (!offset.is_multiple_of(1 << cluster_bits) || offset.checked_add(table).is_none_or(|end| end > length)) {
        return Err("its first table lies outside the file: it is cut off or damaged".into());
    }
    Ok(())
}

fn backing(read: &Bytes, head: &[u8], cluster_bits: u32) -> Result<Option<(usize, String)>, String> {
    let (offset, size) = (read.u64(8)?, u64::from(read.u32(16)?));
    if offset == 0 || size == 0 {
        return Ok(None);
    }
    let end = offset.checked_add(size).ok_or(CUT)?;
    if size > LONGEST_NAME || end > 1 << cluster_bits || end > head.len() as u64 {
        return Err("the name of its backing file lies outside its header".into());
    }
    let name = head.get(offset as usize..end as usize).ok_or(CUT)?;
    let name = std::str::from_utf8(name).map_err(|_| "the name of its backing file is no text")?;
    if name.contains('\0') {
        return Err("the name of its backing file is no name".into());
    }
    Ok(Some((offset as usize, name.to_owned())))
}

/// The format of the backing file, and whether a file for data is named.
fn extensions(read: &Bytes, head: &[u8], start: u64, end: usize) -> Result<(Option<String>, bool), String> {
    let (mut at, mut format, mut data_file) = (start as usize, None, false);
    for _ in 0..MOST_EXTENSIONS {
        if at + 8 > end {
            return Ok((format, data_file));
        }
        let (kind, size) = (read.u32(at)?, read.u32(at + 4)? as usize);
        if kind == 0 {
            return Ok((format, data_file));
        }
        let data = at.checked_add(8).and_then(|from| head.get(from..from.checked_add(size)?)).ok_or("its header is damaged")?;
        match kind {
            0xe279_2aca => format = Some(String::from_utf8_lossy(data).into_owned()),
            0x4441_5441 => data_file = true,
            _ => {}
        }
        at = at + 8 + size.next_multiple_of(8);
    }
    Err("its header has too many extensions".into())
}

const CUT: &str = "it is cut off within its header";

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u32(&self, at: usize) -> Result<u32, String> {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or(CUT)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn u64(&self, at: usize) -> Result<u64, String> {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).ok_or(CUT)?;
        Ok(u64::from_be_bytes(bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A header as QEMU writes it, of a disk of 1 GiB.
    pub(crate) fn sample() -> Vec<u8> {
        let mut head = vec![0; 4096];
        head[..4].copy_from_slice(&MAGIC);
        for (at, value) in [(4, 3u32), (20, 16), (36, 2), (96, 4), (100, 112)] {
            head[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        for (at, value) in [(24, 1u64 << 30), (40, 3 << 16), (72, 8)] {
            head[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        head[104] = 1;
        head
    }

    pub(crate) fn with_backing(mut head: Vec<u8>, name: &str) -> Vec<u8> {
        head[8..16].copy_from_slice(&512u64.to_be_bytes());
        head[16..20].copy_from_slice(&(name.len() as u32).to_be_bytes());
        head[512..512 + name.len()].copy_from_slice(name.as_bytes());
        head
    }

    #[test]
    fn headers_are_read() {
        let header = Header::parse(&sample(), 1 << 20).unwrap();
        assert_eq!((header.size, header.cluster_bits, header.compression), (1 << 30, 16, Compression::Zstd));
        assert_eq!((&header.backing, header.external_data), (&None, false));
        let header = Header::parse(&with_backing(sample(), "../base.qcow2"), 1 << 20).unwrap();
        assert_eq!(header.backing.as_deref(), Some("../base.qcow2"));
    }

    #[test]
    fn damage_is_told() {
        let change = |at: usize, bytes: &[u8]| {
            let mut head = sample();
            head[at..at + bytes.len()].copy_from_slice(bytes);
            Header::parse(&head, 1 << 20).unwrap_err()
        };
        assert!(change(0, b"x").contains("no qcow2"));
        assert!(change(4, &9u32.to_be_bytes()).contains("version is 9"));
        assert!(change(20, &40u32.to_be_bytes()).contains("2^40"));
        assert!(change(24, &u64::MAX.to_be_bytes()).contains("claims"));
        assert!(change(32, &1u32.to_be_bytes()).contains("encrypted"));
        assert!(change(36, &u32::MAX.to_be_bytes()).contains("first table"));
        assert!(change(36, &1u32.to_be_bytes()).contains("needs 2"));
        assert!(change(40, &u64::MAX.to_be_bytes()).contains("outside"));
        assert!(change(72, &(1u64 << 40).to_be_bytes()).contains("features"));
        assert!(change(8, &[0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1, 0]).contains("outside its header"));
        for length in 0..112 {
            let _ = Header::parse(&sample()[..length], 1 << 20).unwrap_err();
        }
    }

    #[test]
    fn a_file_for_data_is_seen() {
        let mut head = sample();
        head[112..116].copy_from_slice(&0x4441_5441u32.to_be_bytes());
        head[116..120].copy_from_slice(&11u32.to_be_bytes());
        assert!(Header::parse(&head, 1 << 20).unwrap().external_data);
        head[116..120].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Header::parse(&head, 1 << 20).unwrap_err().contains("damaged"));
    }
}
