//! Listing directories.

use super::{blocking, info};
use crate::error::{Error, Result};
use hotdesk_api::file::{FileList, Unreadable};
use std::path::{Path, PathBuf};

/// How many entries one answer holds: some 5 MB of JSON.
pub const ENTRY_LIMIT: usize = 20_000;
/// Deeper than any tree that people make.
pub const DEPTH_LIMIT: u32 = 64;

/// What is in a directory, down to `depth` levels. Links to directories are not followed.
pub async fn list(path: PathBuf, depth: u32, hidden: bool) -> Result<FileList> {
    if depth == 0 || depth > DEPTH_LIMIT {
        return Err(Error::Invalid(format!("the depth is {depth}, but has to be from 1 to {DEPTH_LIMIT}")));
    }
    blocking(move || {
        let mut list =
            FileList { path: path.to_string_lossy().into_owned(), entries: Vec::new(), truncated: false, unreadable: Vec::new() };
        // The top has to be readable; what is below is told apart.
        let top = children(&path, hidden).map_err(|e| Error::file(path.display(), &e))?;
        add(&mut list, top, depth, hidden);
        Ok(list)
    })
    .await
}

fn add(list: &mut FileList, children: Vec<PathBuf>, depth: u32, hidden: bool) {
    for path in children {
        if list.entries.len() >= ENTRY_LIMIT {
            list.truncated = true;
            return;
        }
        // Gone since it was listed: then it is not there.
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        list.entries.push(info(&path, &meta));
        if meta.is_dir() && depth > 1 {
            match self::children(&path, hidden) {
                Ok(below) => add(list, below, depth - 1, hidden),
                Err(e) => {
                    let reason = Error::file(path.display(), &e).to_string();
                    list.unreadable.push(Unreadable { path: path.to_string_lossy().into_owned(), reason });
                }
            }
        }
    }
}

fn children(path: &Path, hidden: bool) -> std::io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        if hidden || !name.as_encoded_bytes().starts_with(b".") {
            names.push(path.join(name));
        }
        // Enough to know that the list is not complete.
        if names.len() > ENTRY_LIMIT {
            break;
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::file::FileKind;

    #[tokio::test]
    async fn a_tree_is_listed_in_order_and_loops_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("b/c")).unwrap();
        std::fs::write(root.join("b/c/deep"), "12345").unwrap();
        std::fs::write(root.join("a"), "").unwrap();
        std::fs::write(root.join(".hidden"), "").unwrap();
        std::os::unix::fs::symlink(".", root.join("loop")).unwrap();
        let names = async |depth, hidden| {
            let found = list(root.to_owned(), depth, hidden).await.unwrap();
            found.entries.into_iter().map(|e| e.name).collect::<Vec<_>>()
        };
        assert_eq!(names(1, true).await, [".hidden", "a", "b", "loop"]);
        assert_eq!(names(9, false).await, ["a", "b", "c", "deep", "loop"]);
        let all = list(root.to_owned(), 9, false).await.unwrap();
        let by_name = |name| all.entries.iter().find(|e| e.name == name).unwrap();
        assert_eq!((by_name("deep").size, by_name("deep").kind), (5, FileKind::File));
        assert_eq!((by_name("loop").kind, by_name("loop").target.as_deref()), (FileKind::Symlink, Some(".")));
    }

    #[tokio::test]
    async fn what_cannot_be_listed_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(list(file, 1, true).await, Err(Error::Conflict(_))));
        assert!(matches!(list("/no/such".into(), 1, true).await, Err(Error::NotFound(_))));
        assert!(matches!(list("/".into(), 0, true).await, Err(Error::Invalid(_))));
        assert!(matches!(list("/".into(), 65, true).await, Err(Error::Invalid(_))));
    }

    #[tokio::test]
    async fn a_huge_directory_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..ENTRY_LIMIT + 5 {
            std::fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        let found = list(dir.path().to_owned(), 1, true).await.unwrap();
        assert_eq!((found.entries.len(), found.truncated), (ENTRY_LIMIT, true));
    }
}
