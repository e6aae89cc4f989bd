//! Who builds on what was built: directories in which desks, snapshots and machines are written down.
//!
//! `IMAGES/users/NAME` is a link to such a directory. A tree or a disk is in use while something written down there speaks of
//! its digest: a `.json` file, or a `.qcow2` file that names the disk below it. So nobody has to give anything back, and a
//! directory that is gone means nothing.

use super::Store;
use crate::{Error, Result, digest};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// How many folders deep something is written down: `desks/ID/desk.json`.
const DEPTH: usize = 2;
/// What is read of a record; the head of a disk is shorter.
const LONGEST: u64 = 1 << 20;

impl Store {
    pub(super) fn add_user(&self, directory: &Path) -> Result<()> {
        let fail = |e: std::io::Error| Error::Failed(format!("{} can't be written down as in use: {e}", directory.display()));
        let directory = directory.canonicalize().map_err(fail)?;
        let name = digest::hex(&Sha256::digest(directory.as_os_str().as_encoded_bytes()));
        match std::os::unix::fs::symlink(&directory, self.directory.join("users").join(name)) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(fail(e)),
            _ => Ok(()),
        }
    }

    /// What is written down about this digest, wherever it is used. An error where nobody can tell.
    pub(super) fn users_of(&self, digest: &str) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.directory.join("users")).into_iter().flatten().flatten() {
            let Ok(directory) = std::fs::read_link(entry.path()) else { continue };
            match look(&directory, digest, DEPTH, &mut found) {
                Err(e) if e.kind() == ErrorKind::NotFound && !directory.exists() => {
                    let _ = std::fs::remove_file(entry.path());
                }
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Error::Failed(format!("nobody can tell what {} uses: {e}", directory.display())));
                }
                _ => {}
            }
        }
        found.sort();
        Ok(found)
    }
}

fn look(directory: &Path, digest: &str, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let is_record = path.extension().is_some_and(|end| end == "json" || end == "qcow2");
        if kind.is_dir() && depth > 0 {
            match look(&path, digest, depth - 1, found) {
                // Deleted meanwhile.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                // Files of a desk, which are not ours to see.
                Err(e) if e.kind() == ErrorKind::PermissionDenied && depth == 1 => {}
                other => other?,
            }
        } else if kind.is_file() && is_record && speaks_of(&path, digest)? {
            found.push(path);
        }
    }
    Ok(())
}

fn speaks_of(path: &Path, digest: &str) -> std::io::Result<bool> {
    let mut text = Vec::new();
    match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        file => file?.take(LONGEST).read_to_end(&mut text)?,
    };
    Ok(text.windows(digest.len()).any(|part| part == digest.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_disks_that_speak_of_it_are_users() {
        let (images, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(images.path().into()).unwrap();
        let digest = "ab".repeat(32);
        let root = data.path().canonicalize().unwrap();
        let write = |name: &str, text: String| {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), text).unwrap();
            root.join(name)
        };
        let desk = write("desks/one/desk.json", format!(r#"{{"layers":["/images/rootfs/{digest}"]}}"#));
        let machine = write("disk.qcow2", format!("QFI\u{fb}  /images/disks/{digest}/disk.qcow2"));
        write("desks/two/desk.json", "ac".repeat(32));
        write("desks/two/notes.txt", digest.clone());
        write("desks/two/far/down/x.json", digest.clone());
        assert_eq!(store.users_of(&digest).unwrap(), Vec::<PathBuf>::new(), "nobody said yet that he uses anything");
        store.add_user(data.path()).unwrap();
        store.add_user(data.path()).unwrap();
        assert_eq!(store.users_of(&digest).unwrap(), [desk, machine.clone()]);
        std::fs::remove_dir_all(root.join("desks/one")).unwrap();
        assert_eq!(store.users_of(&digest).unwrap(), [machine]);
        drop(data);
        assert!(store.users_of(&digest).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(images.path().join("users")).unwrap().count(), 0, "a directory that is gone is forgotten");
    }
}
