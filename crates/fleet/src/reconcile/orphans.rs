//! What a provider has and no record knows.
//!
//! A record is written before anything is made, and a deleted desk's record stays for a month. So whatever is left of our own work has
//! a record that says so, and is removed at once. What has no record at all comes from somewhere else: another database, an older copy of this one
//! that was put back, a record that is long forgotten. It may be the only copy of somebody's work. It is stopped and kept for a week, in which `hotdesk adopt`
//! makes it a desk again; then it is removed. Where that would concern many at once, or the store is known to be an older copy, nothing is
//! done to it before somebody decides.

use super::{Leftover, Memory, remove};
use crate::clock::{ms, rfc3339};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::telemetry;
use hotdesk_api::fleet::{Orphan, OrphanKind};
use hotdesk_provider::Provider;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The kind of note that says what is kept.
const NOTE: &str = "orphan";
/// So long it is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// More new ones than this in one look, or more than a few that are a tenth of all, are no accident of a single thing.
const MANY: usize = 10;
const FEW: usize = 3;

/// How it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    since_ms: i64,
    /// When it is removed; none: when somebody decides.
    until_ms: Option<i64>,
    reason: String,
}

/// Something without a record.
pub(super) struct Stranger {
    pub(super) id: String,
    pub(super) running: bool,
}

/// What is to be done with one of them now.
enum Act {
    Stop,
    Remove,
}

fn name(kind: OrphanKind, provider: &str, id: &str) -> String {
    format!("{}/{provider}/{id}", kind.word())
}

