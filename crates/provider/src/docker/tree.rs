//! Tar streams for the Engine: a whole root file system, our binary, one small file.

use bytes::Bytes;
use futures_util::Stream;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, DuplexStream};
use tokio_tar::{Builder, EntryType, Header};
use tokio_util::io::ReaderStream;

/// Room between the reading and the sending side.
const PIPE: usize = 1 << 20;
/// Larger files are streamed, smaller ones read at once.
const SMALL: u64 = 1 << 20;

type Frames =
    http_body_util::StreamBody<std::pin::Pin<Box<dyn Stream<Item = Result<hyper::body::Frame<Bytes>, io::Error>> + Send>>>;
/// A request body for the Engine.
pub(super) struct Body(pub(super) http_body_util::Either<http_body_util::Full<Bytes>, Frames>);

fn body(stream: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static) -> Body {
    Body(bollard::body_try_stream(stream))
}

/// Any tar stream as it is.
pub(super) fn passed_on(from: impl AsyncRead + Send + 'static) -> Body {
    body(ReaderStream::with_capacity(from, PIPE))
}

/// One small file.
pub(super) fn small(path: &str, bytes: Vec<u8>, mode: u32, uid: u32) -> Body {
    let path = path.to_owned();
    written(async move |tar| {
        let mut header = header(EntryType::Regular, bytes.len() as u64, mode, uid, uid, 0);
        tar.append_data(&mut header, &path, &bytes[..]).await
    })
}

/// The `hotdesk` binary at its place.
pub(super) fn binary(from: &Path) -> Body {
    let from = from.to_owned();
    written(async move |tar| {
        let file = tokio::fs::File::open(&from).await?;
        let size = file.metadata().await?.len();
        let mut header = header(EntryType::Regular, size, 0o755, 0, 0, 0);
        tar.append_data(&mut header, "usr/local/bin/hotdesk", file).await
    })
}

/// A root file system. `sent` counts the bytes of files that are on their way.
///
/// A tree that was built without root belongs to whoever built it; inside it must belong to root, and the user's home
/// to the user, as it would if root had built it.
pub(super) fn root(tree: PathBuf, home: &str, uid: u32, sent: Arc<AtomicU64>) -> Body {
    let home = home.trim_start_matches('/').to_owned();
    written(async move |tar| {
        let builder = rustix::process::geteuid().as_raw();
        let owner = |path: &Path, data: &std::fs::Metadata| match builder {
            0 => (data.uid(), data.gid()),
            _ if path.starts_with(&home) => (uid, uid),
            _ => (0, 0),
        };
        let mut names: HashMap<u64, PathBuf> = HashMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let mut entries: Vec<_> = std::fs::read_dir(tree.join(&directory))?.collect::<io::Result<_>>()?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                let path = directory.join(entry.file_name());
                let data = entry.metadata()?;
                let (uid, gid) = owner(&path, &data);
                let mode = data.permissions().mode() & 0o7777;
                let time = data.mtime().max(0) as u64;
                let kind = data.file_type();
                if kind.is_dir() {
                    tar.append_data(&mut header(EntryType::Directory, 0, mode, uid, gid, time), &path, io_empty()).await?;
                    open.push(path);
                } else if kind.is_symlink() {
                    let to = std::fs::read_link(entry.path())?;
                    link(tar, EntryType::Symlink, &path, &to, mode, uid, gid, time).await?;
                } else if kind.is_file() {
                    if data.nlink() > 1
                        && let Some(first) = names.get(&data.ino())
                    {
                        link(tar, EntryType::Link, &path, first, mode, uid, gid, time).await?;
                        continue;
                    }
                    if data.nlink() > 1 {
                        names.insert(data.ino(), path.clone());
                    }
                    let mut header = header(EntryType::Regular, data.len(), mode, uid, gid, time);
                    if data.len() <= SMALL {
                        let bytes = std::fs::read(entry.path())?;
                        header.set_size(bytes.len() as u64);
                        tar.append_data(&mut header, &path, &bytes[..]).await?;
                    } else {
                        tar.append_data(&mut header, &path, tokio::fs::File::open(entry.path()).await?).await?;
                    }
                    sent.fetch_add(data.len(), Ordering::Relaxed);
                }
                // Devices and sockets: the Engine brings its own.
            }
        }
        Ok(())
    })
}

fn io_empty() -> &'static [u8] {
    &[]
}

#[allow(clippy::too_many_arguments)]
async fn link(
    tar: &mut Builder<DuplexStream>,
    kind: EntryType,
    path: &Path,
    to: &Path,
    mode: u32,
    uid: u32,
    gid: u32,
    time: u64,
) -> io::Result<()> {
    let mut header = header(kind, 0, mode, uid, gid, time);
    if header.set_link_name(to).is_err() {
        // Too long for the header: an entry of its own before it, as GNU tar does.
        let long = header_of_long_link(to);
        tar.append(&long, [to.as_os_str().as_bytes(), b"\0"].concat().as_slice()).await?;
    }
    tar.append_data(&mut header, path, io_empty()).await
}

fn header_of_long_link(to: &Path) -> Header {
    let mut header = header(EntryType::GNULongLink, to.as_os_str().len() as u64 + 1, 0o644, 0, 0, 0);
    let _ = header.set_path("././@LongLink");
    header.set_cksum();
    header
}

fn header(kind: EntryType, size: u64, mode: u32, uid: u32, gid: u32, time: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header.set_mtime(time);
    header
}

/// Lets `write` write a tar into one end of a pipe while the Engine reads from the other. If it fails, so does the request:
/// the stream ends with the error instead of an end that looks fine.
fn written<F>(write: F) -> Body
where
    F: AsyncFnOnce(&mut Builder<DuplexStream>) -> io::Result<()> + Send + 'static,
{
    let (near, far) = tokio::io::duplex(PIPE);
    let runtime = tokio::runtime::Handle::current();
    // A thread of its own, because reading a tree is thousands of short blocking calls.
    let writer = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            let mut tar = Builder::new(near);
            match write(&mut tar).await {
                Ok(()) => tar.into_inner().await.map(drop),
                Err(e) => {
                    // Or else its end would be written when it is dropped.
                    tar.skip_termination();
                    Err(e)
                }
            }
        })
    });
    let outcome = futures_util::stream::once(async move {
        match writer.await {
            Ok(Ok(())) => Ok(Bytes::new()),
            Ok(Err(e)) => Err(e),
            Err(e) => Err(io::Error::other(e)),
        }
    });
    body(futures_util::StreamExt::chain(ReaderStream::with_capacity(far, PIPE), outcome))
}
