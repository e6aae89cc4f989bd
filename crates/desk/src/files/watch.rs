//! Watching files change.

use super::blocking;
use crate::error::{Error, Result};
use hotdesk_api::file::WatchEvent;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

/// Watches at a time. Each has a thread and an inotify instance, of which a user has 128 by default.
pub const WATCH_LIMIT: usize = 32;
static PLACES: Semaphore = Semaphore::const_new(WATCH_LIMIT);

/// Events that wait for a slow reader; when they are too many, the reader is told to look again.
const QUEUE: usize = 1024;

/// The other half of a rename comes at once, or not at all (the file left what is watched).
const RENAME_PAUSE: Duration = Duration::from_millis(20);

/// A running watch; ends when dropped.
pub struct Watch {
    events: mpsc::Receiver<notify::Event>,
    lost: Arc<AtomicBool>,
    /// The first half of a rename, or what has to be told before anything else.
    half: Option<PathBuf>,
    next: Option<notify::Event>,
    first: Option<WatchEvent>,
    _watcher: RecommendedWatcher,
    _place: SemaphorePermit<'static>,
}

/// Watches a file or a directory, with all below it if wanted. Content is told when its writer is done, or at each write.
pub async fn watch(path: PathBuf, recursive: bool, every_write: bool) -> Result<Watch> {
    let place = PLACES.try_acquire().map_err(|_| Error::TooMany { what: "watches", limit: WATCH_LIMIT })?;
    blocking(move || {
        let (sender, events) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicBool::new(false));
        let told = lost.clone();
        let handler = move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            if event.need_rescan() || (wanted(&event.kind, every_write) && sender.try_send(event).is_err()) {
                told.store(true, Ordering::Relaxed);
            }
        };
        let mut watcher = notify::recommended_watcher(handler).map_err(|e| failed(&path, e))?;
        let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        watcher.watch(&path, mode).map_err(|e| failed(&path, e))?;
        let first = Some(WatchEvent::Watching { path: text(&path) });
        Ok(Watch { events, lost, half: None, next: None, first, _watcher: watcher, _place: place })
    })
    .await
}

impl Watch {
    /// The next change. The first answer is `watching`.
    pub async fn next(&mut self) -> WatchEvent {
        if let Some(first) = self.first.take() {
            return first;
        }
        loop {
            // Told when the queue is empty again: what came before is still true.
            if self.half.is_none() && self.next.is_none() && self.events.is_empty() && self.lost.swap(false, Ordering::Relaxed) {
                return WatchEvent::Overflow;
            }
            let event = match self.next.take() {
                Some(event) => Some(event),
                None if self.half.is_some() => tokio::time::timeout(RENAME_PAUSE, self.events.recv()).await.unwrap_or(None),
                None => match self.events.recv().await {
                    Some(event) => Some(event),
                    None => return WatchEvent::Failed { reason: "the system ended the watch".into() },
                },
            };
            if let Some(told) = self.translate(event) {
                return told;
            }
        }
    }

    /// One change as it is told, if it is.
    fn translate(&mut self, event: Option<notify::Event>) -> Option<WatchEvent> {
        let kind = event.as_ref().map(|e| e.kind);
        let completes = matches!(kind, Some(EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both))));
        if !completes && let Some(path) = self.half.take() {
            self.next = event;
            return Some(WatchEvent::Removed { path: text(&path) });
        }
        let event = event?;
        let path = event.paths.first()?;
        let told = match event.kind {
            EventKind::Create(_) => WatchEvent::Created { path: text(path) },
            EventKind::Remove(_) => WatchEvent::Removed { path: text(path) },
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                self.half = Some(path.clone());
                return None;
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                // With a first half the whole is the next event.
                if self.half.is_some() {
                    return None;
                }
                WatchEvent::Created { path: text(path) }
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
                self.half = None;
                WatchEvent::Renamed { from: text(path), to: text(event.paths.get(1)?) }
            }
            EventKind::Modify(ModifyKind::Metadata(_)) => WatchEvent::Attributes { path: text(path) },
            EventKind::Modify(_) | EventKind::Access(_) => WatchEvent::Modified { path: text(path) },
            EventKind::Any | EventKind::Other => return None,
        };
        Some(told)
    }
}

fn wanted(kind: &EventKind, every_write: bool) -> bool {
    match kind {
        EventKind::Create(_) | EventKind::Remove(_) => true,
        EventKind::Modify(ModifyKind::Data(_)) => every_write,
        EventKind::Modify(kind) => matches!(kind, ModifyKind::Name(_) | ModifyKind::Metadata(_)),
        EventKind::Access(kind) => !every_write && matches!(kind, AccessKind::Close(AccessMode::Write)),
        EventKind::Any | EventKind::Other => false,
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn failed(path: &Path, error: notify::Error) -> Error {
    match error.kind {
        notify::ErrorKind::PathNotFound => Error::NotFound(format!("{}: No such file or directory", path.display())),
        notify::ErrorKind::Io(e) => match e.raw_os_error() {
            Some(nix::libc::EMFILE) => no_more_watches(),
            _ => Error::file(path.display(), &e),
        },
        notify::ErrorKind::MaxFilesWatch => no_more_watches(),
        other => Error::Internal(format!("watching {}: {other:?}", path.display())),
    }
}

fn no_more_watches() -> Error {
    Error::Unsupported {
        what: "watching so many files".into(),
        reason: "the system's limit for inotify is reached".into(),
        hint: "raise `fs.inotify.max_user_watches` and `fs.inotify.max_user_instances`, or watch without `recursive`".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_are_told_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        let path = |name: &str| text(&at(name));
        std::fs::create_dir(at("sub")).unwrap();
        let other = tempfile::tempdir().unwrap();
        let mut watch = watch(root.clone(), true, false).await.unwrap();
        assert_eq!(watch.next().await, WatchEvent::Watching { path: text(&root) });
        std::fs::write(at("sub/a"), "x").unwrap();
        assert_eq!(watch.next().await, WatchEvent::Created { path: path("sub/a") });
        assert_eq!(watch.next().await, WatchEvent::Modified { path: path("sub/a") });
        std::fs::rename(at("sub/a"), at("b")).unwrap();
        assert_eq!(watch.next().await, WatchEvent::Renamed { from: path("sub/a"), to: path("b") });
        std::fs::rename(at("b"), other.path().join("b")).unwrap();
        assert_eq!(watch.next().await, WatchEvent::Removed { path: path("b") });
        std::fs::rename(other.path().join("b"), at("c")).unwrap();
        assert_eq!(watch.next().await, WatchEvent::Created { path: path("c") });
        std::fs::remove_file(at("c")).unwrap();
        // Deleting changes the number of links, which is an attribute, before it deletes.
        loop {
            match watch.next().await {
                WatchEvent::Attributes { .. } => {}
                event => break assert_eq!(event, WatchEvent::Removed { path: path("c") }),
            }
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = watch(dir.path().to_owned(), false, false).await.unwrap();
        watch.next().await;
        for n in 0..QUEUE {
            std::fs::write(dir.path().join(n.to_string()), "x").unwrap();
        }
        let mut told = 0;
        loop {
            match watch.next().await {
                WatchEvent::Overflow => break,
                _ => told += 1,
            }
        }
        assert!(told >= QUEUE, "{told}");
    }

    #[tokio::test]
    async fn what_is_not_there_cannot_be_watched() {
        assert!(matches!(watch("/no/such".into(), true, false).await.err(), Some(Error::NotFound(_))));
    }
}
