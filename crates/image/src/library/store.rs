//! The directory of what was built. Everything in it appears by a rename or not at all.

use super::{Built, Rootfs};
use crate::builder::remove_tree;
use crate::{Error, PackageLock, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often somebody who waits for another's build looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);
/// Packages that no build used for so long are removed from the cache.
const DEBS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Debug)]
pub(crate) struct Store {
    pub(super) directory: PathBuf,
}

impl Store {
    pub(super) fn open(directory: PathBuf) -> Result<Self> {
        let store = Self { directory };
        for part in ["rootfs", "inputs", "debs", "work", "logs", "users"] {
            let path = store.directory.join(part);
            std::fs::create_dir_all(&path).map_err(|e| {
                let hint = "HOTDESK_IMAGES can name another directory";
                Error::Failed(format!("{} can't be made: {e}; {hint}", path.display()))
            })?;
        }
        store.sweep();
        Ok(store)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn debs(&self) -> PathBuf {
        self.directory.join("debs")
    }

    /// The tree that was built from these inputs.
    pub(super) fn find(&self, template: &str, inputs: &str) -> Option<Rootfs> {
        let digest = std::fs::read_to_string(self.directory.join("inputs").join(inputs)).ok()?;
        let path = self.tree(digest.trim())?;
        path.is_dir().then(|| Rootfs { template: template.into(), path, digest: digest.trim().into() })
    }

    pub(super) fn built(&self, rootfs: &Rootfs) -> Result<Built> {
        let path = rootfs.path.with_extension("json");
        let fail = |e: &dyn std::fmt::Display| Error::Failed(format!("{}: {e}", path.display()));
        serde_json::from_slice(&std::fs::read(&path).map_err(|e| fail(&e))?).map_err(|e| fail(&e))
    }

    pub(super) fn trees(&self) -> Vec<Built> {
        let entries = std::fs::read_dir(self.directory.join("rootfs")).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .filter_map(|path| serde_json::from_slice(&std::fs::read(path.with_extension("json")).ok()?).ok())
            .collect()
    }

    pub(super) fn lock_file(&self, rootfs: &Rootfs) -> Result<PackageLock> {
        let path = rootfs.path.with_extension("lock");
        std::fs::read_to_string(&path).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?.parse()
    }

    /// Takes the one place where these inputs are built; waits while another build has it.
    pub(crate) async fn begin(&self, inputs: &str, stage: &(dyn Fn(&str) + Send + Sync)) -> Result<Place> {
        let directory = self.directory.join("work");
        let lock_path = directory.join(format!("{inputs}.lock"));
        let path = directory.join(inputs);
        let fail = |path: &Path, e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
        let lock = loop {
            let lock = open_lock(&lock_path).map_err(|e| fail(&lock_path, e))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                stage("waiting for another build of the same template");
                tokio::time::sleep(LOOK).await;
            } else if same_file(&lock, &lock_path) {
                break lock;
            }
        };
        remove_tree(&path)?;
        std::fs::create_dir(&path).map_err(|e| fail(&path, e))?;
        Ok(Place { path, lock_path, logs: self.directory.join("logs"), _lock: lock })
    }

    /// Puts a finished tree where desks find it: first what describes it, then the tree, last the name that leads to it.
    pub(super) fn complete(&self, tree: &Path, lock: &str, built: &Built) -> Result<Rootfs> {
        let fail = |e: std::io::Error| Error::Failed(format!("what was built can't be put into place: {e}"));
        let Some(path) = self.tree(&built.digest) else { return Err(Error::Failed("the digest is none".into())) };
        self.write(&path.with_extension("lock"), lock.as_bytes()).map_err(fail)?;
        self.write(&path.with_extension("json"), &serde_json::to_vec_pretty(built).unwrap_or_default()).map_err(fail)?;
        if !path.is_dir() {
            // The tree must be on disk before its name is, or a crash could leave a name that leads to holes.
            if let Ok(directory) = File::open(tree) {
                let _ = rustix::fs::syncfs(&directory);
            }
            std::fs::rename(tree, &path).map_err(fail)?;
        }
        self.write(&self.directory.join("inputs").join(&built.inputs), built.digest.as_bytes()).map_err(fail)?;
        Ok(Rootfs { template: built.template.clone(), path, digest: built.digest.clone() })
    }

    /// In the opposite order: the name first, so that nobody finds half a tree.
    pub(super) fn remove(&self, rootfs: &Rootfs) -> Result<()> {
        for entry in std::fs::read_dir(self.directory.join("inputs")).into_iter().flatten().flatten() {
            if std::fs::read_to_string(entry.path()).is_ok_and(|digest| digest.trim() == rootfs.digest) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let gone = self.take_away(&rootfs.path)?;
        let _ = std::fs::remove_file(rootfs.path.with_extension("json"));
        let _ = std::fs::remove_file(rootfs.path.with_extension("lock"));
        remove_tree(&gone)
    }

    /// Takes the name from a directory at once; what has lost it is swept if nobody removes it.
    pub(crate) fn take_away(&self, path: &Path) -> Result<PathBuf> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let gone = self.directory.join("work").join(format!("{name}.removed"));
        remove_tree(&gone)?;
        std::fs::rename(path, &gone).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?;
        Ok(gone)
    }

    pub(super) fn tree(&self, digest: &str) -> Option<PathBuf> {
        let good = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| self.directory.join("rootfs").join(digest))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(self.directory.join("work"))?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes what builds left that are dead: whoever builds holds a lock.
    fn sweep(&self) {
        let entries = std::fs::read_dir(self.directory.join("work")).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            let lock_path = path.with_extension("lock");
            let Ok(lock) = open_lock(&lock_path) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && same_file(&lock, &lock_path) {
                if let Err(e) = remove_tree(&path) {
                    tracing::warn!("a dead build is in the way: {e}");
                }
                let _ = std::fs::remove_file(&lock_path);
            }
        }
        let old = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(DEBS_KEPT);
        for entry in std::fs::read_dir(self.debs()).into_iter().flatten().flatten() {
            // Every use makes and removes a second name of the file, and that is a change of its status.
            if entry.metadata().is_ok_and(|data| data.is_file() && data.ctime() < old.as_secs() as i64) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// A directory to build in, which goes away with its owner.
pub(crate) struct Place {
    path: PathBuf,
    lock_path: PathBuf,
    logs: PathBuf,
    _lock: File,
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The log of the last build of each template stays, for whoever wants more than its last lines.
    pub(super) fn keep_log(&self, template: &str) {
        let _ = std::fs::rename(self.path.join("log"), self.logs.join(format!("{template}.log")));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(e) = remove_tree(&self.path) {
            tracing::warn!("what a build left is removed at the next start: {e}");
        }
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Whether the file that we locked is still the one that others would lock: its owner removes it at the end.
fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.metadata()) {
        (Ok(ours), Ok(theirs)) => ours.ino() == theirs.ino() && ours.dev() == theirs.dev(),
        _ => false,
    }
}
