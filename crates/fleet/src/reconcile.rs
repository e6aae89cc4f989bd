//! Makes what is equal to what should be.
//!
//! The store says what should be, each provider what is. One orchestrator per provider compares them: when the fleet opens, every ten seconds, and at once when a provider comes
//! back or has news. What is changed is changed by the same writes and the same drivers as any request, so a comparison that was outrun by a request does nothing.
//!
//! | record | provider has | what is done |
//! |---|---|---|
//! | in a step | anything | its driver takes the step up |
//! | running | it, running | adopted: the address is written down |
//! | running | it, not running | started again with its files, `restarts` times in `restart_window_s`; then error |
//! | running | nothing | the same; a start without files ends in error |
//! | stopped | it, running | stopped |
//! | stopped | nothing | error: its files are gone |
//! | archived, or in error and never ran | something | removed: it is a remainder |
//! | in error | running | stopped: only its files are kept |
//! | deleted | something | removed |
//! | none | something | stopped and kept for a week, once it was seen so for [`GRACE`] ([`orphans`]) |
//!
//! A provider that does not answer loses nothing: its desks stay as they are, shown with the reason, until it is back.
//! Each provider has a loop of its own, with a limit for every call, so one that hangs keeps no other waiting.
//! Snapshots are compared likewise ([`snapshots`]).

pub(crate) mod orphans;
pub(crate) mod snapshots;

use crate::clock::rfc3339;
use crate::engine::{Engine, Note};
use crate::error::{Error, Result};
use crate::history;
use crate::state::{self, Intent, Next};
use crate::store::Record;
use crate::telemetry;
use hotdesk_api::desk::State;
use hotdesk_api::fleet::OrphanKind;
use hotdesk_provider::{Error as ProviderError, Found, Provider};
use orphans::Stranger;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const TICK: Duration = Duration::from_secs(10);
/// While a provider is away it is asked more often.
const AWAY_TICK: Duration = Duration::from_secs(2);
/// After news from a provider, more of it is waited for.
const TOGETHER: Duration = Duration::from_millis(300);
const LEAD: Duration = Duration::from_secs(15);
const LIST_LIMIT: Duration = Duration::from_secs(30);
const REMOVE_LIMIT: Duration = Duration::from_secs(60);
/// So long a new fleet waits for a provider that does not answer before it calls itself ready: the others' desks can be used.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Something without a record is left alone for so long.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// All records are read anew so often where other orchestrators write too, and what is old is forgotten.
const REREAD: Duration = Duration::from_secs(30);
const PRUNE: Duration = Duration::from_secs(3600);

/// What is remembered of a provider between two looks.
#[derive(Default)]
pub(crate) struct Memory {
    /// When something without a record was first seen.
    strangers: HashMap<(OrphanKind, String), Instant>,
    /// When lost desks were started again.
    restarts: HashMap<String, Vec<Instant>>,
}

/// Keeps store and reality equal until the fleet closes: one loop per provider, so that none waits for another one.
pub(crate) fn start(engine: &Arc<Engine>) {
    {
        let mut left = engine.unreconciled.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(engine.providers.iter().map(|(name, _)| name.clone()));
        if left.is_empty() {
            engine.reconciled.send_replace(true);
        }
    }
    for (name, provider) in engine.providers.iter() {
        let (engine_, name, provider) = (Arc::clone(engine), name.clone(), Arc::clone(provider));
        // Outlives a panic of the loop.
        let memory = Arc::new(Mutex::new(Memory::default()));
        engine.keep("reconcile", move || keep(Arc::clone(&engine_), name.clone(), Arc::clone(&provider), Arc::clone(&memory)));
    }
    let waiting = Arc::clone(engine);
    engine.spawn("ready", async move {
        tokio::select! {
            () = waiting.closing.cancelled() => {}
            () = tokio::time::sleep(READY_LIMIT) => {
                let left = waiting.unreconciled.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if !left.is_empty() {
                    tracing::warn!(providers = ?left, "these have not answered yet; the fleet is ready without them");
                }
                waiting.reconciled.send_replace(true);
            }
        }
    });
    let kept = Arc::clone(engine);
    engine.keep("upkeep", move || upkeep(Arc::clone(&kept)));
}

