//! What each step does at the provider, and what is written down afterwards.

use super::hold::Held;
use crate::engine::{Engine, Note};
use crate::error::{Error, Result};
use crate::state::{self, Intent, Next};
use crate::store::Record;
use crate::telemetry;
use crate::view::Entry;
use hotdesk_api::desk::State;
use hotdesk_provider::{Error as ProviderError, Placed, Progress, Provider};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A start that took longer did not work: the slowest real one is an emulated machine, in minutes.
const START_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const DELETE_LIMIT: Duration = Duration::from_secs(120);
/// Gigabytes through a slow network.
const ARCHIVE_LIMIT: Duration = Duration::from_secs(3600);
/// What goes on when a delete comes in may end by itself for so long, then it is dropped.
const SUPERSEDE_GRACE: Duration = Duration::from_secs(5);
/// A provider that is away is asked again so often, with pauses from the first to the last, before the step is put off (or, for a new desk, given up).
const TRIES: u32 = 7;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// A step that was put off is taken up again after so long at the latest; reconcile does it earlier when the provider is back.
const PUT_OFF: Duration = Duration::from_secs(10);

/// What became of a step.
pub(super) enum Outcome {
    /// It was written down how it went; look at the record for what comes next.
    Went,
    /// Somebody else may act on the desk now.
    LostLease,
    /// The provider or the store is away; the step stays to be done.
    Away(Duration),
}

/// What a step brought.
enum Gain {
    Placed(Placed),
    Archived(crate::store::ArchiveRef),
    Nothing,
}

/// Takes the step that the record is in.
pub(super) async fn act(engine: &Arc<Engine>, held: &Held, entry: &Arc<Entry>, record: &Arc<Record>) -> Outcome {
    let (progress, stages) = Progress::new();
    let begun = Instant::now();
    let result = {
        let work = limited(engine, entry, record, &progress);
        tokio::pin!(work);
        tokio::select! {
            result = &mut work => result,
            () = held.lost() => return Outcome::LostLease,
            () = show_stages(engine, entry, stages) => return Outcome::Went,
            () = superseded(entry, record) => match tokio::time::timeout(SUPERSEDE_GRACE, &mut work).await {
                Ok(result) => result,
                Err(_) => {
                    tracing::warn!(step = telemetry::word(record.state), "dropped in the midst: the desk is to be deleted");
                    return Outcome::Went;
                }
            },
        }
    };
    engine.stage(entry, None);
    telemetry::step(record.state, &record.provider, result.is_ok(), begun.elapsed());
    if let (State::Creating, Some(pool)) = (record.state, &record.pool) {
        engine.pools.filled(pool, result.is_ok(), begun.elapsed());
    }
    let written = match result {
        Ok(gain) => done(engine, record, gain).await,
        // An archive that is away is another matter: the desk is whole where it is.
        Err(Error::Provider(ProviderError::Unavailable { provider, reason }))
            if record.state == State::Deleting || (record.state != State::Creating && provider == record.provider) =>
        {
            put_off(engine, record, provider, &reason);
            return Outcome::Away(PUT_OFF);
        }
        Err(e) => failed(engine, held, entry, record, e).await,
    };
    match written {
        Ok(true) => Outcome::Went,
        // Deleting never ends in error: it is tried again.
        Ok(false) => Outcome::Away(PUT_OFF),
        Err(e) => {
            tracing::error!(error = %e, "the end of a step was not written down; it will be taken again");
            Outcome::Away(Duration::from_secs(1))
        }
    }
}

/// The step within its time.
async fn limited(engine: &Arc<Engine>, entry: &Entry, record: &Arc<Record>, progress: &Progress) -> Result<Gain> {
    let (limit, what) = match record.state {
        State::Creating => (START_LIMIT, "making the desk"),
        State::Starting => (START_LIMIT, "starting the desk"),
        State::Resetting => (START_LIMIT, "resetting the desk"),
        State::Stopping => (STOP_LIMIT, "stopping the desk"),
        State::Deleting => (DELETE_LIMIT, "deleting the desk"),
        _ => (ARCHIVE_LIMIT, "moving the desk"),
    };
    // A template that is not built yet takes its own time, which is not the desk's.
    if lacks_template(engine, record) {
        match prepare(engine, record, progress).await {
            // Asked again below.
            Ok(()) | Err(Error::Provider(ProviderError::Unavailable { .. })) => {}
            Err(e) => return Err(e),
        }
    }
    // Waiting for a turn is not counted: in a burst the last one waits long, and nothing is wrong with it.
    let turn = match record.state {
        State::Creating | State::Starting | State::Resetting if engine.providers.is_here(&record.provider) => {
            Some(turn(engine, progress).await)
        }
        _ => None,
    };
    let result = tokio::time::timeout(limit, patiently(engine, entry, record, progress)).await;
    drop(turn);
    result.unwrap_or_else(|_| Err(Error::Timeout { what: what.into(), limit }))
}

