//! Downloads, checks and decompresses, in constant memory.

use super::place::Place;
use super::{Key, Result, failed, fault};
use crate::keys::hex;
use crate::store::ArchiveRef;
use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::ObjectStoreExt as _;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::io::SyncIoBridge;

/// Between decompression and the reader.
const BUFFER: usize = 1 << 20;

pub(super) async fn get(place: &Place, key: Key, archive: &ArchiveRef) -> Result<Checked<DuplexStream>> {
    let location = &archive.location;
    let object = place.store.get(&key).await.map_err(|e| fault(location, e))?;
    if object.meta.size != archive.bytes {
        return Err(failed(damaged(archive, &format!("it has {} bytes instead of {}", object.meta.size, archive.bytes))));
    }
    let (sender, pieces) = mpsc::channel(2);
    let feed = feed(object.into_stream(), sender, archive.clone());
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

/// Passes on what it gets, but the last piece only if the whole is what was once written.
async fn feed(
    mut stream: BoxStream<'static, object_store::Result<Bytes>>,
    sender: mpsc::Sender<Bytes>,
    archive: ArchiveRef,
) -> io::Result<()> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(io::Error::other)?;
        hash.update(&piece);
        bytes += piece.len() as u64;
        if bytes > archive.bytes {
            return Err(io::Error::other(damaged(&archive, "it is longer than it was")));
        }
        if bytes == archive.bytes {
            let found = hex(&hash.finalize());
            if found != archive.sha256 {
                return Err(io::Error::other(damaged(
                    &archive,
                    &format!("its SHA-256 is {found} instead of {}", archive.sha256),
                )));
            }
            // If nobody reads any more, nobody needs the answer.
            let _ = sender.send(piece).await;
            return Ok(());
        }
        if sender.send(piece).await.is_err() {
            return Ok(());
        }
    }
    Err(io::Error::other(damaged(&archive, &format!("it ends after {bytes} of {} bytes", archive.bytes))))
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