/// The provider's things without a record, out of so many that it has.
pub(super) async fn settle(
    engine: &Arc<Engine>,
    memory: &Mutex<Memory>,
    provider: &Arc<dyn Provider>,
    kind: OrphanKind,
    strangers: Vec<Stranger>,
    of: usize,
) -> Result<()> {
    let place = provider.name();
    let mut kept = kept(engine, kind, place).await?;
    // What is gone, or has a record now, is no orphan.
    let gone: Vec<String> = kept.keys().filter(|id| !strangers.iter().any(|s| s.id == **id)).cloned().collect();
    for id in gone {
        engine.store.remove_note(NOTE, &name(kind, place, &id)).await?;
        kept.remove(&id);
    }
    let fresh = fresh(memory, kind, &strangers, &kept);
    let put_back = engine.put_back.load(Ordering::Relaxed);
    let many = fresh.len() > MANY || (fresh.len() > FEW && fresh.len() * 10 > of);
    let now = engine.clock.now_ms();
    for id in &fresh {
        // Adopted a moment ago.
        if known(engine, kind, id).await? {
            continue;
        }
        let (until_ms, reason) = match () {
            () if put_back => (None, "the store is an older copy that was put back".to_owned()),
            () if many => (None, format!("{} of {of} at {place} have no record all at once", fresh.len())),
            () => (Some(now + ms(KEPT)), "no record has that id".to_owned()),
        };
        let note = Kept { since_ms: now, until_ms, reason };
        write(engine, kind, place, id, &note).await?;
        tell(engine, kind, place, id, &note).await;
        kept.insert(id.clone(), note);
    }
    report(engine, kind, place, &kept);
    let mut failed = None;
    for stranger in &strangers {
        let Some(until) = kept.get(&stranger.id).and_then(|k| k.until_ms).filter(|_| !put_back) else { continue };
        let act = match () {
            () if until <= now => Act::Remove,
            // Where a stop would cost its files it runs on.
            () if stranger.running && provider.keeps_files() => Act::Stop,
            () => continue,
        };
        if let Err(e) = carry_out(engine, provider, kind, &stranger.id, act).await {
            tracing::warn!(id = stranger.id, provider = place, error = %e, "an orphan is not stopped or removed yet; trying again");
            failed = Some(e);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Those that were seen for long enough and are not kept yet.
fn fresh(memory: &Mutex<Memory>, kind: OrphanKind, strangers: &[Stranger], kept: &BTreeMap<String, Kept>) -> Vec<String> {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    memory.strangers.retain(|(k, id), _| *k != kind || strangers.iter().any(|s| s.id == *id));
    let mut fresh = Vec::new();
    for stranger in strangers.iter().filter(|s| !kept.contains_key(&s.id)) {
        let since = *memory.strangers.entry((kind, stranger.id.clone())).or_insert_with(Instant::now);
        if since.elapsed() >= super::GRACE {
            fresh.push(stranger.id.clone());
        }
    }
    fresh
}

async fn carry_out(engine: &Arc<Engine>, provider: &Arc<dyn Provider>, kind: OrphanKind, id: &str, act: Act) -> Result<()> {
    let place = provider.name();
    let Some(held) = engine.hold(id).await? else { return Ok(()) };
    let work = async {
        // Once more, now that nobody else acts on it.
        if known(engine, kind, id).await? {
            return Ok(false);
        }
        match (kind, act) {
            (OrphanKind::Desk, Act::Stop) => remove(&held, provider, id, Leftover::Programs).await.map(|()| false),
            (OrphanKind::Desk, Act::Remove) => remove(&held, provider, id, Leftover::All).await.map(|()| true),
            (OrphanKind::Snapshot, Act::Stop) => Ok(false),
            (OrphanKind::Snapshot, Act::Remove) => super::snapshots::discard(provider, id).await.map(|()| true),
        }
    };
    let removed = work.await;
    held.release().await;
    if removed? {
        engine.store.remove_note(NOTE, &name(kind, place, id)).await?;
        tracing::warn!(id, provider = place, what = kind.word(), "an orphan was removed");
        telemetry::orphan(place, kind.word());
        let reason = format!("the {} {id} at {place}, which no record knows, was removed", kind.word());
        engine.tell("orphan", desk(kind, id), None, reason, "reconcile").await;
    }
    Ok(())
}

async fn known(engine: &Engine, kind: OrphanKind, id: &str) -> Result<bool> {
    Ok(match kind {
        OrphanKind::Desk => engine.store.desk(id).await?.is_some_and(|r| r.state != hotdesk_api::desk::State::Deleted),
        OrphanKind::Snapshot => engine.store.snapshots().await?.iter().any(|s| s.id == id),
    })
}

fn desk(kind: OrphanKind, id: &str) -> Option<&str> {
    (kind == OrphanKind::Desk).then_some(id)
}

async fn tell(engine: &Engine, kind: OrphanKind, place: &str, id: &str, note: &Kept) {
    let what = kind.word();
    let fate = match note.until_ms {
        Some(until) => format!("it is stopped and kept until {}", rfc3339(until)),
        None => "nothing is done to it until somebody decides".to_owned(),
    };
    tracing::warn!(id, provider = place, what, reason = note.reason, fate, "something that no record knows");
    let reason =
        format!("{place} has the {what} {id}: {}; {fate}; hotdesk adopt {id} makes it one of the fleet again", note.reason);
    engine.tell("orphan", desk(kind, id), None, reason, "reconcile").await;
}

fn report(engine: &Engine, kind: OrphanKind, place: &str, kept: &BTreeMap<String, Kept>) {
    telemetry::orphans(place, kind.word(), kept.len());
    let undecided = kept.values().filter(|k| k.until_ms.is_none()).count();
    let mut all = engine.undecided.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(format!("{}s at {place}", kind.word()), undecided);
}

async fn write(engine: &Engine, kind: OrphanKind, place: &str, id: &str, note: &Kept) -> Result<()> {
    let body = serde_json::to_string(note).map_err(|e| Error::Invalid(e.to_string()))?;
    engine.store.put_note(NOTE, &name(kind, place, id), &body, None, true).await.map(drop)
}

/// Those of a provider, by id.
async fn kept(engine: &Engine, kind: OrphanKind, place: &str) -> Result<BTreeMap<String, Kept>> {
    let prefix = name(kind, place, "");
    let notes = engine.store.notes(NOTE).await?;
    let own = notes.into_iter().filter_map(|(name, body)| Some((name.strip_prefix(&prefix)?.to_owned(), body)));
    Ok(own.map(|(id, body)| (id, parse(&body))).collect())
}

/// A note that can't be read keeps its thing.
fn parse(body: &str) -> Kept {
    let odd = |_| Kept { since_ms: 0, until_ms: None, reason: "its note can't be read".into() };
    serde_json::from_str(body).unwrap_or_else(odd)
}

/// All that are kept.
pub(crate) async fn list(engine: &Engine) -> Result<Vec<Orphan>> {
    let mut all = Vec::new();
    for (name, body) in engine.store.notes(NOTE).await? {
        let mut parts = name.splitn(3, '/');
        let (Some(kind), Some(provider), Some(id)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let Some(kind) = OrphanKind::of(kind) else { continue };
        let kept = parse(&body);
        all.push(Orphan {
            kind,
            id: id.into(),
            provider: provider.into(),
            found_at: rfc3339(kept.since_ms),
            removed_at: kept.until_ms.map(rfc3339),
            reason: kept.reason,
        });
    }
    Ok(all)
}

/// It is somebody's again, or gone.
pub(crate) async fn forget(engine: &Engine, orphan: &Orphan) -> Result<()> {
    engine.store.remove_note(NOTE, &name(orphan.kind, &orphan.provider, &orphan.id)).await.map(drop)
}

/// From now on none is removed before somebody decides.
pub(crate) async fn keep_all(engine: &Engine) -> Result<()> {
    set_end(engine, |_| None).await
}

/// Somebody decided: what is kept without an end is stopped, and removed in a week.
pub(crate) async fn let_go(engine: &Engine) -> Result<()> {
    let end = engine.clock.now_ms() + ms(KEPT);
    set_end(engine, |until| Some(until.unwrap_or(end))).await
}

async fn set_end(engine: &Engine, end: impl Fn(Option<i64>) -> Option<i64>) -> Result<()> {
    for orphan in list(engine).await? {
        let kept = kept(engine, orphan.kind, &orphan.provider).await?;
        if let Some(note) = kept.get(&orphan.id) {
            let note = Kept { until_ms: end(note.until_ms), ..note.clone() };
            write(engine, orphan.kind, &orphan.provider, &orphan.id, &note).await?;
        }
    }
    Ok(())
}