fn lacks_template(engine: &Engine, record: &Record) -> bool {
    let (provider, spec) = (&record.provider, &record.spec);
    record.state == State::Creating && spec.snapshot.is_none() && !engine.providers.is_prepared(provider, &spec.template)
}

async fn prepare(engine: &Arc<Engine>, record: &Record, progress: &Progress) -> Result<()> {
    engine.prepare(engine.providers.choose(Some(&record.provider))?, &record.spec.template, progress).await
}

async fn turn(engine: &Engine, progress: &Progress) -> Option<tokio::sync::OwnedSemaphorePermit> {
    let turns = Arc::clone(&engine.admission.turns);
    if let Ok(permit) = Arc::clone(&turns).try_acquire_owned() {
        return Some(permit);
    }
    progress.stage("waiting for a turn");
    turns.acquire_owned().await.ok()
}

/// Asks a provider that is away again, with pauses that grow.
async fn patiently(engine: &Arc<Engine>, entry: &Entry, record: &Arc<Record>, progress: &Progress) -> Result<Gain> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        match once(engine, record, progress).await {
            Err(Error::Provider(ProviderError::Unavailable { provider, reason })) if attempt < TRIES => {
                tracing::warn!(provider, reason, attempt, "the provider is away; trying again");
                progress.stage(format!("waiting for {provider}"));
                let jitter = rand::rng().random_range(0.5..1.5);
                tokio::select! {
                    () = tokio::time::sleep(pause.mul_f64(jitter)) => {}
                    () = superseded(entry, record) => return Err(Error::Conflict("the desk is to be deleted".into())),
                    () = engine.closing.cancelled() => return Err(ProviderError::Unavailable { provider, reason }.into()),
                }
                pause = (pause * 2).min(LAST_PAUSE);
            }
            other => return other,
        }
    }
    Ok(Gain::Nothing)
}

/// The step itself. Can be repeated at any point.
async fn once(engine: &Arc<Engine>, record: &Arc<Record>, progress: &Progress) -> Result<Gain> {
    let provider = engine.providers.choose(Some(&record.provider))?;
    let (id, spec) = (&record.id, &record.spec);
    if matches!(record.state, State::Creating | State::Starting | State::Resetting) {
        engine.mount_sources(&spec.volumes).await?;
    }
    Ok(match record.state {
        State::Creating => {
            if lacks_template(engine, record) {
                prepare(engine, record, progress).await?;
            }
            Gain::Placed(provider.create(spec, progress).await?)
        }
        // It never ran: there are no files to start from.
        State::Starting if record.placed.is_none() && record.archive.is_none() => {
            Gain::Placed(provider.create(spec, progress).await?)
        }
        State::Starting => Gain::Placed(provider.start(spec, progress).await?),
        State::Stopping => {
            provider.stop(id).await?;
            Gain::Nothing
        }
        State::Resetting => match provider.reset(spec, progress).await {
            // Nothing of it is left; the template is all that is needed.
            Err(ProviderError::NotFound(_)) => {
                provider.delete(id).await?;
                Gain::Placed(provider.create(spec, progress).await?)
            }
            other => Gain::Placed(other?),
        },
        State::Archiving => archive(engine, record, provider, progress).await?,
        State::Restoring => {
            restore(engine, record, provider, progress).await?;
            Gain::Nothing
        }
        State::Deleting => {
            provider.delete(id).await?;
            if let Some(archive) = &record.archive {
                engine.archives()?.delete(archive).await?;
            }
            Gain::Nothing
        }
        _ => Gain::Nothing,
    })
}

async fn archive(engine: &Arc<Engine>, record: &Arc<Record>, provider: &Arc<dyn Provider>, progress: &Progress) -> Result<Gain> {
    let reference = match &record.archive {
        // It was written down that it is there; what is left is to remove the files.
        Some(reference) => reference.clone(),
        None => {
            // A bucket is elsewhere; a directory is most often on the disk of the store.
            if !engine.config.archive.contains("://") {
                engine.room()?;
            }
            progress.stage("writing the archive");
            let reference = engine.archives()?.save(provider, &record.id).await?;
            engine
                .change(&record.id, |r| {
                    if r.state != State::Archiving {
                        return Err(Error::Conflict("the desk is no longer to be archived".into()));
                    }
                    r.archive = Some(reference.clone());
                    Ok(Some(Note::silent()))
                })
                .await?;
            reference
        }
    };
    progress.stage("removing the files here");
    provider.delete(&record.id).await?;
    Ok(Gain::Archived(reference))
}

async fn restore(engine: &Arc<Engine>, record: &Arc<Record>, provider: &Arc<dyn Provider>, progress: &Progress) -> Result<()> {
    let Some(reference) = &record.archive else {
        return Err(Error::Conflict("the desk has no archive".into()));
    };
    progress.stage("reading the archive");
    engine.archives()?.restore(reference, provider, &record.spec).await
}

