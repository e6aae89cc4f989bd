//! Directories as tar streams, in constant memory.

use super::blocking;
use crate::error::{Error, Result};
use bytes::Bytes;
use hotdesk_api::file::Unpacked;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf};
use tokio_stream::{Stream, StreamExt};
use tokio_tar::{Archive, ArchiveBuilder, Builder, Entry, EntryType, Header};
use tokio_util::io::ReaderStream;

/// What is packed ahead of a slow reader.
const AHEAD: usize = 256 << 10;
/// What one entry may bring besides its content (long names, extended headers): these are held in memory.
const HEAD_LIMIT: u64 = 1 << 20;
/// More than the inodes of a usual disk.
const ENTRY_LIMIT: u64 = 1_000_000;
/// A sparse file takes no room in the archive and little on the disk, so neither bounds its size.
const SPARSE_LIMIT: u64 = 1 << 40;

/// The content of a directory as a tar stream (for a file: that file). Sockets, FIFOs and devices are left out.
/// An error in the middle breaks the stream off.
pub async fn pack(path: PathBuf) -> Result<impl Stream<Item = std::io::Result<Bytes>> + Send + 'static> {
    let meta = blocking({
        let path = path.clone();
        move || {
            let failed = |e| Error::file(path.display(), &e);
            let meta = std::fs::metadata(&path).map_err(failed)?;
            // Said now, while there is still a status to say it with.
            if meta.is_dir() { std::fs::read_dir(&path).map(drop) } else { std::fs::File::open(&path).map(drop) }
                .map_err(failed)?;
            Ok(meta)
        }
    })
    .await?;
    let (writer, reader) = tokio::io::duplex(AHEAD);
    let packing = tokio::spawn(async move {
        let mut builder = Builder::new_non_terminated(writer);
        builder.follow_symlinks(false);
        if meta.is_dir() {
            pack_directory(&mut builder, path).await?;
        } else {
            let name = path.file_name().map(PathBuf::from).unwrap_or_default();
            pack_one(&mut builder, &path, &name).await?;
        }
        builder.finish().await
    });
    let end = async_stream::stream! {
        let mut pieces = ReaderStream::with_capacity(reader, AHEAD / 2);
        while let Some(piece) = pieces.next().await {
            yield piece;
        }
        // The end of the pipe alone does not tell a whole archive from half of one.
        match packing.await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => yield Err(e),
            Err(e) => yield Err(std::io::Error::other(e)),
        }
    };
    Ok(end)
}

async fn pack_directory(builder: &mut Builder<DuplexStream>, root: PathBuf) -> std::io::Result<()> {
    // The last is next; a directory's entries are pushed in reverse order.
    let mut todo = sorted(root.clone(), PathBuf::new()).await?;
    while let Some(name) = todo.pop() {
        let path = root.join(&name);
        let is_directory = match pack_one(builder, &path, &name).await {
            Ok(is_directory) => is_directory,
            // Gone since its directory was read.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(std::io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        };
        if is_directory {
            todo.extend(sorted(path, name).await?);
        }
    }
    Ok(())
}

/// Names in a directory, as seen from the root, in reverse order.
async fn sorted(path: PathBuf, name: PathBuf) -> std::io::Result<Vec<PathBuf>> {
    let names = tokio::task::spawn_blocking(move || {
        let mut names = std::fs::read_dir(path)?
            .map(|entry| entry.map(|entry| name.join(entry.file_name())))
            .collect::<std::io::Result<Vec<_>>>()?;
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    });
    names.await.map_err(std::io::Error::other)?
}

/// Adds one entry; true if it is a directory.
async fn pack_one<W: AsyncWrite + Unpin + Send>(builder: &mut Builder<W>, path: &Path, name: &Path) -> std::io::Result<bool> {
    let kind = tokio::fs::symlink_metadata(path).await?;
    if kind.is_dir() || kind.is_symlink() {
        builder.append_path_with_name(path, name).await?;
        return Ok(kind.is_dir());
    }
    if !kind.is_file() {
        return Ok(false);
    }
    // Not to wait for a FIFO that was put in the file's place just now.
    let file = tokio::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).await?;
    let meta = file.metadata().await?;
    let mut header = Header::new_gnu();
    header.set_metadata(&meta);
    // The header has promised a size: a file that grows is cut, one that shrinks is filled up.
    let data = file.chain(tokio::io::repeat(0)).take(meta.len());
    builder.append_data(&mut header, name, data).await?;
    Ok(false)
}

/// Unpacks a tar stream into a directory, which is made if it is missing. Existing files are replaced.
///
/// Refused are names and links that lead out of the directory, and everything but files, directories and links;
/// what came before the refused entry stays. Set-user and set-group bits are not taken over.
pub async fn unpack<E>(path: PathBuf, data: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static) -> Result<Unpacked>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let root = blocking(move || {
        let failed = |e| Error::file(path.display(), &e);
        std::fs::create_dir_all(&path).map_err(failed)?;
        std::fs::canonicalize(&path).map_err(failed)
    })
    .await?;
    let budget = Budget::default();
    let reader = tokio_util::io::StreamReader::new(data.map(|piece| piece.map_err(std::io::Error::other)));
    let reader = Bounded { reader, budget: budget.clone() };
    let mut archive: Archive<_> =
        ArchiveBuilder::new(reader).set_preserve_mtime(true).set_allow_external_symlinks(false).set_overwrite(true).build();
    let mut entries = archive.entries().map_err(|e| broken(&e, 0))?;
    let mut done = Unpacked { path: root.to_string_lossy().into_owned(), entries: 0, bytes: 0 };
    loop {
        budget.set(HEAD_LIMIT);
        let Some(entry) = entries.next().await else { break };
        let mut entry = entry.map_err(|e| broken(&e, done.entries))?;
        if done.entries >= ENTRY_LIMIT {
            return Err(Error::TooLarge { what: "the number of entries of the archive".into(), limit: ENTRY_LIMIT });
        }
        budget.set(u64::MAX);
        let size = entry.effective_size();
        if unpack_one(&root, &mut entry, done.entries).await? {
            done.entries += 1;
            done.bytes = done.bytes.saturating_add(size);
        }
    }
    Ok(done)
}

