//! An older copy of the store that somebody put back.
//!
//! Such a store does not know what was made after the copy, and believes things of before: desks that were claimed are in their
//! pools again, times to live that were extended are over, steps that were done are to be done. Whatever acts on that destroys work.
//!
//! So the number of the newest event is kept beside the data too, in a file of the data directory. A store whose newest event is
//! older than that was put back. Then, before anything else:
//!
//! | what it says | what is made of it |
//! |---|---|
//! | it is an older copy | the fact `put_back`; until an admin settles it, what the store does not know is only reported |
//! | a desk is in the midst of a step | stopped: the step was done or given up since. But a desk that was to be deleted goes |
//! | a desk's time is nearly over | it has a day |
//! | a desk was stopped, archived or in error since | since now, so that its policies begin anew |
//! | a desk waits in a pool | it is out of it: somebody may have had it since |
//! | the number of the newest event | the one in the file, so that whoever follows the events misses nothing |

use crate::clock::rfc3339;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::state;
use crate::store::{Record, facts};
use hotdesk_api::desk::{Event, State};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Its name in the data directory.
pub(crate) const FILE: &str = "events-seen";
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// What is left of the time of a desk when an older copy was put back.
const MERCY_MS: i64 = 24 * 3600 * 1000;
const REASON: &str = "an older copy of the store was put back";

/// Finds out whether the store is an older copy, and makes it harmless. Before any record is read.
pub(crate) async fn open(engine: &Engine) -> Result<()> {
    let newest = engine.store.newest().await?;
    let seen = engine.mark.as_deref().map_or(0, read);
    if newest < seen {
        tracing::error!(
            newest,
            seen,
            "the store is an older copy than the data directory knows: nothing that it does not know is removed; \
             `hotdesk orphan ls` shows it, and docs/operating.md says how to go on"
        );
        tame(engine, seen).await?;
    }
    look(engine).await
}

/// Whether an admin has settled it meanwhile, at another orchestrator too.
pub(crate) async fn look(engine: &Engine) -> Result<()> {
    let put_back = engine.store.fact(facts::PUT_BACK).await?.is_some();
    engine.put_back.store(put_back, Ordering::Relaxed);
    Ok(())
}

/// Notices when the store went back while we run, e.g. to a replica that lagged behind. What we hold in memory does not fit it any more.
pub(crate) async fn watch(engine: &Engine) -> Result<()> {
    look(engine).await?;
    // Before the store is asked: what comes meanwhile is news, and not lost.
    let seen = engine.last_event.load(Ordering::Relaxed);
    if engine.store.newest().await? < seen {
        engine.put_back.store(true, Ordering::Relaxed);
        if !engine.lost_events.swap(true, Ordering::Relaxed) {
            tracing::error!("the store lost events that it had acknowledged; nothing is removed any more, restart hotdesk");
        }
    }
    Ok(())
}

/// Can be done again from the start, should it be interrupted: the number is raised last.
async fn tame(engine: &Engine, seen: i64) -> Result<()> {
    let now = engine.clock.now_ms();
    let store = &engine.store;
    store.put_fact(facts::PUT_BACK, &now.to_string(), true).await?;
    for record in store.desks().await? {
        let Some(changed) = tamed(&record, now).filter(|changed| !changed.unreadable) else { continue };
        // Without an event, which would raise the number: an interruption here must be noticed at the next start.
        match store.update(&changed, None).await {
            // Another orchestrator does the same.
            Ok(_) | Err(Error::Conflict(_)) => {}
            Err(e) => return Err(e),
        }
    }
    crate::reconcile::orphans::keep_all(engine).await?;
    store.raise_events(seen).await?;
    let event = Event {
        number: 0,
        at: rfc3339(now),
        desk: None,
        project: None,
        kind: "put_back".into(),
        state: None,
        reason: format!("{REASON}; what it does not know is kept until somebody decides"),
        by: "fleet".into(),
    };
    store.event(event).await.map(drop)
}

fn tamed(record: &Record, now: i64) -> Option<Record> {
    let mut new = record.clone();
    if state::is_step(record.state) && record.state != State::Deleting {
        new.state = State::Stopped;
        new.reason = REASON.into();
    }
    if record.pool.is_some() {
        new.pool = None;
        new.reason = format!("{REASON}; it was in a pool then, and may have been somebody's since");
    }
    if !state::is_step(new.state) && new.state != State::Running {
        new.changed_ms = now.max(record.changed_ms + 1);
    }
    new.active_ms = now;
    new.expires_ms = record.expires_ms.map(|end| end.max(now + MERCY_MS));
    (new != *record).then_some(new)
}

/// Keeps the file up to date until the fleet closes.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let Some(path) = engine.mark.clone() else { return };
    let mut written = 0;
    loop {
        let closing = tokio::select! {
            () = engine.closing.cancelled() => true,
            () = tokio::time::sleep(WRITE_EVERY) => false,
        };
        let mut newest = engine.last_event.load(Ordering::Relaxed);
        if closing {
            // The last ones may not have been passed on yet.
            newest = engine.store.newest().await.map_or(newest, |last| last.max(newest));
        }
        if newest > written && !engine.lost_events.load(Ordering::Relaxed) {
            let to = path.clone();
            // Another orchestrator that shares the directory may know more.
            let writing = tokio::task::spawn_blocking(move || write(&to, newest.max(read(&to))));
            match writing.await {
                Ok(Ok(())) => written = newest,
                Ok(Err(e)) => {
                    tracing::warn!(file = %path.display(), error = %e, "the number of the newest event was not written")
                }
                Err(_) => {}
            }
        }
        if closing {
            return;
        }
    }
}

/// A file that is not there or not readable says nothing.
fn read(path: &Path) -> i64 {
    match std::fs::read_to_string(path) {
        Ok(text) => text.trim().parse().unwrap_or_else(|_| {
            tracing::warn!(file = %path.display(), "it should hold one number, and does not; it is written anew");
            0
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
        Err(e) => {
            tracing::warn!(file = %path.display(), error = %e, "the number of the newest event can't be read");
            0
        }
    }
}

/// As a whole or not at all.
fn write(path: &Path, newest: i64) -> std::io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    writeln!(file, "{newest}")?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}
