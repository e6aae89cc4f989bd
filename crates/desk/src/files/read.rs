//! Reading a file, whole or in part.

use super::blocking;
use crate::error::{Error, Result};
use bytes::Bytes;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;
use tokio::io::AsyncReadExt;
use tokio_stream::Stream;
use tokio_util::io::ReaderStream;

/// One piece of a streamed file: large enough that the system calls do not matter, small enough that
/// hundreds of readers fit in memory.
const PIECE: usize = 128 << 10;

/// A file that is open for reading.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: PathBuf,
    pub size: u64,
    pub modified: Option<SystemTime>,
    /// Differs when the content differs.
    pub etag: String,
}

/// Opens a regular file. Never waits: a FIFO without a writer is refused, not opened.
pub async fn open(path: PathBuf) -> Result<Opened> {
    blocking(move || {
        let failed = |e| Error::file(path.display(), &e);
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
            .open(&path)
            .map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(Error::Conflict(format!("{} is a directory; `/v1/files/tar` reads directories", path.display())));
        }
        if !meta.is_file() {
            return Err(Error::Conflict(format!("{} is not a regular file", path.display())));
        }
        Ok(Opened { size: meta.len(), modified: meta.modified().ok(), etag: etag(&meta), file, path })
    })
    .await
}

fn etag(meta: &Metadata) -> String {
    format!("\"{:x}-{:x}-{:x}-{:x}\"", meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec())
}

impl Opened {
    /// The bytes from `start` on, `length` of them, in pieces, as fast as they are taken.
    pub async fn stream(self, start: u64, length: u64) -> Result<impl Stream<Item = std::io::Result<Bytes>> + Send + 'static> {
        let Self { mut file, path, .. } = self;
        let file = blocking(move || {
            if start > 0 {
                file.seek(SeekFrom::Start(start)).map_err(|e| Error::file(path.display(), &e))?;
            }
            Ok(file)
        })
        .await?;
        let capacity = usize::try_from(length).unwrap_or(PIECE).clamp(1, PIECE);
        Ok(ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(length), capacity))
    }
}
