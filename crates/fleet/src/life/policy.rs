//! The clock of all policies: looks at desks, stops, archives and deletes them when it is time.

use super::SAVE_EVERY_MS;
use super::look::{described, look};
use crate::clock::spoken;
use crate::engine::{Engine, Note};
use crate::error::Result;
use crate::state::{self, Intent, Next};
use crate::store::Record;
use crate::view::Entry;
use futures_util::StreamExt;
use hotdesk_api::desk::State;
use std::sync::Arc;
use std::time::Duration;

/// What desks cost is written down so often.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// Policies are exact to this; ends of lives are exact.
const TICK: Duration = Duration::from_secs(2);
const LEAD: Duration = Duration::from_secs(10);
/// A desk that nobody calls is looked at so often.
const LOOK_EVERY_MS: i64 = 30_000;
/// A look that is older says nothing about now.
const FRESH_MS: i64 = 4_000;
const LOOKS_AT_ONCE: usize = 16;
/// After a fleet was opened no desk is stopped for so long: clients may just be coming back.
const GRACE_MS: i64 = 60_000;

/// Keeps the policies until the fleet closes.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let mut counted = tokio::time::Instant::now();
    let mut ticked = counted;
    loop {
        tokio::select! {
            () = engine.closing.cancelled() => return,
            () = tokio::time::sleep_until(ticked + TICK) => {}
            () = tokio::time::sleep(next_end(&engine)) => {}
            () = engine.ends.notified() => {}
        }
        let tick = ticked.elapsed() >= TICK;
        if tick {
            ticked = tokio::time::Instant::now();
            save(&engine, SAVE_EVERY_MS).await;
        }
        if engine.leads("policy", LEAD).await {
            end_lives(&engine).await;
            if !tick {
                continue;
            }
            round(&engine).await;
            if counted.elapsed() >= COUNT_EVERY {
                counted = tokio::time::Instant::now();
                if let Err(e) = count_money(&engine).await {
                    tracing::warn!(error = %e, "money was not counted; it is counted later");
                }
            }
        }
    }
}

