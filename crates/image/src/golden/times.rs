//! Makes two builds of one file system equal: `mke2fs` copies when the tree's files were last read and changed on this
//! machine, which is different each time. What remains is when their content was written, as the packages say.
//!
//! Works on the file system as it lies in the disk. It has no checksums of metadata (see [`super::filesystem`]), so
//! fields can be written where they are.

use super::EPOCH;
use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where the superblock lies, and how long it is.
const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_SIZE: usize = 1024;
const MAGIC: u16 = 0xef53;
/// Descriptors of groups of this size are the kind without 64-bit numbers, which is what we make.
const DESCRIPTOR_SIZE: u64 = 32;
const WITH_64_BITS: u32 = 0x80;
/// The first inode that is a file's; those below belong to the file system.
const FIRST_FILE: u64 = 11;

/// Settles all times of the file system that begins at `offset`.
pub(super) fn settle(disk: &File, offset: u64) -> Result<()> {
    let fail = |e: std::io::Error| Error::Failed(format!("the root file system's times can't be set: {e}"));
    let mut head = vec![0; SUPERBLOCK_SIZE];
    disk.read_exact_at(&mut head, offset + SUPERBLOCK).map_err(fail)?;
    if u16_at(&head, 0x38) != MAGIC || u32_at(&head, 0x60) & WITH_64_BITS != 0 {
        return Err(Error::Failed("the root file system is not of the kind that was made".into()));
    }
    let block = 1024_u64 << u32_at(&head, 0x18);
    let per_group = u64::from(u32_at(&head, 0x28));
    let groups = u64::from(u32_at(&head, 0x00)) / per_group.max(1);
    let inode_size = u64::from(u16_at(&head, 0x58));
    // Last mount, last write, last check, making.
    for field in [0x2c, 0x30, 0x40, 0x108] {
        let time = if field == 0x2c { 0 } else { EPOCH as u32 };
        head[field..field + 4].copy_from_slice(&time.to_le_bytes());
    }
    disk.write_all_at(&head, offset + SUPERBLOCK).map_err(fail)?;

    let descriptors = offset + block * (u64::from(u32_at(&head, 0x14)) + 1);
    let mut table = vec![0; (per_group * inode_size) as usize];
    for group in 0..groups {
        let mut descriptor = [0; DESCRIPTOR_SIZE as usize];
        disk.read_exact_at(&mut descriptor, descriptors + group * DESCRIPTOR_SIZE).map_err(fail)?;
        let at = offset + block * u64::from(u32_at(&descriptor, 0x08));
        disk.read_exact_at(&mut table, at).map_err(fail)?;
        let mut changed = 0..0;
        for (number, inode) in table.chunks_exact_mut(inode_size as usize).enumerate() {
            let number = number as u64;
            if inode.iter().all(|byte| *byte == 0) {
                continue;
            }
            settle_inode(inode, group * per_group + number + 1);
            let begin = number * inode_size;
            changed = if changed.is_empty() { begin..begin + inode_size } else { changed.start..begin + inode_size };
        }
        if !changed.is_empty() {
            let part = &table[changed.start as usize..changed.end as usize];
            disk.write_all_at(part, at + changed.start).map_err(fail)?;
        }
    }
    Ok(())
}

fn settle_inode(inode: &mut [u8], number: u64) {
    // A file that was replaced leaves its remains.
    if u16_at(inode, 0x1a) == 0 && number >= FIRST_FILE {
        inode.fill(0);
        return;
    }
    let written: [u8; 4] = [inode[0x10], inode[0x11], inode[0x12], inode[0x13]];
    // Read, changed.
    for field in [0x08, 0x0c] {
        inode[field..field + 4].copy_from_slice(&written);
    }
    // Made; and parts of seconds.
    if inode.len() >= 0x98 && u16_at(inode, 0x80) >= 0x18 {
        // What the build made has whole seconds.
        if written == (EPOCH as u32).to_le_bytes() {
            inode[0x88..0x8c].fill(0);
        }
        let parts: [u8; 4] = [inode[0x88], inode[0x89], inode[0x8a], inode[0x8b]];
        inode[0x90..0x94].copy_from_slice(&written);
        for field in [0x84, 0x8c, 0x94] {
            inode[field..field + 4].copy_from_slice(&parts);
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
