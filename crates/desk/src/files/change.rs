//! Making, moving, copying and deleting.

use super::write::temporary_name;
use super::{blocking, info};
use crate::error::{Error, Result};
use hotdesk_api::file::FileInfo;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Deeper than any tree that people make; keeps the stack small.
const DEPTH_LIMIT: u32 = 256;

/// Makes a directory, with its parents if wanted.
pub async fn make_directory(path: PathBuf, make_parents: bool, mode: Option<u32>) -> Result<FileInfo> {
    blocking(move || {
        let failed = |e| Error::file(format_args!("making {}", path.display()), &e);
        let made = match std::fs::create_dir(&path) {
            Ok(()) => true,
            Err(e) if make_parents && e.kind() == ErrorKind::NotFound => {
                std::fs::create_dir_all(&path).map_err(failed)?;
                true
            }
            Err(e) if make_parents && e.kind() == ErrorKind::AlreadyExists && path.is_dir() => false,
            Err(e) => return Err(failed(e)),
        };
        if let Some(mode) = mode.filter(|_| made) {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(info(&path, &std::fs::symlink_metadata(&path).map_err(failed)?))
    })
    .await
}

/// Gives a file or a directory other permissions. A link's are those of what it leads to.
pub async fn set_mode(path: PathBuf, mode: u32) -> Result<FileInfo> {
    blocking(move || {
        let failed = |e| Error::file(format_args!("the permissions of {}", path.display()), &e);
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)?;
        found(&path)
    })
    .await
}

/// Moves a file or a directory; across disks by copying.
pub async fn rename(from: PathBuf, to: PathBuf, overwrite: bool, make_parents: bool) -> Result<FileInfo> {
    blocking(move || {
        prepare(&from, &to, make_parents)?;
        let what = format!("moving {} to {}", from.display(), to.display());
        match rename_now(&from, &to, overwrite) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::CrossesDevices => {
                copy_beside(&from, &to, overwrite)?;
                remove(&from).map_err(|e| Error::file(format_args!("{what}, deleting the old one"), &e))?;
            }
            Err(e) => return Err(Error::file(what, &e)),
        }
        found(&to)
    })
    .await
}

/// Copies a file or a directory with all that is in it. Links stay links.
pub async fn copy(from: PathBuf, to: PathBuf, overwrite: bool, make_parents: bool) -> Result<FileInfo> {
    blocking(move || {
        prepare(&from, &to, make_parents)?;
        copy_beside(&from, &to, overwrite)?;
        found(&to)
    })
    .await
}

/// Deletes a file, a link or a directory. `home` and everything above it stays.
pub async fn delete(path: PathBuf, recursive: bool, home: PathBuf) -> Result<()> {
    blocking(move || {
        let failed = |e| Error::file(format_args!("deleting {}", path.display()), &e);
        let meta = std::fs::symlink_metadata(&path).map_err(failed)?;
        if !meta.is_dir() {
            return std::fs::remove_file(&path).map_err(failed);
        }
        let real = std::fs::canonicalize(&path).map_err(failed)?;
        let home = std::fs::canonicalize(&home).unwrap_or(home);
        if home.starts_with(&real) {
            return Err(Error::Denied(format!("{} holds the desk's home and is not deleted", path.display())));
        }
        if recursive {
            return std::fs::remove_dir_all(&path).map_err(failed);
        }
        std::fs::remove_dir(&path).map_err(|e| match e.kind() {
            ErrorKind::DirectoryNotEmpty => {
                Error::Conflict(format!("{} is not empty; say `recursive=true` to delete all that is in it", path.display()))
            }
            _ => failed(e),
        })
    })
    .await
}

fn found(path: &Path) -> Result<FileInfo> {
    let meta = std::fs::symlink_metadata(path).map_err(|e| Error::file(path.display(), &e))?;
    Ok(info(path, &meta))
}

fn prepare(from: &Path, to: &Path, make_parents: bool) -> Result<()> {
    std::fs::symlink_metadata(from).map_err(|e| Error::file(from.display(), &e))?;
    if make_parents && let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Error::file(format_args!("making {}", parent.display()), &e))?;
    }
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let inside = to.parent().and_then(real).zip(real(from)).is_some_and(|(to, from)| to.starts_with(from));
    if inside && from.is_dir() && !from.is_symlink() {
        return Err(Error::Conflict(format!("{} can't be put inside of itself", from.display())));
    }
    Ok(())
}

fn rename_now(from: &Path, to: &Path, overwrite: bool) -> std::io::Result<()> {
    if overwrite {
        return std::fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems can't do that in one step.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match std::fs::symlink_metadata(to) {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(from, to),
        },
        other => other.map_err(Into::into),
    }
}

