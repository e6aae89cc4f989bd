//! All live desks in memory, so that looking never touches the store.
//!
//! The store is the truth; this is what we last read or wrote of it, ordered by each record's version. A desk's entry outlives its place
//! in the view: whoever waits for it sees its end.

use crate::life::Live;
use crate::state;
use crate::store::Record;
use hotdesk_api::desk::State;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// One desk.
pub(crate) struct Entry {
    pub(crate) id: String,
    record: RwLock<Arc<Record>>,
    /// Grows with each change of the record or of its stage.
    ticks: watch::Sender<u64>,
    /// One writer at a time in this process; others are refused by the store.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// What is known of its work right now.
    pub(crate) live: Live,
}

impl Entry {
    fn new(record: Record) -> Self {
        Self {
            id: record.id.clone(),
            live: Live::new(record.active_ms),
            record: RwLock::new(Arc::new(record)),
            ticks: watch::channel(0).0,
            writing: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn record(&self) -> Arc<Record> {
        Arc::clone(&self.record.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    pub(crate) fn tick(&self) {
        self.ticks.send_modify(|n| *n += 1);
    }

    /// Waits until the record is as `good` wants it.
    pub(crate) async fn until(&self, good: impl Fn(&Record) -> bool) -> Arc<Record> {
        let mut ticks = self.watch();
        loop {
            ticks.mark_unchanged();
            let record = self.record();
            if good(&record) || ticks.changed().await.is_err() {
                return record;
            }
        }
    }

    /// Waits until no step is under way.
    pub(crate) async fn settled(&self) -> Arc<Record> {
        self.until(|r| !state::is_step(r.state)).await
    }
}

/// What became of a record that was applied.
pub(crate) struct Applied {
    pub(crate) old: Option<Arc<Record>>,
    pub(crate) new: Arc<Record>,
}

#[derive(Default)]
struct Map {
    desks: HashMap<String, Arc<Entry>>,
    /// (project, name) → id.
    names: HashMap<(String, String), String>,
}

#[derive(Default)]
pub(crate) struct View(RwLock<Map>);

impl View {
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        self.read().desks.get(id).cloned()
    }

    /// By name in a project; without one, in any, if one desk alone has that name.
    pub(crate) fn named(&self, project: Option<&str>, name: &str) -> Option<Arc<Entry>> {
        let map = self.read();
        let id = if let Some(project) = project {
            map.names.get(&(project.to_owned(), name.to_owned()))?
        } else {
            let mut all = map.names.iter().filter(|((_, n), _)| n == name).map(|(_, id)| id);
            let first = all.next()?;
            if all.next().is_some() {
                return None;
            }
            first
        };
        map.desks.get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.read().desks.values().cloned().collect()
    }

    pub(crate) fn for_each(&self, mut look: impl FnMut(&Entry, &Record)) {
        for entry in self.read().desks.values() {
            let record = entry.record();
            look(entry, &record);
        }
    }

    /// Takes a record in if it is newer than what is known. `None` if it is not.
    pub(crate) fn apply(&self, record: Record) -> Option<Applied> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = map.desks.get(&record.id).cloned() else {
            if record.state == State::Deleted {
                return None;
            }
            let entry = Arc::new(Entry::new(record));
            let new = entry.record();
            if let Some(name) = &new.name {
                map.names.insert((new.project.clone(), name.clone()), new.id.clone());
            }
            map.desks.insert(new.id.clone(), entry);
            return Some(Applied { old: None, new });
        };
        let (old, new) = {
            let mut known = entry.record.write().unwrap_or_else(PoisonError::into_inner);
            if known.version >= record.version {
                return None;
            }
            let new = Arc::new(record);
            (std::mem::replace(&mut *known, Arc::clone(&new)), new)
        };
        entry.live.seen(new.active_ms);
        let gone = new.state == State::Deleted;
        if gone || old.name != new.name || old.project != new.project {
            if let Some(name) = &old.name {
                map.names.remove(&(old.project.clone(), name.clone()));
            }
            if let (Some(name), false) = (&new.name, gone) {
                map.names.insert((new.project.clone(), name.clone()), new.id.clone());
            }
        }
        if gone {
            map.desks.remove(&new.id);
        }
        drop(map);
        entry.tick();
        Some(Applied { old: Some(old), new })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Map> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
