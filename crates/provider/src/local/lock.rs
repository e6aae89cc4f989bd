//! One change of a desk at a time: among our own tasks, and among processes that share the directory.

use super::directory::{Directory, trouble};
use crate::Result;
use rustix::fs::{FlockOperation, flock};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::OwnedMutexGuard;

/// The locks of all desks.
#[derive(Default)]
pub(crate) struct Locks {
    tasks: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// The right to change a desk.
pub(crate) struct Lock {
    pub(crate) file: File,
    path: PathBuf,
    _task: OwnedMutexGuard<()>,
}

impl Locks {
    /// Waits until nobody else changes the desk.
    pub(crate) async fn take(&self, directory: &Directory, id: &str) -> Result<Lock> {
        self.take_file(directory.lock(id), id).await
    }

    /// The same with a lock file that lies elsewhere.
    pub(crate) async fn take_file(&self, path: PathBuf, id: &str) -> Result<Lock> {
        let mutex = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.retain(|_, mutex| mutex.strong_count() > 0);
            let known = tasks.get(id).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let mutex = Arc::new(tokio::sync::Mutex::new(()));
                tasks.insert(id.to_owned(), Arc::downgrade(&mutex));
                mutex
            })
        };
        let task = mutex.lock_owned().await;
        let file = match attempt(&path)? {
            Some(file) => file,
            None => {
                // A helper of an earlier life is still at work.
                let path = path.clone();
                tokio::task::spawn_blocking(move || wait(&path)).await.map_err(|e| crate::Error::Failed(e.to_string()))??
            }
        };
        Ok(Lock { file, path, _task: task })
    }
}

impl Lock {
    /// Removes the lock's file; for a desk that is gone.
    pub(crate) fn forget(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The lock, if nobody has it.
fn attempt(path: &Path) -> Result<Option<File>> {
    loop {
        let file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, path) => return Ok(Some(file)),
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(trouble("lock", path, &e.into())),
        }
    }
}

fn wait(path: &Path) -> Result<File> {
    loop {
        let file = open(path)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|e| trouble("lock", path, &e.into()))?;
        if is_at(&file, path) {
            return Ok(file);
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let options = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    options.map_err(|e| trouble("open", path, &e))
}

/// Whether the file that we locked is still the one of that name; whoever deleted the desk took it away.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let locks = Arc::new(Locks::default());
        let held = locks.take(&directory, "d").await.unwrap();
        locks.take(&directory, "e").await.unwrap();
        let waiting = tokio::spawn({
            let (locks, directory) = (locks.clone(), directory.clone());
            async move { locks.take(&directory, "d").await.map(|_| ()) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        held.forget();
        waiting.await.unwrap().unwrap();
        assert!(folder.path().join("locks/d").exists(), "the one that waited has a file of its own");
    }

    #[tokio::test]
    async fn another_process_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        // Another open file is as good as another process.
        let other = open(&directory.lock("d")).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        let locks = Arc::new(Locks::default());
        let waiting = tokio::spawn({
            let (locks, directory) = (locks.clone(), directory.clone());
            async move { locks.take(&directory, "d").await.map(|_| ()) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(other);
        waiting.await.unwrap().unwrap();
    }
}
