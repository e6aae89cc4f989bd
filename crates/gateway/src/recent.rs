//! What was found a moment ago, so that a page's hundred requests cost one look at the fleet or the store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a finding is taken for true: a right that was taken back ends this much later at most.
const FRESH: Duration = Duration::from_secs(2);
/// Beyond so many, all are forgotten; only good ones are kept, so strangers can't fill it.
const MOST: usize = 4096;

/// Findings by name.
pub(crate) struct Recent<V>(Mutex<HashMap<String, (V, Instant)>>);

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> Recent<V> {
    pub(crate) fn get(&self, name: &str) -> Option<V> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(name).filter(|(_, at)| at.elapsed() < FRESH).map(|(value, _)| value.clone())
    }

    pub(crate) fn put(&self, name: &str, value: V) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST {
            found.clear();
        }
        found.insert(name.to_owned(), (value, Instant::now()));
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    pub(crate) fn prune(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (_, at)| at.elapsed() < FRESH);
    }
}