/// Writes down that the step came to its end. If the desk was to be deleted meanwhile, that stands.
async fn done(engine: &Arc<Engine>, record: &Arc<Record>, gain: Gain) -> Result<bool> {
    let now = engine.clock.now_ms();
    let old_archive = record.archive.clone().filter(|_| record.state == State::Starting);
    let written = engine
        .change(&record.id, |r| {
            let Next::To(to) = state::next(r.state, Intent::Done)? else { return Ok(None) };
            if r.state != record.state {
                return Ok(None);
            }
            r.state = to;
            match (&gain, to) {
                (Gain::Placed(placed), _) => {
                    r.placed = Some(placed.clone());
                    r.active_ms = now;
                    r.reason = match record.state {
                        State::Creating => "ready".into(),
                        State::Resetting => "reset".into(),
                        _ => "started".into(),
                    };
                    r.archive = None;
                }
                (Gain::Archived(reference), _) => r.archive = Some(reference.clone()),
                // Why it was stopped or deleted stays its reason.
                (Gain::Nothing, _) => {}
            }
            Ok(Some(Note::state("driver")))
        })
        .await?;
    tracing::info!(state = telemetry::word(written.state), reason = written.reason, "the step is done");
    if let (Some(archive), true) = (old_archive, written.state == State::Running) {
        // The files are here again; a copy that is left behind costs room, nothing else.
        if let Err(e) = engine.archives()?.delete(&archive).await {
            tracing::warn!(error = %e, location = archive.location, "the archive of a restored desk was not removed");
        }
    }
    Ok(true)
}

/// Cleans up and writes down why the step failed. False: it stays to be done.
async fn failed(engine: &Arc<Engine>, held: &Held, entry: &Arc<Entry>, record: &Arc<Record>, error: Error) -> Result<bool> {
    tracing::warn!(step = telemetry::word(record.state), error = %error, "the step failed");
    // Nothing half made stays behind, and nothing runs of a desk that counts as broken. What can't be done now, reconcile does later.
    let clean = async {
        let provider = engine.providers.choose(Some(&record.provider))?;
        match record.state {
            State::Creating => provider.delete(&record.id).await.map_err(Error::from),
            State::Starting | State::Resetting => provider.stop(&record.id).await.map_err(Error::from),
            _ => Ok(()),
        }
    };
    tokio::select! {
        result = tokio::time::timeout(DELETE_LIMIT, clean) => {
            if let Ok(Err(e)) = result {
                tracing::warn!(error = %e, "what was made of a desk that failed is not removed yet");
            }
        }
        () = held.lost() => return Ok(true),
        () = superseded(entry, record) => return Ok(true),
    }
    let reason = match (record.state, &error) {
        (State::Archiving, e) => format!("archiving failed: {e}"),
        (State::Restoring, e) => format!("restoring failed: {e}"),
        (State::Starting, Error::Provider(ProviderError::NotFound(e))) => {
            format!("its files are gone ({e}); reset makes it anew from its template")
        }
        (_, e) => e.to_string(),
    };
    let mut stays = false;
    engine
        .change(&record.id, |r| {
            stays = false;
            if r.state != record.state {
                return Ok(None);
            }
            match state::next(r.state, Intent::Failed)? {
                Next::To(to) => r.state = to,
                Next::Stay | Next::Wait => {
                    stays = true;
                    if r.reason == reason {
                        return Ok(None);
                    }
                }
            }
            r.reason.clone_from(&reason);
            Ok(Some(Note::state("driver")))
        })
        .await?;
    Ok(!stays)
}

/// The provider is away: the step stays as it is, shown with the reason.
fn put_off(engine: &Engine, record: &Record, provider: &str, reason: &str) {
    tracing::warn!(provider, reason, step = telemetry::word(record.state), "put off: the provider is away");
    if provider == record.provider && engine.providers.set_away(&record.provider, Some(reason.into())) {
        telemetry::provider_up(&record.provider, false);
    }
}

/// Returns when the desk is to be deleted while something else is done with it.
async fn superseded(entry: &Entry, record: &Record) {
    if record.state == State::Deleting {
        return std::future::pending().await;
    }
    entry.until(|r| matches!(r.state, State::Deleting | State::Deleted)).await;
}

/// Shows the stages of a step for as long as it takes.
async fn show_stages(engine: &Engine, entry: &Entry, mut stages: tokio::sync::watch::Receiver<String>) {
    let provider = entry.record().provider.clone();
    let mut last: Option<(String, Instant)> = None;
    while stages.changed().await.is_ok() {
        let stage = stages.borrow_and_update().clone();
        if let Some((stage, since)) = last.take() {
            telemetry::stage(&provider, &stage, since.elapsed());
        }
        last = Some((stage.clone(), Instant::now()));
        engine.stage(entry, Some(stage));
    }
    std::future::pending().await
}
