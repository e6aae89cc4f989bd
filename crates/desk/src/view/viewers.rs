//! Who looks at the desk right now.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// All live viewers. Cheap to clone.
#[derive(Clone)]
pub struct Viewers {
    all: Arc<Mutex<BTreeMap<u64, Arc<Viewer>>>>,
    count: Arc<watch::Sender<usize>>,
    most: usize,
}

/// One of them.
#[derive(Debug)]
pub struct Viewer {
    pub id: u64,
    /// `127.0.0.1:50000`, or what else is known about where it comes from.
    pub from: String,
    pub since: Instant,
    pub view_only: bool,
    /// What it takes the lease with; plain VNC viewers have none.
    pub word: Option<String>,
    pub frames: AtomicU64,
    pub bytes: AtomicU64,
    /// Ends its session.
    pub(super) leave: CancellationToken,
}

impl Viewer {
    /// What the lease knows it by.
    pub fn seat(&self) -> String {
        self.word.clone().unwrap_or_else(|| format!("vnc-{}", self.id))
    }
}

/// Keeps a viewer in the list as long as it lives.
pub(super) struct Presence {
    pub(super) viewer: Arc<Viewer>,
    viewers: Viewers,
}

impl Viewers {
    pub(super) fn new(most: usize) -> Self {
        Self { all: Arc::default(), count: Arc::new(watch::channel(0).0), most }
    }

    /// How many there are. A desk that somebody looks at is not idle.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Tells whenever their number changes.
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    pub fn list(&self) -> Vec<Arc<Viewer>> {
        self.lock().values().cloned().collect()
    }

    /// None if there are too many. With `alone` all others have to leave.
    pub(super) fn enter(
        &self,
        from: String,
        word: Option<String>,
        view_only: bool,
        alone: bool,
        leave: CancellationToken,
    ) -> Option<Presence> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut all = self.lock();
        if alone {
            all.values().for_each(|other| other.leave.cancel());
        } else if all.len() >= self.most {
            return None;
        }
        let viewer = Arc::new(Viewer {
            id,
            from,
            since: Instant::now(),
            view_only,
            word,
            frames: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            leave,
        });
        all.insert(id, viewer.clone());
        self.count.send_replace(all.len());
        Some(Presence { viewer, viewers: self.clone() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Viewer>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut all = self.viewers.lock();
        all.remove(&self.viewer.id);
        self.viewers.count.send_replace(all.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_come_and_go_and_are_limited() {
        let viewers = Viewers::new(2);
        let enter = |alone| viewers.enter("here".into(), None, false, alone, CancellationToken::new());
        let (a, b) = (enter(false).unwrap(), enter(false).unwrap());
        assert!(enter(false).is_none());
        assert_eq!(viewers.count(), 2);
        let c = enter(true).unwrap();
        assert!(a.viewer.leave.is_cancelled() && b.viewer.leave.is_cancelled() && !c.viewer.leave.is_cancelled());
        drop((a, b));
        assert_eq!(viewers.list().len(), 1);
        drop(c);
        assert_eq!(*viewers.watch().borrow(), 0);
    }
}