async fn unpack_one<R: AsyncRead + Unpin + Send>(root: &Path, entry: &mut Entry<R>, before: u64) -> Result<bool> {
    let name = entry.path().map_err(|e| broken(&e, before))?.into_owned();
    let refused = |why: &str| Error::Invalid(format!("entry {} of the archive, {}, {why}", before + 1, name.display()));
    let kind = entry.header().entry_type();
    let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
    if !matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Directory) && !is_link {
        return Err(refused("is neither a file nor a directory nor a link"));
    }
    if name.is_absolute() {
        return Err(refused("has an absolute name"));
    }
    if name.components().any(|part| part == Component::ParentDir) {
        return Err(refused("leads out of the directory"));
    }
    if kind == EntryType::GNUSparse && entry.effective_size() > SPARSE_LIMIT {
        return Err(refused("is larger than any sparse file should be"));
    }
    if kind == EntryType::Symlink {
        let target = entry.link_name().map_err(|e| broken(&e, before))?.unwrap_or_default().into_owned();
        if target.is_absolute() || !stays_inside(root, &root.join(&name), &target) {
            return Err(refused("is a link that leads out of the directory"));
        }
    }
    let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
    let there = root.join(&name);
    let old = identity(&there).await;
    let place = match entry.unpack_in(root).await {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(false),
        Err(e) => {
            if kind != EntryType::Directory && !is_link {
                remove_half(root, &there, old).await;
            }
            return Err(unpack_failed(&e, &name, before));
        }
    };
    if !is_link {
        // A directory has to stay writable until all of it has come.
        let mode = if kind == EntryType::Directory { mode | 0o700 } else { mode };
        tokio::fs::set_permissions(&place, Permissions::from_mode(mode)).await.map_err(|e| Error::file(place.display(), &e))?;
    }
    Ok(true)
}

/// Takes away what was written of a file that could not be finished, and nothing else.
async fn remove_half(root: &Path, there: &Path, old: Option<(u64, i64, i64)>) {
    let inside = match there.parent() {
        Some(parent) => tokio::fs::canonicalize(parent).await.is_ok_and(|parent| parent.starts_with(root)),
        None => false,
    };
    if inside && identity(there).await != old {
        let _ = tokio::fs::remove_file(there).await;
    }
}

/// What tells a file from the one that was there before, even if it got its inode.
async fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let meta = tokio::fs::symlink_metadata(path).await.ok()?;
    Some((meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

/// Whether a relative link at `place` leads to something below `root`, minding that the directory it is put in
/// may itself be reached through links.
fn stays_inside(root: &Path, place: &Path, target: &Path) -> bool {
    let mut at = place.parent().unwrap_or(root).to_owned();
    let mut missing = Vec::new();
    let mut real = loop {
        match std::fs::canonicalize(&at) {
            Ok(real) => break real,
            Err(_) => match (at.file_name(), at.parent()) {
                (Some(name), Some(parent)) => {
                    missing.push(name.to_owned());
                    at = parent.to_owned();
                }
                _ => return false,
            },
        }
    };
    real.extend(missing.iter().rev());
    for part in target.components() {
        match part {
            Component::Normal(name) => real.push(name),
            Component::ParentDir => {
                real.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
        if !real.starts_with(root) {
            return false;
        }
    }
    true
}

fn broken(error: &std::io::Error, before: u64) -> Error {
    Error::Invalid(format!("the archive can't be read after {before} entries: {}", chain(error)))
}

fn unpack_failed(error: &std::io::Error, name: &Path, before: u64) -> Error {
    let text = format!("entry {} of the archive, {}: {}", before + 1, name.display(), chain(error));
    // The library wraps the system's errors; the innermost one tells what it is.
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.raw_os_error().is_some()
        {
            return Error::file(text, io);
        }
        source = inner.source();
    }
    Error::Invalid(text)
}

fn chain(error: &std::io::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// How much may still be read.
#[derive(Clone, Default)]
struct Budget(Arc<AtomicU64>);

impl Budget {
    fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// A reader that fails when its budget is spent.
struct Bounded<R> {
    reader: R,
    budget: Budget,
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let left = self.budget.0.load(Ordering::Relaxed);
        if left == 0 {
            let text = format!("a header is larger than {HEAD_LIMIT} bytes");
            return Poll::Ready(Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text)));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut self.reader).poll_read(cx, buf);
        let read = (buf.filled().len() - before) as u64;
        self.budget.set(left.saturating_sub(read));
        result
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/tar.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
