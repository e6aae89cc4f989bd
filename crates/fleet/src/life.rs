//! Idleness and the policies that follow from it.
//!
//! A desk that is working is not idle, whatever the calls say. Signs of work, in the order in which they are shown:
//!
//! | sign | how it is seen | shown as |
//! |---|---|---|
//! | a live view, a long request, a command | a [`Busy`] guard lives | what the guard says |
//! | a call | [`crate::Fleet::door`] | `api call` |
//! | viewers, commands, recordings that the desk itself knows of | the desk is asked | `live view`, `command`, `recording` |
//! | programs draw: at least 1 % of the screen changed | the desk is asked | `screen changes` |
//! | CPU: at least 10 % of a core between two looks | the provider is asked | `cpu` |
//!
//! A desk is looked at every 30 s (sooner if its `auto_stop` is shorter than a minute) once nobody called it for so long, and once more right before it would be stopped.
//!
//! | policy | from | what |
//! |---|---|---|
//! | `auto_stop` | the last sign of work | a running desk is stopped |
//! | `auto_archive` | the stop | a stopped desk is archived |
//! | `auto_delete` | the stop | a stopped, archived or failed desk is deleted |
//! | end of life (`ttl`, moved by extend) | creation | deleted, whatever it does |
//!
//! The time of the last sign is kept in the store, at most every 30 s; so a fleet that starts again knows it, and asks every desk before it stops one.

mod look;
mod policy;

pub use look::{HttpLook, Look};
pub(crate) use policy::{keep, save, stop};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the last sign of work is written down.
pub(crate) const SAVE_EVERY_MS: i64 = 30_000;
/// A call counts as work going on for so long.
const CALL_LASTS_MS: i64 = 5_000;

/// A desk is busy while this lives.
#[must_use = "the desk is busy for as long as this lives"]
pub struct Busy {
    desk: Option<(Arc<crate::view::Entry>, crate::clock::Clock)>,
    why: &'static str,
}

impl Busy {
    pub(crate) fn new(desk: Option<Arc<crate::view::Entry>>, clock: crate::clock::Clock, why: &'static str) -> Self {
        if let Some(desk) = &desk {
            *desk.live.lock().guards.entry(why).or_default() += 1;
            desk.live.touch(clock.now_ms());
        }
        Self { desk: desk.map(|d| (d, clock)), why }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Some((desk, clock)) = &self.desk else { return };
        let mut signs = desk.live.lock();
        if let Some(count) = signs.guards.get_mut(self.why) {
            *count -= 1;
            if *count == 0 {
                signs.guards.remove(self.why);
            }
        }
        drop(signs);
        desk.live.touch(clock.now_ms());
    }
}

/// What is known of a desk's work in this process.
pub(crate) struct Live {
    /// The last sign of work.
    active_ms: AtomicI64,
    /// The last call through us.
    called_ms: AtomicI64,
    signs: Mutex<Signs>,
}

#[derive(Default)]
struct Signs {
    stage: Option<String>,
    guards: BTreeMap<&'static str, u32>,
    /// When the desk was last asked, what it said, and its CPU seconds then.
    looked_ms: i64,
    seen: Option<&'static str>,
    cpu: Option<(i64, f64)>,
    /// Cores in use between the last two looks.
    load: Option<f64>,
}

impl Live {
    pub(crate) fn new(active_ms: i64) -> Self {
        Self { active_ms: AtomicI64::new(active_ms), called_ms: AtomicI64::new(i64::MIN / 2), signs: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Signs> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call came through.
    pub(crate) fn call(&self, now_ms: i64) {
        self.called_ms.store(now_ms, Ordering::Relaxed);
        self.touch(now_ms);
    }

    pub(crate) fn touch(&self, now_ms: i64) {
        self.active_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// A sign that was read from the store.
    pub(crate) fn seen(&self, active_ms: i64) {
        self.touch(active_ms);
    }

    /// The last sign of work; now, while a guard lives.
    pub(crate) fn active_ms(&self, now_ms: i64) -> i64 {
        if !self.lock().guards.is_empty() {
            self.touch(now_ms);
        }
        self.active_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn idle(&self, now_ms: i64) -> Duration {
        Duration::from_millis(u64::try_from(now_ms - self.active_ms(now_ms)).unwrap_or(0))
    }

    /// What counts as work right now.
    pub(crate) fn busy(&self, now_ms: i64) -> Option<&'static str> {
        let signs = self.lock();
        if let Some((why, _)) = signs.guards.first_key_value() {
            return Some(why);
        }
        if now_ms - self.called_ms.load(Ordering::Relaxed) < CALL_LASTS_MS {
            return Some("api call");
        }
        signs.seen
    }

    pub(crate) fn stage(&self) -> Option<String> {
        self.lock().stage.clone()
    }

    /// True if that is news.
    pub(crate) fn set_stage(&self, stage: Option<String>) -> bool {
        let mut signs = self.lock();
        let news = signs.stage != stage;
        signs.stage = stage;
        news
    }
}
