//! Files of the desk: read, written, listed, watched, streamed.
//!
//! Nothing here holds a whole file in memory, and nothing half-written is ever seen under its
//! final name. All calls that touch the disk run outside of the async threads.

pub mod change;
pub mod list;
pub mod notes;
mod owner;
pub mod read;
pub mod search;
pub mod tar;
pub mod watch;
pub mod write;

use crate::error::{Error, Result};
use crate::place::Place;
use hotdesk_api::file::{FileInfo, FileKind, LinkEnd};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The kernel's own limit for a path.
const PATH_LIMIT: usize = 4096;

/// The path that a request means: absolute, `~`, `~/…`, or relative to the desk's home.
pub fn resolve(place: &Place, text: &str) -> Result<PathBuf> {
    if text.is_empty() {
        return Err(Error::Invalid("the path is empty".into()));
    }
    if text.len() > PATH_LIMIT {
        return Err(Error::Invalid(format!("the path has {} bytes, more than the {PATH_LIMIT} that are possible", text.len())));
    }
    if text.contains('\0') {
        return Err(Error::Invalid("the path contains a NUL byte".into()));
    }
    let path = match text.strip_prefix('~') {
        Some("") => place.home.clone(),
        Some(rest) if rest.starts_with('/') => place.home.join(rest.trim_start_matches('/')),
        _ => place.home.join(text),
    };
    Ok(path)
}

/// Permissions as requests write them: octal, at most `7777`.
pub fn parse_mode(text: &str) -> Result<u32> {
    u32::from_str_radix(text.trim_start_matches("0o"), 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| Error::Invalid(format!("`{}` are no permissions: write them octal, as in `0644`", text.escape_default())))
}

/// A file, directory or link as it is; with `follow`, what a link leads to.
pub async fn stat(path: PathBuf, follow: bool) -> Result<FileInfo> {
    blocking(move || {
        let found = if follow { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
        Ok(info(&path, &found.map_err(|e| Error::file(path.display(), &e))?))
    })
    .await
}

/// Runs what waits for a disk outside of the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(Error::internal(e)))
}

fn info(path: &Path, meta: &Metadata) -> FileInfo {
    let kind = kind(meta);
    let target = (kind == FileKind::Symlink).then(|| std::fs::read_link(path).ok()).flatten();
    FileInfo {
        path: path.to_string_lossy().into_owned(),
        name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        kind,
        size: meta.len(),
        mode: format!("{:04o}", meta.permissions().mode() & 0o7777),
        user: meta.uid(),
        group: meta.gid(),
        modified_ms: meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000),
        target: target.map(|t| t.to_string_lossy().into_owned()),
        user_name: owner::user(meta.uid()),
        group_name: owner::group(meta.gid()),
        end: (kind == FileKind::Symlink).then(|| link_end(path)).flatten(),
        notes: if matches!(kind, FileKind::File | FileKind::Directory) { notes::read(path) } else { Default::default() },
    }
}

fn link_end(path: &Path) -> Option<LinkEnd> {
    let end = std::fs::canonicalize(path).ok()?;
    let meta = std::fs::metadata(&end).ok()?;
    Some(LinkEnd { path: end.to_string_lossy().into_owned(), kind: kind(&meta) })
}

fn kind(meta: &Metadata) -> FileKind {
    let kind = meta.file_type();
    if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else if kind.is_fifo() {
        FileKind::Fifo
    } else if kind.is_socket() {
        FileKind::Socket
    } else if kind.is_block_device() {
        FileKind::BlockDevice
    } else if kind.is_char_device() {
        FileKind::CharDevice
    } else {
        FileKind::File
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::place;

    #[test]
    fn paths_are_resolved_against_home() {
        let place = place(Path::new("/home/user"));
        for (text, path) in [
            ("/etc/x", "/etc/x"),
            ("~", "/home/user"),
            ("~/a b", "/home/user/a b"),
            ("~//etc/x", "/home/user/etc/x"),
            ("a/../b", "/home/user/a/../b"),
            ("~other", "/home/user/~other"),
        ] {
            assert_eq!(resolve(&place, text).unwrap(), Path::new(path), "{text}");
        }
        for text in ["", "a\0b", &"x".repeat(5000)] {
            assert!(matches!(resolve(&place, text), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0644").unwrap(), 0o644);
        assert_eq!(parse_mode("755").unwrap(), 0o755);
        assert_eq!(parse_mode("0o700").unwrap(), 0o700);
        for text in ["", "9", "rwx", "-1", "10000", "77777777777777777"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }
}
