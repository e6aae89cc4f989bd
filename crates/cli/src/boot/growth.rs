//! The root grows into its disk, when the disk is larger than it was made: first the partition, on the disk and in the kernel,
//! then the file system, which does it itself while it is in use.

use super::say;
use nix::libc;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const SECTOR: u64 = 512;
/// Less is not worth it.
const LEAST: u64 = 16 << 20;
const BLOCK: u64 = 4096;
/// The first entry of the table of partitions, and where in it the begin and the length are.
const ENTRY: usize = 446;
const BEGIN: usize = ENTRY + 8;
const LENGTH: usize = ENTRY + 12;
/// `BLKPG` with `BLKPG_RESIZE_PARTITION`, and `EXT4_IOC_RESIZE_FS`, of the kernel's headers.
const BLKPG: libc::Ioctl = 0x1269;
const RESIZE_PARTITION: libc::c_int = 3;
const RESIZE_FILE_SYSTEM: libc::Ioctl = 0x4008_6610;

#[repr(C)]
struct PartitionCall {
    operation: libc::c_int,
    flags: libc::c_int,
    length: libc::c_int,
    data: *mut Partition,
}

#[repr(C)]
struct Partition {
    begin: libc::c_longlong,
    length: libc::c_longlong,
    number: libc::c_int,
    names: [u8; 128],
}

pub(super) fn grow() {
    match try_to_grow() {
        Ok(Some(bytes)) => say(&format!("the root has grown to {} MiB", bytes >> 20)),
        Ok(None) => {}
        Err(e) => say(&format!("the root can't grow: {e}")),
    }
}

/// Where the root is.
struct Place {
    disk: PathBuf,
    begin: u64,
    length: u64,
    disk_length: u64,
}

fn try_to_grow() -> std::io::Result<Option<u64>> {
    let Some(place) = find() else { return Ok(None) };
    let room = place.disk_length.saturating_sub(place.begin + place.length);
    // The table counts in 32 bits.
    let length = (place.disk_length - place.begin).min(u64::from(u32::MAX)) / 2048 * 2048;
    if room * SECTOR < LEAST || length <= place.length {
        return Ok(None);
    }
    let disk = File::options().read(true).write(true).open(&place.disk)?;
    let mut table = [0; SECTOR as usize];
    disk.read_exact_at(&mut table, 0)?;
    if !lengthen(&mut table, place.begin, length) {
        return Err(std::io::Error::other("its table of partitions is not the one that it was made with"));
    }
    disk.write_all_at(&table, 0)?;
    let mut partition = Partition {
        begin: (place.begin * SECTOR) as libc::c_longlong,
        length: (length * SECTOR) as libc::c_longlong,
        number: 1,
        names: [0; 128],
    };
    let call = PartitionCall {
        operation: RESIZE_PARTITION,
        flags: 0,
        length: size_of::<Partition>() as libc::c_int,
        data: &raw mut partition,
    };
    // SAFETY: the structures are those of the kernel and outlive the call.
    if unsafe { libc::ioctl(disk.as_raw_fd(), BLKPG, &raw const call) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let root = File::open("/")?;
    let blocks: u64 = length * SECTOR / BLOCK;
    // SAFETY: the argument is a number that outlives the call.
    if unsafe { libc::ioctl(root.as_raw_fd(), RESIZE_FILE_SYSTEM, &raw const blocks) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Some(length * SECTOR))
}

/// The first partition of a disk, if the root is one.
fn find() -> Option<Place> {
    let device = std::fs::metadata("/").ok()?.dev();
    let name = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let partition = std::fs::canonicalize(name).ok()?;
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    if number(&partition.join("partition"))? != 1 {
        return None;
    }
    let disk = partition.parent()?;
    Some(Place {
        disk: Path::new("/dev").join(disk.file_name()?),
        begin: number(&partition.join("start"))?,
        length: number(&partition.join("size"))?,
        disk_length: number(&disk.join("size"))?,
    })
}

/// Writes the new length, if the first entry is the partition that we know.
fn lengthen(table: &mut [u8], begin: u64, length: u64) -> bool {
    let known = table[510..512] == [0x55, 0xaa] && table[BEGIN..BEGIN + 4] == (begin as u32).to_le_bytes();
    if known {
        table[LENGTH..LENGTH + 4].copy_from_slice(&(length as u32).to_le_bytes());
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_partition_is_lengthened() {
        let mut table = vec![0; 512];
        assert!(!lengthen(&mut table, 2048, 10_000));
        table[510..].copy_from_slice(&[0x55, 0xaa]);
        table[BEGIN..BEGIN + 4].copy_from_slice(&2048_u32.to_le_bytes());
        assert!(!lengthen(&mut table, 4096, 10_000));
        assert!(lengthen(&mut table, 2048, 10_000));
        assert_eq!(table[LENGTH..LENGTH + 4], 10_000_u32.to_le_bytes());
    }
}
