//! Packed bytes in, a sparse file out.

use super::arrival::Follow;
use super::zip::{self, Method};
use crate::disk::qcow2::header::MOST_SIZE;
use crate::disk::source::is_zero;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

/// Stretches of zeros of this size become holes.
const BLOCK: usize = 64 << 10;
const BUFFER: usize = 1 << 20;

/// How the disk is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Gzip,
    Zstd,
    /// A file in an archive whose place is known.
    Entry {
        entry: zip::Entry,
        at: u64,
    },
    /// An archive that is read from its beginning.
    Zip {
        wanted: Option<String>,
    },
}

impl Packing {
    pub(super) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [b'P', b'K', 3, 4, ..] => Self::Zip { wanted: None },
            _ => Self::None,
        }
    }
}

/// Unpacks everything into `out`. Returns its size, and the digest of what was read.
pub(super) fn unpack(mut follow: Follow, packing: &Packing, out: &File) -> io::Result<(u64, Option<String>)> {
    let (size, mut follow) = match packing {
        Packing::None => {
            let size = write(&mut follow, out, None)?.0;
            (size, follow)
        }
        Packing::Gzip => {
            let mut decoder = flate2::bufread::MultiGzDecoder::new(buffered(follow));
            let size = write(&mut decoder, out, None)?.0;
            (size, decoder.into_inner().into_inner())
        }
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(follow))?;
            let size = write(&mut decoder, out, None)?.0;
            (size, decoder.finish().into_inner())
        }
        Packing::Entry { entry, at } => {
            follow.skip_to(*at)?;
            let packed = entry.packed.unwrap_or(0);
            let mut reader = buffered(follow.take(packed));
            let (size, crc) = file(&mut reader, entry, out)?;
            check(entry.size, size, entry.crc, crc)?;
            (size, reader.into_inner().into_inner())
        }
        Packing::Zip { wanted } => {
            let mut reader = buffered(follow);
            let entry = zip::stream_to(&mut reader, wanted.as_deref())?;
            let (size, crc) = match entry.packed {
                Some(packed) => file(&mut reader.by_ref().take(packed), &entry, out)?,
                None => file(&mut reader, &entry, out)?,
            };
            let told = match entry.crc {
                Some(crc) => crc,
                None => zip::descriptor(&mut reader, size)?,
            };
            check(entry.size, size, Some(told), crc)?;
            (size, reader.into_inner())
        }
    };
    out.set_len(size)?;
    let digest = follow.digest()?;
    Ok((size, digest))
}

fn buffered<R: Read>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(BUFFER, reader)
}

/// A file of an archive.
fn file(reader: &mut impl BufRead, entry: &zip::Entry, out: &File) -> io::Result<(u64, u32)> {
    match entry.method {
        Method::Stored => write(reader, out, entry.size),
        Method::Deflate => write(&mut flate2::bufread::DeflateDecoder::new(reader), out, entry.size),
        Method::Zstd => write(&mut zstd::stream::read::Decoder::with_buffer(reader)?.single_frame(), out, entry.size),
        Method::Other(_) => Err(wrong("it is packed in a way that is not known")),
    }
}

fn check(told: Option<u64>, size: u64, told_crc: Option<u32>, crc: u32) -> io::Result<()> {
    if told.is_some_and(|told| told != size) {
        return Err(wrong("the disk in it is shorter than it tells: the archive is cut off or damaged"));
    }
    if told_crc.is_some_and(|told| told != crc) {
        return Err(wrong("the disk in it has another checksum than it tells: the archive is damaged"));
    }
    Ok(())
}

/// Writes what is not zero. Returns the size and the checksum. `most` is what may come.
fn write(reader: &mut impl Read, out: &File, most: Option<u64>) -> io::Result<(u64, u32)> {
    let most = most.unwrap_or(MOST_SIZE);
    let mut checksum = flate2::Crc::new();
    let mut block = vec![0; BLOCK];
    let mut position = 0;
    loop {
        let mut filled = 0;
        while filled < BLOCK {
            match reader.read(&mut block[filled..]) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(understood(e)),
            }
        }
        let data = &block[..filled];
        if data.is_empty() {
            return Ok((position, checksum.sum()));
        }
        if position + filled as u64 > most {
            return Err(wrong("the disk in it is larger than it tells"));
        }
        checksum.update(data);
        if !is_zero(data) {
            out.write_all_at(data, position)?;
        }
        position += filled as u64;
    }
}

/// Decoders tell the end of their input in their own words.
fn understood(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => wrong("it is cut off"),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => wrong(&format!("it can't be unpacked: {e}")),
        _ if e.get_ref().is_some_and(|inner| inner.is::<crate::Error>()) => e,
        io::ErrorKind::Other => wrong(&format!("it can't be unpacked: {e}")),
        _ => e,
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}