/// One provider.
async fn keep(engine: Arc<Engine>, name: String, provider: Arc<dyn Provider>, memory: Arc<Mutex<Memory>>) {
    let mut wanted = engine.wanted.subscribe();
    let lead = format!("reconcile/{name}");
    loop {
        wanted.mark_unchanged();
        if engine.leads(&lead, LEAD).await {
            let begun = Instant::now();
            pass(&engine, &memory, &name, &provider).await;
            telemetry::reconcile(begun.elapsed());
        } else if engine.providers.away(&name).is_some() && list(&provider).await.is_ok() {
            // Whoever leads has reconciled; we follow what it writes.
            back(&engine, &name);
        }
        over(&engine, &name);
        let pause = if engine.providers.away(&name).is_some() { AWAY_TICK } else { TICK };
        tokio::select! {
            () = engine.closing.cancelled() => return,
            _ = wanted.changed() => {}
            // One that comes seldom comes alone: what happens to a node happens to all desks on it.
            () = provider.changed() => tokio::time::sleep(TOGETHER).await,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The first look at a provider is over.
fn over(engine: &Engine, name: &str) {
    let mut left = engine.unreconciled.lock().unwrap_or_else(PoisonError::into_inner);
    left.remove(name);
    if left.is_empty() {
        engine.reconciled.send_if_modified(|done| !std::mem::replace(done, true));
    }
}

/// What concerns no single provider.
async fn upkeep(engine: Arc<Engine>) {
    let (mut reread, mut pruned): (Option<Instant>, Option<Instant>) = (None, None);
    let due = |last: &mut Option<Instant>, every: Duration| {
        let due = last.is_none_or(|at| at.elapsed() >= every);
        if due {
            *last = Some(Instant::now());
        }
        due
    };
    loop {
        if let Err(e) = history::watch(&engine).await {
            tracing::warn!(error = %e, "the store does not say how far it is");
        }
        if !engine.alone
            && due(&mut reread, REREAD)
            && let Err(e) = engine.reread().await
        {
            tracing::warn!(error = %e, "the records could not be read anew");
        }
        if due(&mut pruned, PRUNE) {
            forget_old(&engine).await;
        }
        tokio::select! {
            () = engine.closing.cancelled() => return,
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

async fn forget_old(engine: &Arc<Engine>) {
    // A store that was put back does not know of the archives that were written since.
    if !engine.put_back.load(Ordering::Relaxed)
        && let Err(e) = engine.sweep_archives().await
    {
        tracing::warn!(error = %e, "remains of archives were not removed");
    }
    let before = engine.clock.now_ms() - crate::clock::ms(crate::store::KEEP);
    match engine.store.prune(before).await {
        Ok(0) => {}
        Ok(rows) => tracing::info!(rows, before = rfc3339(before), "what is old was forgotten"),
        Err(e) => tracing::warn!(error = %e, "what is old could not be forgotten"),
    }
}

impl Engine {
    /// Reads all records; what is not among them any more was deleted.
    pub(crate) async fn reread(&self) -> Result<()> {
        let known: Vec<String> = self.view.all().iter().map(|e| e.id.clone()).collect();
        let records = self.store.desks().await?;
        let live: std::collections::HashSet<String> = records.iter().map(|r| r.id.clone()).collect();
        for record in records {
            self.apply(record);
        }
        for id in known.iter().filter(|id| !live.contains(*id)) {
            self.refresh(id).await?;
        }
        Ok(())
    }
}

async fn list(provider: &Arc<dyn Provider>) -> Result<Vec<Found>> {
    match tokio::time::timeout(LIST_LIMIT, provider.list()).await {
        Ok(found) => found.map_err(Error::from),
        Err(_) => Err(Error::Timeout { what: "listing the desks".into(), limit: LIST_LIMIT }),
    }
}

fn back(engine: &Arc<Engine>, name: &str) {
    telemetry::provider_up(name, true);
    if engine.providers.set_away(name, None) {
        tracing::info!(provider = name, "the provider is back");
    }
}

/// Compares everything of a provider once.
async fn pass(engine: &Arc<Engine>, memory: &Mutex<Memory>, name: &str, provider: &Arc<dyn Provider>) {
    // Read before the provider is asked: what changed in between is compared the next time.
    let mut records: HashMap<String, Arc<Record>> = HashMap::new();
    engine.view.for_each(|_, r| {
        if r.provider == *name {
            records.insert(r.id.clone(), Arc::new(r.clone()));
        }
    });
    let found = match list(provider).await {
        Ok(found) => found,
        Err(e) => {
            telemetry::provider_up(name, false);
            let why = match &e {
                Error::Provider(ProviderError::Unavailable { reason, .. }) => reason.clone(),
                e => e.to_string(),
            };
            if engine.providers.set_away(name, Some(why)) {
                tracing::warn!(provider = name, error = %e, "the provider is away; its desks stay as they are");
            }
            return;
        }
    };
    back(engine, name);
    let found: HashMap<String, Found> = found.into_iter().map(|f| (f.id.clone(), f)).collect();
    for record in records.values() {
        if let Err(e) = compare(engine, memory, record, found.get(&record.id)).await {
            tracing::warn!(desk = record.id, error = %e, "not reconciled; trying again");
        }
    }
    let mut unknown = Vec::new();
    for seen in found.values().filter(|f| !records.contains_key(&f.id)) {
        match stranger(engine, name, provider, &seen.id).await {
            Ok(true) => unknown.push(Stranger { id: seen.id.clone(), running: seen.running }),
            Ok(false) => {}
            Err(e) => tracing::warn!(desk = seen.id, error = %e, "what is left of a desk is not removed yet; trying again"),
        }
    }
    if let Err(e) = orphans::settle(engine, memory, provider, OrphanKind::Desk, unknown, found.len()).await {
        tracing::warn!(provider = name, error = %e, "orphans are not settled yet; trying again");
    }
    if let Err(e) = snapshots::compare(engine, memory, name, provider).await {
        tracing::warn!(provider = name, error = %e, "snapshots are not reconciled; trying again");
    }
}

/// One desk, as the record was before the provider was asked.
async fn compare(engine: &Arc<Engine>, memory: &Mutex<Memory>, record: &Arc<Record>, found: Option<&Found>) -> Result<()> {
    let running = found.is_some_and(|f| f.running);
    let put_back = engine.put_back.load(Ordering::Relaxed);
    if record.unreadable {
        return Ok(());
    }
    match record.state {
        state if state::is_step(state) => engine.kick(&record.id),
        State::Running if running => {
            let placed = found.and_then(|f| f.placed.clone());
            if let Some(placed) = placed.filter(|p| Some(p) != record.placed.as_ref()) {
                tracing::info!(desk = record.id, "adopted at its new address");
                let write = |r: &mut Record| {
                    if !same(r, record) {
                        return Ok(None);
                    }
                    r.placed = Some(placed.clone());
                    Ok(Some(Note::of("adopted", "reconcile")))
                };
                engine.change(&record.id, write).await?;
            }
        }
        State::Running => lost(engine, memory, record).await?,
        State::Stopped if running => {
            transition(engine, record, Intent::Stray, "it was found running though it should be stopped").await?;
        }
        State::Stopped if found.is_none() => {
            transition(engine, record, Intent::Gone, "its files are gone; reset makes it anew from its template").await?;
        }
        // The store is an older copy: the desk was brought back, or made, since. What is there is newer than what is written.
        State::Archived | State::Error
            if put_back && found.is_some() && (record.state == State::Archived || record.placed.is_none()) =>
        {
            transition(engine, record, Intent::Found, "its files are here, though an older copy of the store says otherwise")
                .await?;
        }
        State::Archived if found.is_some() => clear(engine, record, Leftover::All).await?,
        State::Error if found.is_some() && record.placed.is_none() => clear(engine, record, Leftover::All).await?,
        State::Error if running => clear(engine, record, Leftover::Programs).await?,
        _ => {}
    }
    Ok(())
}

/// No transition was written since: what was compared is still what should be.
fn same(now: &Record, then: &Record) -> bool {
    now.state == then.state && now.changed_ms == then.changed_ms
}

async fn transition(engine: &Arc<Engine>, seen: &Arc<Record>, intent: Intent, reason: &str) -> Result<()> {
    let record = engine
        .change(&seen.id, |r| {
            let Next::To(to) = state::next(r.state, intent)? else { return Ok(None) };
            if !same(r, seen) {
                return Ok(None);
            }
            r.state = to;
            r.reason = reason.into();
            Ok(Some(Note::state("reconcile")))
        })
        .await?;
    if state::is_step(record.state) {
        engine.kick(&seen.id);
    }
    Ok(())
}

/// It should run and does not: start it again, but not for ever.
async fn lost(engine: &Arc<Engine>, memory: &Mutex<Memory>, record: &Arc<Record>) -> Result<()> {
    let window = Duration::from_secs(engine.config.restart_window_s);
    let before = {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let times = memory.restarts.entry(record.id.clone()).or_default();
        times.retain(|at| at.elapsed() < window);
        let before = times.len();
        times.push(Instant::now());
        before
    };
    let most = engine.config.restarts as usize;
    let why = why_lost(engine, record).await;
    tracing::warn!(desk = record.id, why, before, "a running desk was lost");
    if before < most {
        let reason = format!("it was found dead{why}; started again ({} of {most})", before + 1);
        transition(engine, record, Intent::Lost, &reason).await
    } else {
        let span = crate::clock::spoken(engine.config.restart_window_s);
        let reason =
            format!("it died{why} and was started again {before} times within {span}; start tries once more, logs say more");
        transition(engine, record, Intent::Gone, &reason).await
    }
}

/// The last words of its server, if there are any.
async fn why_lost(engine: &Arc<Engine>, record: &Record) -> String {
    let Ok(provider) = engine.providers.choose(Some(&record.provider)) else { return String::new() };
    let logs = tokio::time::timeout(Duration::from_secs(2), provider.logs(&record.id, 3)).await;
    let Ok(Ok(text)) = logs else { return String::new() };
    let last: String = text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or_default().trim().chars().take(200).collect();
    if last.is_empty() { String::new() } else { format!(" (last words: {last})") }
}

/// What should not be there any more.
#[derive(Clone, Copy, PartialEq)]
enum Leftover {
    /// A desk that is broken keeps its files: start or reset may mend it.
    Programs,
    All,
}

async fn clear(engine: &Arc<Engine>, record: &Arc<Record>, what: Leftover) -> Result<()> {
    let Some(held) = engine.hold(&record.id).await? else { return Ok(()) };
    engine.refresh(&record.id).await?;
    let now = engine.view.get(&record.id).map(|e| e.record());
    if now.is_some_and(|r| same(&r, record)) {
        let provider = engine.providers.choose(Some(&record.provider))?;
        remove(&held, provider, &record.id, what).await?;
    }
    held.release().await;
    Ok(())
}

/// Something of our fleet that the view does not know. True if no record knows it, not even one of a deleted desk.
async fn stranger(engine: &Arc<Engine>, name: &str, provider: &Arc<dyn Provider>, id: &str) -> Result<bool> {
    let known = |record: &Record| record.state != State::Deleted;
    match engine.store.desk(id).await? {
        // Made by another orchestrator a moment ago.
        Some(record) if known(&record) => return engine.refresh(id).await.map(|()| false),
        Some(_) => {}
        None => return Ok(true),
    }
    let Some(held) = engine.hold(id).await? else { return Ok(false) };
    if engine.store.desk(id).await?.is_some_and(|record| !known(&record)) {
        remove(&held, provider, id, Leftover::All).await?;
        tracing::warn!(desk = id, provider = name, "what was left of a deleted desk was removed");
        telemetry::orphan(name, "desk");
        engine.tell("orphan", Some(id), None, format!("{name} had it still, though it is deleted: removed"), "reconcile").await;
    }
    held.release().await;
    Ok(false)
}

async fn remove(held: &crate::driver::hold::Held, provider: &Arc<dyn Provider>, id: &str, what: Leftover) -> Result<()> {
    let removing = async {
        match what {
            Leftover::Programs => provider.stop(id).await,
            Leftover::All => provider.delete(id).await,
        }
    };
    tokio::select! {
        result = tokio::time::timeout(REMOVE_LIMIT, removing) => match result {
            Ok(result) => result.map_err(Error::from),
            Err(_) => Err(Error::Timeout { what: "removing what is left of a desk".into(), limit: REMOVE_LIMIT }),
        },
        () = held.lost() => Err(Error::Conflict("another orchestrator took the desk over".into())),
    }
}
