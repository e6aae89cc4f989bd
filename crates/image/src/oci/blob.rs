//! The bytes of an image: layers and the small texts that name them, wherever they are.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Something that an image is made of, named by its content.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    /// `sha256:HEX`.
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) media_type: String,
    /// What a layer unpacks to; nothing else has one.
    pub(super) diff_id: Option<String>,
    pub(super) source: Source,
}

/// Where the bytes are.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Bytes(Vec<u8>),
    File(PathBuf),
    /// A file with something before and after it.
    Around {
        before: Vec<u8>,
        file: PathBuf,
        length: u64,
        after: Vec<u8>,
    },
}

impl Blob {
    pub(super) fn of_bytes(bytes: Vec<u8>, media_type: &str) -> Self {
        let digest = super::spec::digest_of(&bytes);
        Self { digest, size: bytes.len() as u64, media_type: media_type.into(), diff_id: None, source: Source::Bytes(bytes) }
    }

    /// The digest without what it is a digest by.
    pub(super) fn hex(&self) -> &str {
        self.digest.rsplit(':').next().unwrap_or_default()
    }
}

impl Source {
    /// What follows after so many bytes.
    pub(super) fn read_from(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Bytes(bytes) => Box::new(Cursor::new(rest(bytes, offset))),
            Self::File(path) => Box::new(file_from(path, offset)?),
            Self::Around { before, file, length, after } => {
                let first = before.len() as u64;
                let inside = offset.saturating_sub(first).min(*length);
                let middle = file_from(file, inside)?.take(length - inside);
                let last = rest(after, offset.saturating_sub(first + length));
                Box::new(Cursor::new(rest(before, offset)).chain(middle).chain(Cursor::new(last)))
            }
        })
    }
}

fn rest(bytes: &[u8], offset: u64) -> Vec<u8> {
    bytes[usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len())..].to_vec()
}

fn file_from(path: &PathBuf, offset: u64) -> io::Result<File> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    Ok(file)
}
