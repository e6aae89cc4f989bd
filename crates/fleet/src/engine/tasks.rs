//! Work in the background: it ends with the fleet, and a panic in it ends nothing else.

use super::Engine;
use crate::telemetry;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pause before a loop that panicked is started again; it doubles up to the last one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// A loop that went on for so long has got over it.
const CALM: Duration = Duration::from_secs(60);

/// How often each kind of work panicked.
#[derive(Default)]
pub(crate) struct Panics(Mutex<BTreeMap<&'static str, u64>>);

impl Panics {
    pub(crate) fn note(&self, what: &'static str, panic: &(dyn Any + Send)) {
        let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(task = what, panic = words.unwrap_or("no words"), "a task panicked; this is a bug, please report it");
        telemetry::panicked(what);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(what, count)| (*what, *count)).collect()
    }
}

impl Engine {
    /// Work that is done once.
    pub(crate) fn spawn(&self, what: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(what, Box::pin(work));
    }

    /// Boxed, so that the runtime is compiled once and not for every kind of work.
    fn spawn_boxed(&self, what: &'static str, work: BoxFuture<'static, ()>) {
        let (killed, panics) = (self.killed.clone(), Arc::clone(&self.panics));
        self.tasks.spawn(killed.run_until_cancelled_owned(async move {
            if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
                panics.note(what, &*panic);
            }
        }));
    }

    /// Work that goes on until the fleet closes: when it panics it is begun anew.
    pub(crate) fn keep<F>(&self, what: &'static str, work: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (closing, panics) = (self.closing.clone(), Arc::clone(&self.panics));
        self.spawn(what, async move {
            again_after_panics(&panics, what, move || Box::pin(work()) as BoxFuture<'static, ()>, closing).await;
        });
    }
}

/// Does the work until it ends by itself; after a panic it is begun anew, unless the fleet closes.
pub(crate) async fn again_after_panics<F>(panics: &Panics, what: &'static str, work: impl Fn() -> F, closing: CancellationToken)
where
    F: Future<Output = ()>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let Err(panic) = AssertUnwindSafe(work()).catch_unwind().await else { return };
        panics.note(what, &*panic);
        if begun.elapsed() > CALM {
            pause = FIRST_PAUSE;
        }
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
