//! Makes what is equal to what should be.
//!
//! The store says what should be, each provider what is. One orchestrator compares them: when the fleet opens, every ten seconds, and at once when a provider comes
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
//! | none | something | removed, once it was seen so for [`GRACE`]: records are written first, so it is nobody's |
//!
//! A provider that does not answer loses nothing: its desks stay as they are, shown with the reason, until it is back.
//! Snapshots are compared likewise ([`snapshots`]).

pub(crate) mod snapshots;

use crate::clock::rfc3339;
use crate::engine::{Engine, Note};
use crate::error::{Error, Result};
use crate::state::{self, Intent, Next};
use crate::store::Record;
use crate::telemetry;
use hotdesk_api::desk::State;
use hotdesk_provider::{Error as ProviderError, Found, Provider};
use std::collections::HashMap;
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
/// Something without a record is left alone for so long.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// All records are read anew so often where other orchestrators write too, and what is old is forgotten.
const REREAD: Duration = Duration::from_secs(30);
const PRUNE: Duration = Duration::from_secs(3600);

/// What reconcile remembers between two looks.
#[derive(Default)]
struct Memory {
    /// When something without a record was first seen.
    strangers: HashMap<String, Instant>,
    /// When lost desks were started again.
    restarts: HashMap<String, Vec<Instant>>,
    reread: Option<Instant>,
    pruned: Option<Instant>,
}

/// Keeps store and reality equal until the fleet closes.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let memory = Mutex::new(Memory::default());
    loop {
        if engine.leads("reconcile", LEAD).await {
            let begun = Instant::now();
            pass(&engine, &memory).await;
            telemetry::reconcile(begun.elapsed());
        } else {
            // Whoever leads has reconciled; we follow what it writes.
            look_at_providers(&engine).await;
        }
        engine.reconciled.send_replace(true);
        upkeep(&engine, &memory).await;
        let pause = if engine.providers.any_away() { AWAY_TICK } else { TICK };
        tokio::select! {
            () = engine.closing.cancelled() => return,
            () = engine.wanted.notified() => {}
            // One that comes seldom comes alone: what happens to a node happens to all desks on it.
            () = engine.providers.changed() => tokio::time::sleep(TOGETHER).await,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn upkeep(engine: &Arc<Engine>, memory: &Mutex<Memory>) {
    let due = |last: &mut Option<Instant>, every: Duration| {
        let due = last.is_none_or(|at| at.elapsed() >= every);
        if due {
            *last = Some(Instant::now());
        }
        due
    };
    let (reread, prune) = {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        (!engine.alone && due(&mut memory.reread, REREAD), due(&mut memory.pruned, PRUNE))
    };
    if reread && let Err(e) = engine.reread().await {
        tracing::warn!(error = %e, "the records could not be read anew");
    }
    if prune {
        if let Err(e) = engine.sweep_archives().await {
            tracing::warn!(error = %e, "remains of archives were not removed");
        }
        let before = engine.clock.now_ms() - crate::clock::ms(crate::store::KEEP);
        match engine.store.prune(before).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, before = rfc3339(before), "what is old was forgotten"),
            Err(e) => tracing::warn!(error = %e, "what is old could not be forgotten"),
        }
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

/// Notes which providers answer, where another orchestrator does the rest.
async fn look_at_providers(engine: &Arc<Engine>) {
    for (name, provider) in engine.providers.iter() {
        if engine.providers.away(name).is_some() && list(provider).await.is_ok() {
            back(engine, name);
        }
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

/// Compares everything once.
async fn pass(engine: &Arc<Engine>, memory: &Mutex<Memory>) {
    for (name, provider) in engine.providers.iter() {
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
                continue;
            }
        };
        back(engine, name);
        let found: HashMap<String, Found> = found.into_iter().map(|f| (f.id.clone(), f)).collect();
        for record in records.values() {
            if let Err(e) = compare(engine, memory, record, found.get(&record.id)).await {
                tracing::warn!(desk = record.id, error = %e, "not reconciled; trying again");
            }
        }
        let strangers: Vec<&String> = found.keys().filter(|id| !records.contains_key(*id)).collect();
        {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.strangers.retain(|key, _| key.strip_prefix(&format!("{name}/")).is_none_or(|id| found.contains_key(id)));
        }
        for id in strangers {
            if let Err(e) = stranger(engine, memory, name, provider, id).await {
                tracing::warn!(desk = id, error = %e, "an orphan is not removed yet; trying again");
            }
        }
        if let Err(e) = snapshots::compare(engine, name, provider).await {
            tracing::warn!(provider = name, error = %e, "snapshots are not reconciled; trying again");
        }
    }
}

/// One desk, as the record was before the provider was asked.
async fn compare(engine: &Arc<Engine>, memory: &Mutex<Memory>, record: &Arc<Record>, found: Option<&Found>) -> Result<()> {
    let running = found.is_some_and(|f| f.running);
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

/// Something of our fleet that the view does not know.
async fn stranger(
    engine: &Arc<Engine>,
    memory: &Mutex<Memory>,
    name: &str,
    provider: &Arc<dyn Provider>,
    id: &str,
) -> Result<()> {
    let known = |record: &Option<Record>| record.as_ref().is_some_and(|r| r.state != State::Deleted);
    let record = engine.store.desk(id).await?;
    if known(&record) {
        // Made by another orchestrator a moment ago.
        return engine.refresh(id).await;
    }
    if record.is_none() {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *memory.strangers.entry(format!("{name}/{id}")).or_insert_with(Instant::now);
        if since.elapsed() < GRACE {
            return Ok(());
        }
    }
    let Some(held) = engine.hold(id).await? else { return Ok(()) };
    if !known(&engine.store.desk(id).await?) {
        remove(&held, provider, id, Leftover::All).await?;
        tracing::warn!(desk = id, provider = name, "an orphan was removed");
        telemetry::orphan(name, "desk");
        engine.tell("orphan", Some(id), None, format!("{name} had it, and no desk has that id: removed"), "reconcile").await;
    }
    held.release().await;
    Ok(())
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
