//! What a disk is.

use super::chain::{Format, Link, check_safe};
use super::qcow2::header::Compression;
use super::qcow2::reader::{Place, Reader};
use super::source::{next_data, next_hole};
use super::{at, invalid};
use crate::Result;
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    pub format: Format,
    /// What the guest sees; not known of formats that only QEMU reads.
    pub virtual_size: Option<u64>,
    /// What its files take on this machine's disk.
    pub disk_size: u64,
    /// Bytes of the guest's disk that are stored, in whatever form; the rest are holes.
    pub data_size: Option<u64>,
    /// Of these, stored compressed.
    pub compressed_size: Option<u64>,
    pub compression: Option<Compression>,
    pub cluster_size: Option<u64>,
    /// Saved states within the file, which are not kept by split and shrink.
    pub internal_snapshots: u32,
    /// All files, the one that is opened first.
    pub chain: Vec<File>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct File {
    pub path: PathBuf,
    pub format: Format,
    pub size: u64,
    pub disk_size: u64,
}

/// Looks at a disk and all files that belong to it.
pub fn info(path: &Path) -> Result<Info> {
    let links = check_safe(path)?;
    let mut chain = Vec::new();
    for link in &links {
        let data = link.file.metadata().map_err(|e| at(&link.path, &e))?;
        chain.push(File { path: link.path.clone(), format: link.format, size: data.len(), disk_size: data.blocks() * 512 });
    }
    let first = links.first().ok_or_else(|| invalid(path, "it has no files"))?;
    let (format, header) = (first.format, first.header.clone());
    let mut info = Info {
        format,
        virtual_size: None,
        disk_size: chain.iter().map(|file| file.disk_size).sum(),
        data_size: None,
        compressed_size: None,
        compression: None,
        cluster_size: header.as_ref().map(|header| header.cluster()),
        internal_snapshots: header.as_ref().map_or(0, |header| header.snapshots),
        chain,
    };
    match header {
        Some(header) => info.virtual_size = Some(header.size),
        None if format == Format::Raw => info.virtual_size = info.chain.first().map(|file| file.size.next_multiple_of(512)),
        None => return Ok(info),
    }
    count(links, &mut info)?;
    Ok(info)
}

/// Sums up what the files hold. Stretches that two files of a chain hold count twice: they are stored twice.
fn count(links: Vec<Link>, info: &mut Info) -> Result<()> {
    let (mut data, mut compressed) = (0, 0);
    for link in links {
        let path = link.path;
        match link.header {
            Some(header) => {
                let cluster = header.cluster();
                let compression = header.compression;
                let reader = Reader::open(link.file, header).map_err(|e| at(&path, &e))?;
                let mut position = 0;
                while let Some(found) = reader.next_present(position).map_err(|e| at(&path, &e))? {
                    match reader.place(found).map_err(|e| at(&path, &e))? {
                        Place::Plain(_) => data += cluster,
                        Place::Compressed { .. } => {
                            (data, compressed) = (data + cluster, compressed + cluster);
                            info.compression = Some(compression);
                        }
                        Place::Absent | Place::Zero => {}
                    }
                    position = found + 1;
                }
            }
            None => {
                let mut position = 0;
                while let Some(found) = next_data(&link.file, position).map_err(|e| at(&path, &e))? {
                    position = next_hole(&link.file, found).map_err(|e| at(&path, &e))?;
                    data += position - found;
                }
            }
        }
    }
    (info.data_size, info.compressed_size) = (Some(data), Some(compressed));
    Ok(())
}
