//! Compresses, hashes and uploads, in constant memory.

use super::chunks::{CHUNK, Seals};
use super::place::Place;
use super::{Error, Result, failed, fault};
use crate::keys::hex;
use crate::store::ArchiveRef;
use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use sha2::{Digest, Sha256};
use std::io::{self, Read as _, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::io::SyncIoBridge;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// S3 wants 5 MiB at least, all parts but the last of one size, and 10 000 parts at most: archives of 78 GiB, compressed.
const PART: usize = 8 << 20;
/// Parts on their way at the same time.
const UPLOADS: usize = 4;
/// Fast, and a third of the size of a desk's files; higher levels cost far more time than they save room.
const LEVEL: i32 = 3;
/// What is read at once.
const PIECE: usize = 256 << 10;

pub(super) async fn put(
    place: &Arc<Place>,
    seal: Option<&[u8; 32]>,
    desk: &str,
    reader: impl AsyncRead + Send + Unpin + 'static,
) -> Result<ArchiveRef> {
    let (key, location) = place.new_key(desk, seal.is_some());
    let seals = seal.map(|seal| Seals::new(seal, super::named(&location)));
    place.make_folder(desk)?;
    let upload = place.store.put_multipart(&key).await.map_err(|e| fault(&location, e))?;
    let mut upload = Upload { upload: Some(upload), place: place.clone(), desk: desk.to_owned() };
    let (sender, mut parts) = mpsc::channel(1);
    // Compression needs a thread. It must not read on when this future is dropped.
    let end = CancellationToken::new();
    let reader = Until { reader, end: Box::pin(end.clone().cancelled_owned()) };
    let _end = end.drop_guard();
    let compress = tokio::task::spawn_blocking(move || compress(SyncIoBridge::new(reader), sender, seals));
    let mut uploads = JoinSet::<object_store::Result<()>>::new();
    let result = async {
        while let Some(part) = parts.recv().await {
            if uploads.len() == UPLOADS
                && let Some(done) = uploads.join_next().await
            {
                uploaded(&location, done)?;
            }
            if let Some(upload) = &mut upload.upload {
                uploads.spawn(upload.put_part(PutPayload::from_bytes(part)));
            }
        }
        while let Some(done) = uploads.join_next().await {
            uploaded(&location, done)?;
        }
        // Only now is it known that the reader came to a good end.
        let (hash, bytes) = compress.await.map_err(io::Error::other).flatten().map_err(|e| unread(desk, &e))?;
        if let Some(upload) = &mut upload.upload {
            upload.complete().await.map_err(|e| fault(&location, e))?;
        }
        Ok(ArchiveRef { location: location.clone(), sha256: hash, bytes })
    };
    let result = result.await;
    match result {
        Ok(archive) => {
            upload.upload = None;
            let size = place.store.head(&key).await.map_err(|e| fault(&location, e))?.size;
            if size != archive.bytes {
                return Err(failed(format!("the archive {location} has {size} bytes after {} were written", archive.bytes)));
            }
            Ok(archive)
        }
        Err(error) => {
            uploads.shutdown().await;
            upload.abort().await;
            Err(error)
        }
    }
}

fn uploaded(location: &str, part: std::result::Result<object_store::Result<()>, JoinError>) -> Result<()> {
    part.map_err(|e| failed(format!("an upload to {location} broke off: {e}")))?.map_err(|e| fault(location, e))
}

/// What the provider said travels as an error of its stream.
fn unread(desk: &str, error: &io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<hotdesk_provider::Error>()) {
        Some(provider) => Error::Provider(provider.clone()),
        None => failed(format!("the files of desk {desk} could not be read: {error}")),
    }
}

/// Aborts what was not completed, also if the future that holds it is dropped.
struct Upload {
    upload: Option<Box<dyn MultipartUpload>>,
    place: Arc<Place>,
    desk: String,
}

impl Upload {
    async fn abort(&mut self) {
        if let Some(upload) = self.upload.take() {
            abort(upload, self.place.clone(), self.desk.clone()).await;
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Without a runtime nobody can wait any more; `sweep` or the bucket's rule does it.
        if let (Some(upload), Ok(runtime)) = (self.upload.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(abort(upload, self.place.clone(), self.desk.clone()));
        }
    }
}

async fn abort(mut upload: Box<dyn MultipartUpload>, place: Arc<Place>, desk: String) {
    if let Err(error) = upload.abort().await {
        tracing::warn!(desk, %error, "an upload could not be aborted; its parts may lie there until they expire");
    }
    drop(upload);
    place.remove_folder(&desk);
}

/// Reads until it is told to end.
struct Until<R> {
    reader: R,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Until<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::other("the upload was given up")));
        }
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

/// Returns hash and length of what it sent.
fn compress(mut reader: impl io::Read, sender: mpsc::Sender<Bytes>, seals: Option<Seals>) -> io::Result<(String, u64)> {
    let mut parts = Parts { part: Vec::with_capacity(PART), sender, hash: Sha256::new(), bytes: 0 };
    let Some(mut seals) = seals else {
        let mut encoder = zstd::Encoder::new(parts, LEVEL)?;
        encoder.include_checksum(true)?;
        io::copy(&mut io::BufReader::with_capacity(PIECE, reader), &mut encoder)?;
        return encoder.finish()?.finish();
    };
    let mut encoder = zstd::bulk::Compressor::new(LEVEL)?;
    encoder.include_checksum(true)?;
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        chunk.clear();
        let length = reader.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
        // The last one is empty: only at the end is it known that nothing follows.
        let frame = encoder.compress(&chunk)?;
        parts.write_all(&seals.head(&frame, length == 0)?)?;
        parts.write_all(&frame)?;
        if length == 0 {
            return parts.finish();
        }
    }
}

/// Cuts into parts of one size.
struct Parts {
    part: Vec<u8>,
    sender: mpsc::Sender<Bytes>,
    hash: Sha256,
    bytes: u64,
}

impl Parts {
    fn finish(mut self) -> io::Result<(String, u64)> {
        if !self.part.is_empty() {
            self.send()?;
        }
        Ok((hex(&self.hash.finalize()), self.bytes))
    }

    fn send(&mut self) -> io::Result<()> {
        let part = Bytes::from(std::mem::replace(&mut self.part, Vec::with_capacity(PART)));
        self.sender.blocking_send(part).map_err(|_| io::Error::other("the upload was given up"))
    }
}

impl Write for Parts {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = data.len().min(PART - self.part.len());
        self.part.extend_from_slice(&data[..length]);
        self.hash.update(&data[..length]);
        self.bytes += length as u64;
        if self.part.len() == PART {
            self.send()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
