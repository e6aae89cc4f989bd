//! Writing a file: beside its place first, then into it by one rename.

use super::blocking;
use crate::error::{Error, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use hotdesk_api::file::Written;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio_stream::Stream;

/// How much is collected before the disk is asked: bodies come in pieces of some kilobytes.
const BUFFER: usize = 256 << 10;

/// Writes a stream to a file. Whoever reads the file meanwhile sees the old one or the new one,
/// never a part; on any error, or when the caller goes away, the old one stays.
pub async fn write<E: std::fmt::Display>(
    path: PathBuf,
    mode: Option<u32>,
    make_parents: bool,
    data: impl Stream<Item = Result<Bytes, E>>,
) -> Result<Written> {
    let (part, file) = blocking(move || Part::begin(path, mode, make_parents)).await?;
    let mut file = BufWriter::with_capacity(BUFFER, tokio::fs::File::from_std(file));
    let failed = |e: std::io::Error| Error::file(format_args!("writing {}", part.path.display()), &e);
    let mut data = std::pin::pin!(data);
    let mut size = 0u64;
    while let Some(piece) = data.next().await {
        let piece = piece.map_err(|e| Error::Invalid(format!("the body broke off after {size} bytes: {e}")))?;
        file.write_all(&piece).await.map_err(failed)?;
        size += piece.len() as u64;
    }
    file.flush().await.map_err(failed)?;
    drop(file);
    blocking(move || part.finish(size)).await
}

/// A file beside its place; deleted unless it is finished.
pub(super) struct Part {
    path: PathBuf,
    temporary: PathBuf,
    created: bool,
    finished: bool,
}

impl Part {
    /// Makes the file beside its place, with its final owner and permissions.
    pub(super) fn begin(path: PathBuf, mode: Option<u32>, make_parents: bool) -> Result<(Self, std::fs::File)> {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Error::Conflict(format!("{} is the name of a directory", path.display())));
        }
        // A link is written through, as every program does it.
        let path = match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => follow(&path)?,
            _ => path,
        };
        let failed = |e| Error::file(format_args!("writing {}", path.display()), &e);
        let old = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => return Err(Error::Conflict(format!("{} is a directory", path.display()))),
            Ok(meta) if !meta.is_file() => return Err(Error::Conflict(format!("{} is not a regular file", path.display()))),
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::Conflict(format!("{} is a directory", path.display())));
        };
        if make_parents {
            std::fs::create_dir_all(parent).map_err(|e| Error::file(format_args!("making {}", parent.display()), &e))?;
        }
        let temporary = temporary_name(parent, name);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
        let part = Self { created: old.is_none(), temporary, path: path.clone(), finished: false };
        let mode = mode.or(old.as_ref().map(|o| o.permissions().mode() & 0o7777)).unwrap_or(0o644);
        if let Some(old) = &old {
            // Works for root only, which is when it matters: a user's file stays the user's.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        Ok((part, file))
    }

    /// Puts the file in its place.
    pub(super) fn finish(mut self, size: u64) -> Result<Written> {
        std::fs::rename(&self.temporary, &self.path)
            .map_err(|e| Error::file(format_args!("writing {}", self.path.display()), &e))?;
        self.finished = true;
        Ok(Written { path: self.path.to_string_lossy().into_owned(), size, created: self.created })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Where a link leads, also if nothing is there yet.
fn follow(link: &Path) -> Result<PathBuf> {
    let failed = |e| Error::file(link.display(), &e);
    match std::fs::canonicalize(link) {
        Ok(path) => Ok(path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let target = std::fs::read_link(link).map_err(failed)?;
            Ok(link.parent().unwrap_or(Path::new("/")).join(target))
        }
        Err(e) => Err(failed(e)),
    }
}

/// A name that nobody has: hidden, and short enough for the longest file name.
pub(super) fn temporary_name(parent: &Path, name: &std::ffi::OsStr) -> PathBuf {
    let start: String = name.to_string_lossy().chars().take(40).collect();
    parent.join(format!(".{start}.{:016x}.part", rand::random::<u64>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn pieces(texts: &[&'static str]) -> impl Stream<Item = Result<Bytes, String>> + use<> {
        stream::iter(texts.iter().map(|t| Ok(Bytes::from_static(t.as_bytes()))).collect::<Vec<_>>())
    }

    fn names(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_file_is_written_and_replaced_with_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/f.txt");
        let missing = write(path.clone(), None, false, pieces(&["x"])).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound(_)), "{missing}");
        let written = write(path.clone(), Some(0o750), true, pieces(&["one ", "two"])).await.unwrap();
        assert_eq!((written.size, written.created), (7, true));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one two");
        let written = write(path.clone(), None, false, pieces(&["3"])).await.unwrap();
        assert!(!written.created);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(names(path.parent().unwrap()), ["f.txt"]);
    }

    #[tokio::test]
    async fn links_are_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        for text in ["new", "old"] {
            write(link.clone(), None, false, pieces(&[text])).await.unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join("target")).unwrap(), text);
            assert!(link.is_symlink());
        }
    }

    #[tokio::test]
    async fn a_broken_body_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "old").unwrap();
        let broken = stream::iter([Ok(Bytes::from_static(b"ne")), Err("reset".to_owned())]);
        assert!(matches!(write(path.clone(), None, false, broken).await, Err(Error::Invalid(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["f"]);

        // A caller that goes away in the middle.
        let endless = pieces(&["ne"]).chain(stream::pending());
        let writing = write(path.clone(), None, false, endless);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(200), writing).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["f"]);
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("new/"), "/dev/null".into(), "/".into()] {
            let error = write(path.clone(), None, false, pieces(&["x"])).await.unwrap_err();
            assert!(matches!(error, Error::Conflict(_)), "{path:?} {error}");
        }
    }
}