/// Writes down what desks cost, and stops those of projects that have nothing left.
async fn count_money(engine: &Arc<Engine>) -> Result<()> {
    let now = engine.clock.now_ms();
    // One that can't be written, e.g. because nobody understands its row, does not keep the others from being counted.
    let mut failed = None;
    if !engine.config.prices.is_empty() {
        for entry in engine.view.all() {
            let count = |r: &mut Record| {
                let spends = engine.money.tick(r, now);
                Ok((!spends.is_empty()).then(|| Note { spends, ..Note::silent() }))
            };
            failed = engine.change(&entry.id, count).await.err().or(failed);
        }
    }
    let found = engine.money.look(now).await?;
    for (project, words) in found.crossed {
        engine.tell("budget", None, Some(&project), words, "budget").await;
    }
    for (project, why) in found.over {
        for entry in engine.view.all() {
            let record = entry.record();
            if record.project == project && record.state == State::Running {
                enact(engine, &entry, Intent::Stop, &why).await;
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Writes down the signs of work that came through us, if they are newer by so much than what is written.
pub(crate) async fn save(engine: &Arc<Engine>, newer_ms: i64) {
    let now = engine.clock.now_ms();
    for entry in engine.view.all() {
        let record = entry.record();
        let active = entry.live.active_ms(now);
        if record.state == State::Running && active - record.active_ms >= newer_ms {
            let saved = engine.change(&entry.id, |r| {
                if r.active_ms >= active {
                    return Ok(None);
                }
                r.active_ms = active;
                Ok(Some(Note::silent()))
            });
            if let Err(e) = saved.await {
                tracing::debug!(desk = entry.id, error = %e, "the last sign of work was not written down");
            }
        }
    }
}

/// How long it is until the next life ends. One that should have ended by now is tried again at the next tick.
fn next_end(engine: &Engine) -> Duration {
    let now = engine.clock.now_ms();
    let mut next = i64::MAX;
    engine.view.for_each(|_, record| next = record.expires_ms.filter(|end| *end > now).map_or(next, |end| next.min(end)));
    Duration::from_millis(u64::try_from(next - now).unwrap_or(0)).min(TICK)
}

async fn end_lives(engine: &Arc<Engine>) {
    let now = engine.clock.now_ms();
    for entry in engine.view.all() {
        if let Some((intent, reason)) = over(engine, &entry.record(), now) {
            enact(engine, &entry, intent, &reason).await;
        }
    }
}

/// What is done with a desk whose time to live is over.
fn over(engine: &Engine, record: &Record, now: i64) -> Option<(Intent, String)> {
    if record.pool.is_some() || record.expires_ms.is_none_or(|end| now < end) {
        return None;
    }
    let stops = record.policy.end_stops && keeps_files(engine, record);
    let intent = match record.state {
        State::Deleting | State::Deleted => return None,
        State::Running if stops => Intent::Stop,
        _ if stops => return None,
        _ => Intent::Delete,
    };
    Some((intent, "its time to live is over".into()))
}

async fn round(engine: &Arc<Engine>) {
    let now = engine.clock.now_ms();
    let due: Vec<_> = engine.view.all().into_iter().filter(|e| is_look_due(e, &e.record(), now)).collect();
    futures_util::stream::iter(due).for_each_concurrent(LOOKS_AT_ONCE, |entry| async move { look(engine, &entry).await }).await;
    for entry in engine.view.all() {
        if let Some((intent, reason)) = due_now(engine, &entry).await {
            enact(engine, &entry, intent, &reason).await;
        }
    }
}

fn is_look_due(entry: &Entry, record: &Record, now: i64) -> bool {
    if record.state != State::Running || record.pool.is_some() {
        return false;
    }
    let stop_ms = seconds_ms(record.policy.auto_stop_s);
    let every = if stop_ms > 0 { (stop_ms / 2).clamp(1, LOOK_EVERY_MS) } else { LOOK_EVERY_MS };
    let looked = entry.live.lock().looked_ms;
    now - entry.live.active_ms(now) >= every && now - looked >= every
}

/// What a policy says about a desk now, and why.
async fn due_now(engine: &Arc<Engine>, entry: &Arc<Entry>) -> Option<(Intent, String)> {
    let now = engine.clock.now_ms();
    let record = entry.record();
    if record.pool.is_some() {
        return None;
    }
    let policy = record.policy;
    if let Some(end) = over(engine, &record, now) {
        return Some(end);
    }
    let rested = now - record.changed_ms;
    match record.state {
        State::Running if policy.auto_stop_s > 0 && keeps_files(engine, &record) => idle(engine, entry, &record).await,
        State::Stopped | State::Archived | State::Error
            if policy.auto_delete_s > 0 && rested >= seconds_ms(policy.auto_delete_s) =>
        {
            let was = crate::telemetry::word(record.state);
            Some((Intent::Delete, format!("{was} for {}", spoken(policy.auto_delete_s))))
        }
        State::Stopped if policy.auto_archive_s > 0 && rested >= seconds_ms(policy.auto_archive_s) => {
            let provider = engine.providers.choose(Some(&record.provider)).ok()?;
            let can = provider.capabilities().await.archive;
            can.then(|| (Intent::Archive, format!("stopped for {}", spoken(policy.auto_archive_s))))
        }
        _ => None,
    }
}

/// Where a stop would cost its files, an idle desk goes on until its time to live is over.
fn keeps_files(engine: &Engine, record: &Record) -> bool {
    engine.providers.choose(Some(&record.provider)).is_ok_and(|provider| provider.keeps_files())
}

/// Whether a running desk was idle for long enough; looks once more before it says so.
async fn idle(engine: &Arc<Engine>, entry: &Arc<Entry>, record: &Record) -> Option<(Intent, String)> {
    let limit = seconds_ms(record.policy.auto_stop_s);
    let now = engine.clock.now_ms();
    let is_idle = |now: i64| now - entry.live.active_ms(now) >= limit && now - record.changed_ms >= limit;
    if !is_idle(now) || now - engine.opened_ms < GRACE_MS.min(limit) {
        return None;
    }
    if !engine.alone {
        // Calls may have come through another orchestrator.
        engine.refresh(&entry.id).await.ok()?;
    }
    let looked = entry.live.lock().looked_ms;
    if now - looked >= FRESH_MS {
        look(engine, entry).await;
    }
    let now = engine.clock.now_ms();
    is_idle(now).then(|| {
        let idle = entry.live.idle(now).as_secs();
        (Intent::Stop, format!("idle for {}: {}", spoken(idle), described(entry)))
    })
}

/// Stops a desk for a reason that is none of its own.
pub(crate) async fn stop(engine: &Arc<Engine>, entry: &Entry, reason: &str) {
    enact(engine, entry, Intent::Stop, reason).await;
}

async fn enact(engine: &Arc<Engine>, entry: &Entry, intent: Intent, reason: &str) {
    let before = entry.record();
    let changed = engine
        .change(&entry.id, |r| {
            // The desk is not in the state any more that the policy spoke of.
            if r.state != before.state || r.expires_ms != before.expires_ms || r.policy != before.policy {
                return Ok(None);
            }
            let Next::To(to) = state::next(r.state, intent)? else { return Ok(None) };
            r.state = to;
            r.reason = reason.into();
            // A desk that was stopped by its end has none until somebody sets another.
            if intent == Intent::Stop && r.policy.end_stops {
                r.expires_ms = None;
            }
            Ok(Some(Note::state("policy")))
        })
        .await;
    match changed {
        Ok(record) if state::is_step(record.state) => {
            tracing::info!(desk = entry.id, state = crate::telemetry::word(record.state), reason, "by policy");
            engine.kick(&entry.id);
        }
        Ok(_) => {}
        Err(e) => tracing::warn!(desk = entry.id, error = %e, "a policy was not carried out; trying again"),
    }
}

fn seconds_ms(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX / 2000).saturating_mul(1000)
}
