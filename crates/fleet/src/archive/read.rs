//! Downloads, checks and decompresses, in constant memory.

use super::chunks::{self, Chunks, Seals};
use super::place::Place;
use super::{Key, Result, failed, fault};
use crate::keys::hex;
use crate::store::ArchiveRef;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::ObjectStoreExt as _;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::io::SyncIoBridge;

/// Between decompression and the reader.
const BUFFER: usize = 1 << 20;
/// What a check leaves free on its disk: the store may be there.
const LEFT_FREE: u64 = 512 << 20;

pub(super) async fn get(
    place: &Place,
    key: Key,
    archive: &ArchiveRef,
    seal: Option<&[u8; 32]>,
    checks: &Path,
) -> Result<Checked<DuplexStream>> {
    let location = &archive.location;
    let seals = match (location.ends_with(chunks::ENDING), seal) {
        (false, _) => None,
        (true, Some(seal)) => Some(Seals::new(seal, super::named(location))),
        (true, None) => {
            return Err(failed(format!("the archive {location} is sealed, and the store was opened without its key")));
        }
    };
    let object = place.store.get(&key).await.map_err(|e| fault(location, e))?;
    if object.meta.size != archive.bytes {
        return Err(failed(damaged(archive, &format!("it has {} bytes instead of {}", object.meta.size, archive.bytes))));
    }
    let (sender, pieces) = mpsc::channel(2);
    let feed = feed(object.into_stream(), sender, archive.clone(), seals, checks.to_owned());
    let (output, input) = tokio::io::duplex(BUFFER);
    let decompress = tokio::task::spawn_blocking(move || decompress(pieces, SyncIoBridge::new(input)));
    let archive = archive.clone();
    let verdict = tokio::spawn(async move {
        let (fed, decompressed) = tokio::join!(feed, decompress);
        fed?;
        let decompressed = decompressed.map_err(io::Error::other).flatten();
        decompressed.map_err(|e| io::Error::other(damaged(&archive, &e.to_string())))
    });
    Ok(Checked::new(output, verdict))
}

fn damaged(archive: &ArchiveRef, why: &str) -> String {
    format!("the archive {} is damaged: {why}; the desk can't be restored from it", archive.location)
}

/// Passes on what is known to be what was once written: chunks with their seals as they come, anything else when it has come whole.
async fn feed(
    mut stream: BoxStream<'static, object_store::Result<Bytes>>,
    sender: mpsc::Sender<Bytes>,
    archive: ArchiveRef,
    seals: Option<Seals>,
    checks: PathBuf,
) -> io::Result<()> {
    let bad = |why: &str| io::Error::other(damaged(&archive, why));
    let mut chunks = seals.map(Chunks::new);
    let mut kept = match chunks {
        Some(_) => None,
        None => Some(Kept::make(&checks, archive.bytes)?),
    };
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut last = None;
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(io::Error::other)?;
        hash.update(&piece);
        bytes += piece.len() as u64;
        if bytes > archive.bytes {
            return Err(bad("it is longer than it was"));
        }
        if let Some(kept) = &mut kept {
            kept.file.write_all(&piece).await?;
        }
        let Some(chunks) = &mut chunks else { continue };
        chunks.push(&piece);
        while let Some(frame) = chunks.next().map_err(bad)? {
            // The last one waits for the verdict. If nobody reads any more, nobody needs the answer.
            if let Some(before) = last.replace(frame)
                && sender.send(before).await.is_err()
            {
                return Ok(());
            }
        }
    }
    if bytes < archive.bytes || chunks.as_ref().is_some_and(|chunks| !chunks.is_whole()) {
        return Err(bad(&format!("it ends after {bytes} of {} bytes", archive.bytes)));
    }
    let found = hex(&hash.finalize());
    if found != archive.sha256 {
        return Err(bad(&format!("its SHA-256 is {found} instead of {}", archive.sha256)));
    }
    if let Some(last) = last {
        let _ = sender.send(last).await;
    }
    match kept {
        Some(kept) => kept.send(&sender).await,
        None => Ok(()),
    }
}

/// An archive without seals while it is checked, in a file without a name, which is gone when it is closed.
struct Kept {
    file: tokio::fs::File,
}

impl Kept {
    fn make(directory: &Path, bytes: u64) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(directory)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < bytes.saturating_add(LEFT_FREE) {
            return Err(io::Error::other(format!(
                "it was written without seals and has to be checked before it is unpacked, which takes {} MiB in {}; {} MiB are free there",
                bytes.div_ceil(1 << 20),
                directory.display(),
                free >> 20
            )));
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self { file: std::fs::File::from(file).into() })
    }

    async fn send(mut self, sender: &mpsc::Sender<Bytes>) -> io::Result<()> {
        self.file.flush().await?;
        self.file.rewind().await?;
        loop {
            let mut piece = BytesMut::with_capacity(BUFFER);
            if self.file.read_buf(&mut piece).await? == 0 || sender.send(piece.freeze()).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn decompress(pieces: mpsc::Receiver<Bytes>, mut to: impl io::Write) -> io::Result<()> {
    let mut decoder = zstd::Decoder::new(Pieces { pieces, piece: Bytes::new() })?;
    io::copy(&mut decoder, &mut to)?;
    to.flush()
}

struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// A reader whose end is only good if the work behind it ended well.
pub(super) struct Checked<R> {
    reader: R,
    verdict: Option<JoinHandle<io::Result<()>>>,
}

impl<R> Checked<R> {
    pub(super) fn new(reader: R, verdict: JoinHandle<io::Result<()>>) -> Self {
        Self { reader, verdict: Some(verdict) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Checked<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Some(verdict) = &mut self.verdict else { return Poll::Ready(Ok(())) };
        let answer = ready!(Pin::new(verdict).poll(cx)).map_err(io::Error::other).flatten();
        if answer.is_ok() {
            self.verdict = None;
        } else {
            // Whoever reads on gets no end either.
            self.verdict = Some(tokio::spawn(async { Err(io::Error::other("the stream has failed")) }));
        }
        Poll::Ready(answer)
    }
}

impl<R> Drop for Checked<R> {
    fn drop(&mut self) {
        if let Some(verdict) = &self.verdict {
            verdict.abort();
        }
    }
}