/// Copies to a name beside `to`, then puts it in place: nobody sees half a copy.
fn copy_beside(from: &Path, to: &Path, overwrite: bool) -> Result<()> {
    let failed = |e| Error::file(format_args!("copying {} to {}", from.display(), to.display()), &e);
    if !overwrite && std::fs::symlink_metadata(to).is_ok() {
        return Err(failed(ErrorKind::AlreadyExists.into()));
    }
    let (Some(parent), Some(name)) = (to.parent(), to.file_name()) else {
        return Err(failed(ErrorKind::AlreadyExists.into()));
    };
    let temporary = temporary_name(parent, name);
    let copied = copy_tree(from, &temporary, DEPTH_LIMIT).and_then(|()| rename_now(&temporary, to, overwrite));
    copied.map_err(|e| {
        let _ = remove(&temporary);
        failed(e)
    })
}

fn copy_tree(from: &Path, to: &Path, depth: u32) -> std::io::Result<()> {
    let meta = std::fs::symlink_metadata(from)?;
    if meta.is_symlink() {
        return std::os::unix::fs::symlink(std::fs::read_link(from)?, to);
    }
    if meta.is_file() {
        return std::fs::copy(from, to).map(drop);
    }
    if !meta.is_dir() {
        let text = format!("{} is neither a file nor a directory nor a link", from.display());
        return Err(std::io::Error::new(ErrorKind::InvalidInput, text));
    }
    if depth == 0 {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "the directory is too deep"));
    }
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
    }
    // Last, because a directory may be read-only.
    std::fs::set_permissions(to, meta.permissions())
}

fn remove(path: &Path) -> std::io::Result<()> {
    if std::fs::symlink_metadata(path)?.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directories_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert!(matches!(make_directory(path.clone(), false, None).await, Err(Error::NotFound(_))));
        let made = make_directory(path.clone(), true, Some(0o700)).await.unwrap();
        assert_eq!(made.mode, "0700");
        assert!(matches!(make_directory(path.clone(), false, None).await, Err(Error::Conflict(_))));
        make_directory(path.clone(), true, Some(0o777)).await.unwrap();
        assert_eq!(found(&path).unwrap().mode, "0700", "what exists is left as it is");
        std::fs::write(path.join("f"), "").unwrap();
        assert!(matches!(make_directory(path.join("f"), true, None).await, Err(Error::Conflict(_))));
        assert!(matches!(make_directory(path.join("f/g"), true, None).await, Err(Error::Conflict(_))));
    }

    #[tokio::test]
    async fn moving_and_copying_do_not_overwrite_unless_told() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), "a").unwrap();
        std::fs::write(at("b"), "b").unwrap();
        assert!(matches!(rename(at("a"), at("b"), false, false).await, Err(Error::Conflict(_))));
        assert!(matches!(copy(at("a"), at("b"), false, false).await, Err(Error::Conflict(_))));
        copy(at("a"), at("b"), true, false).await.unwrap();
        assert_eq!(std::fs::read_to_string(at("b")).unwrap(), "a");
        rename(at("a"), at("deep/er/c"), false, true).await.unwrap();
        assert!(!at("a").exists() && at("deep/er/c").exists());
        assert!(matches!(rename(at("a"), at("x"), false, false).await, Err(Error::NotFound(_))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no leftovers");
    }

    #[tokio::test]
    async fn trees_are_copied_with_links_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("t/sub")).unwrap();
        std::fs::write(at("t/sub/run"), "x").unwrap();
        std::fs::set_permissions(at("t/sub/run"), Permissions::from_mode(0o751)).unwrap();
        std::os::unix::fs::symlink("sub/run", at("t/link")).unwrap();
        copy(at("t"), at("u"), false, false).await.unwrap();
        assert_eq!(std::fs::read_link(at("u/link")).unwrap(), Path::new("sub/run"));
        assert_eq!(found(&at("u/sub/run")).unwrap().mode, "0751");
        assert!(matches!(copy(at("t"), at("t/sub/again"), false, false).await, Err(Error::Conflict(_))));
        assert!(matches!(rename(at("t"), at("t/sub/again"), false, false).await, Err(Error::Conflict(_))));
    }

    #[tokio::test]
    async fn deleting_is_careful() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir_all(home.join("d/e")).unwrap();
        std::os::unix::fs::symlink("d", home.join("link")).unwrap();
        let gone = |path: PathBuf, recursive| delete(path, recursive, home.clone());
        assert!(matches!(gone(home.join("d"), false).await, Err(Error::Conflict(_))));
        gone(home.join("link"), true).await.unwrap();
        assert!(home.join("d/e").exists(), "a link is deleted, not what it leads to");
        gone(home.join("d"), true).await.unwrap();
        for path in [home.clone(), dir.path().to_owned(), "/".into(), home.join("x/..").join(".")] {
            std::fs::create_dir_all(home.join("x")).unwrap();
            assert!(matches!(gone(path.clone(), true).await, Err(Error::Denied(_))), "{path:?}");
        }
        assert!(matches!(gone(home.join("d"), true).await, Err(Error::NotFound(_))));
    }
}
