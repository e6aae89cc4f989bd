//! What clients note about files, kept beside the content as extended attributes.

use super::{blocking, info};
use crate::error::{Error, Result};
use hotdesk_api::file::FileInfo;
use rustix::fs::XattrFlags;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How the attributes' names begin; clients of another maker's files know them by it.
const PREFIX: &str = "user.e2b.";
/// The kernel's limits: of a name without our part, and what fits beside other attributes into one block of a disk.
const LONGEST_NAME: usize = 255 - PREFIX.len();
const LARGEST: usize = 4096;
/// The kernel's limit for all names of attributes of a file.
const MOST_NAMES: usize = 64 << 10;

/// Replaces all notes of a file.
pub async fn write(path: PathBuf, notes: BTreeMap<String, String>) -> Result<FileInfo> {
    let notes: BTreeMap<String, String> = notes.into_iter().map(|(name, text)| (name.to_ascii_lowercase(), text)).collect();
    let printable = |text: &str| text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let size: usize = notes.iter().map(|(name, text)| name.len() + text.len()).sum();
    for (name, text) in &notes {
        if name.is_empty() || name.len() > LONGEST_NAME || !printable(name) || !printable(text) {
            return Err(Error::Invalid(format!("a note has a name of 1 to {LONGEST_NAME} bytes and both are printable ASCII")));
        }
    }
    if size > LARGEST {
        return Err(Error::Invalid(format!("the notes of a file have {size} bytes, more than {LARGEST}")));
    }
    blocking(move || {
        let failed = |e: std::io::Error| Error::file(format_args!("noting on {}", path.display()), &e);
        let meta = std::fs::metadata(&path).map_err(failed)?;
        for name in names(&path).into_iter().filter(|name| !notes.contains_key(name)) {
            rustix::fs::removexattr(&path, format!("{PREFIX}{name}")).map_err(|e| failed(e.into()))?;
        }
        for (name, text) in &notes {
            rustix::fs::setxattr(&path, format!("{PREFIX}{name}"), text.as_bytes(), XattrFlags::empty())
                .map_err(|e| failed(e.into()))?;
        }
        Ok(info(&path, &meta))
    })
    .await
}

/// The notes of a file; none where the file system has no room for any.
pub(super) fn read(path: &Path) -> BTreeMap<String, String> {
    let text = |name: &String| {
        let mut buffer = [0; LARGEST];
        let size = rustix::fs::lgetxattr(path, format!("{PREFIX}{name}"), &mut buffer[..]).ok()?;
        String::from_utf8(buffer[..size].to_vec()).ok()
    };
    names(path).into_iter().filter_map(|name| Some((name.clone(), text(&name)?))).collect()
}

fn names(path: &Path) -> Vec<String> {
    // Most files have none, and few have more than a handful.
    let mut few = [0; 1024];
    let mut many = Vec::new();
    let found = match rustix::fs::llistxattr(path, &mut few[..]) {
        Ok(size) => &few[..size],
        Err(rustix::io::Errno::RANGE) => {
            many.resize(MOST_NAMES, 0);
            let size = rustix::fs::llistxattr(path, &mut many[..]).unwrap_or(0);
            &many[..size]
        }
        Err(_) => return Vec::new(),
    };
    let all = found.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    all.filter_map(|name| name.strip_prefix(PREFIX)).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notes_are_replaced_as_a_whole() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>();
        let noted = write(path.clone(), map(&[("Origin", "here"), ("n", "1")])).await.unwrap();
        assert_eq!(noted.notes, map(&[("origin", "here"), ("n", "1")]));
        assert_eq!(write(path.clone(), map(&[("n", "2")])).await.unwrap().notes, map(&[("n", "2")]));
        assert!(write(path.clone(), BTreeMap::new()).await.unwrap().notes.is_empty());
        for bad in [map(&[("", "x")]), map(&[("a", "\n")]), map(&[("a", &"x".repeat(5000))])] {
            assert!(matches!(write(path.clone(), bad).await, Err(Error::Invalid(_))));
        }
    }
}
