//! Snapshots and forks.

use super::create::{Draft, project_of, random_id, write};
use super::{Fleet, Who};
use crate::clock::rfc3339;
use crate::driver::hold::Held;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::keys::{Deed, On, may};
use crate::limits::{Wanted, request};
use crate::reconcile::snapshots::{FOR_A_FORK, remove, users};
use crate::store::Record;
use crate::telemetry::word;
use hotdesk_api::desk::{Desk, NewDesk, Snapshot, SnapshotState, State};
use hotdesk_api::fleet::Scope;
use hotdesk_provider::{Error as ProviderError, SnapshotRef};
use std::sync::Arc;
use std::time::Duration;

/// Gigabytes of memory and files to a slow disk.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(600);
/// How long another orchestrator's work on the desk is waited for.
const HOLD_LIMIT: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl Fleet {
    /// Saves a desk: its files, and with `memory` also its programs as they run.
    pub async fn snapshot(&self, who: &Who, id: &str, name: Option<String>, memory: bool) -> Result<Snapshot> {
        if let Some(name) = &name {
            request::new_desk(&NewDesk { name: Some(name.clone()), ..NewDesk::default() })?;
        }
        let entry = self.find(who, id, Deed::Save)?;
        let (engine, by) = (Arc::clone(&self.engine), who.name.clone());
        self.engine
            .detached(async move {
                let (held, record) = hold_resting(&engine, &entry.id, memory).await?;
                let snapshot = take(&engine, &held, &record, name, memory, "asked for").await;
                held.release().await;
                let snapshot = snapshot?;
                engine.tell("snapshot", Some(&record.id), Some(&record.project), format!("saved as {}", snapshot.id), &by).await;
                Ok(snapshot)
            })
            .await
    }

    pub async fn snapshots(&self, who: &Who) -> Result<Vec<Snapshot>> {
        let all = self.engine.store.snapshots().await?;
        Ok(all.into_iter().filter(|s| who.sees(&s.project, &s.desk)).collect())
    }

    pub(super) async fn snapshot_of(&self, who: &Who, id: &str) -> Result<Snapshot> {
        let all = self.snapshots(who).await?;
        let by_name = |s: &Snapshot| s.name.as_deref() == Some(id);
        let found = all.iter().find(|s| s.id == id).or_else(|| all.iter().rev().find(|s| by_name(s)));
        found.cloned().ok_or_else(|| Error::NotFound { what: "snapshot", id: id.into() })
    }

    /// Removes a snapshot; one that desks were made from stays, and that is an error.
    pub async fn delete_snapshot(&self, who: &Who, id: &str) -> Result<()> {
        self.remove_snapshot(who, id, false).await
    }

    /// Removes a snapshot at once, or, if desks were made from it, with the last of them.
    pub async fn give_up_snapshot(&self, who: &Who, id: &str) -> Result<()> {
        self.remove_snapshot(who, id, true).await
    }

    async fn remove_snapshot(&self, who: &Who, id: &str, later: bool) -> Result<()> {
        let snapshot = self.snapshot_of(who, id).await?;
        may(who, Deed::Delete, On::Desk { id: &snapshot.desk, project: &snapshot.project })?;
        let engine = Arc::clone(&self.engine);
        self.engine
            .detached(async move {
                // The desk is held, so that no fork of it begins from this snapshot meanwhile.
                let held = hold(&engine, &snapshot.desk).await?;
                let used = users(&engine, &snapshot.id);
                if later && !used.is_empty() {
                    let left = Snapshot { name: None, reason: FOR_A_FORK.into(), ..snapshot };
                    let written = engine.store.put_snapshot(&left).await;
                    held.release().await;
                    return written;
                }
                if !used.is_empty() {
                    held.release().await;
                    return Err(Error::Conflict(format!(
                        "desks were made from the snapshot {} and need it: {}; delete them first",
                        snapshot.id,
                        used.join(", ")
                    )));
                }
                let provider = engine.providers.choose(Some(&snapshot.provider))?;
                engine.store.put_snapshot(&Snapshot { state: SnapshotState::Deleting, ..snapshot.clone() }).await?;
                // What fails now is done by reconcile.
                let removed = remove(&engine, provider, &snapshot.id).await;
                held.release().await;
                match removed {
                    Err(Error::Provider(ProviderError::Unavailable { .. })) => Ok(()),
                    other => other,
                }
            })
            .await
    }

    /// A snapshot and a desk from it in one step. What the request leaves out is as in the desk that is forked.
    pub async fn fork(&self, who: &Who, id: &str, memory: bool, request: NewDesk) -> Result<Desk> {
        request::new_desk(&request)?;
        if request.template.is_some() || request.snapshot.is_some() || request.provider.is_some() {
            return Err(Error::Invalid("a fork has the template and the provider of its desk; leave them out".into()));
        }
        let entry = self.find(who, id, Deed::Save)?;
        let source = entry.record();
        let project = match request.project.as_deref() {
            None if who.scope == Scope::Admin => source.project.clone(),
            asked => project_of(who, asked)?,
        };
        let engine = Arc::clone(&self.engine);
        engine.money.can_spend(&project, engine.clock.now_ms()).await?;
        let mut draft = Draft::new(&engine, &source.provider, &source.spec.template);
        draft.project.clone_from(&project);
        draft.key.clone_from(&who.key);
        draft.name = request.name;
        draft.labels = request.labels.unwrap_or_else(|| source.spec.labels.clone());
        draft.commands_env = request.commands_env.unwrap_or_else(|| source.commands_env.clone());
        draft.env = request.env.unwrap_or_else(|| source.spec.env.clone());
        draft.resources = request.resources.or(source.spec.resources);
        draft.policy = request.policy.or(source.policy);
        draft.screen = request.screen.unwrap_or(source.spec.screen);
        draft.network = request.network.unwrap_or(source.spec.network);
        draft.vnc_password = request.vnc_password.or_else(|| source.spec.vnc_password.clone());
        let wanted = Wanted {
            project,
            key: who.key.clone(),
            key_max: engine.keys.max_desks(&who.key),
            counted: true,
            cpu_and_memory: Some(draft.resources),
            disk_mib: draft.resources.disk_mib,
        };
        let mounts = request.volumes.unwrap_or_else(|| self.engine.shown_record(&source).volumes);
        engine.volume_places(&draft.project, &mounts).await?;
        let mut place = engine
            .admit(wanted.at(engine.providers.choose(Some(&source.provider))?.as_ref()), Duration::from_secs(request.queue_s))
            .await?;
        place.let_others();
        let (by, new) = (who.name.clone(), draft.id.clone());
        self.engine
            .detached(async move {
                let (held, record) = hold_resting(&engine, &entry.id, memory).await?;
                let made = async {
                    let snapshot = take(&engine, &held, &record, None, memory, FOR_A_FORK).await?;
                    draft.snapshot = Some(SnapshotRef { id: snapshot.id, memory });
                    draft.volumes = engine.volume_places(&draft.project, &mounts).await?;
                    write(&engine, draft, place, &by, None).await
                };
                // Held until the new desk is written down: a snapshot for a fork that no desk uses is removed.
                let made = made.await;
                held.release().await;
                made
            })
            .await?;
        let entry = self.engine.view.get(&new).ok_or(Error::NotFound { what: "desk", id: new })?;
        Ok(self.engine.shown(&entry))
    }
}

async fn hold(engine: &Arc<Engine>, desk: &str) -> Result<Held> {
    let deadline = tokio::time::Instant::now() + HOLD_LIMIT;
    loop {
        if let Some(held) = engine.hold(desk).await? {
            return Ok(held);
        }
        if tokio::time::Instant::now() > deadline {
            return Err(Error::Conflict(format!("another orchestrator is at work on {desk}; try again")));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Holds a desk that can be saved: it runs, or (without memory) it is stopped.
async fn hold_resting(engine: &Arc<Engine>, id: &str, memory: bool) -> Result<(Held, Arc<Record>)> {
    let held = hold(engine, id).await?;
    if !engine.alone {
        engine.refresh(id).await?;
    }
    let record = engine.view.get(id).map(|e| e.record()).ok_or_else(|| Error::NotFound { what: "desk", id: id.into() })?;
    let provider = engine.providers.choose(Some(&record.provider))?;
    let can = provider.capabilities().await;
    let refusal = match record.state {
        _ if memory && !can.live_fork => Some(Error::Provider(ProviderError::Unsupported {
            provider: provider.name(),
            what: "a snapshot with memory".into(),
            reason: can.live_fork_reason,
        })),
        // Open files of a volume would be those of another moment than the memory that knows them.
        _ if memory && !record.spec.volumes.is_empty() => Some(Error::Provider(ProviderError::Unsupported {
            provider: provider.name(),
            what: "a snapshot with memory".into(),
            reason: "the desk has volumes, whose files are not part of a snapshot; save its files alone".into(),
        })),
        _ if !can.snapshot => Some(Error::Provider(ProviderError::Unsupported {
            provider: provider.name(),
            what: "a snapshot".into(),
            reason: "the provider has no way to make one".into(),
        })),
        State::Running => None,
        State::Stopped if !memory => None,
        State::Stopped => {
            Some(Error::Conflict("the desk is stopped and has no memory to save; start it, or save its files alone".into()))
        }
        state => Some(Error::Conflict(format!("a desk that is {} can't be saved; wait until it runs", word(state)))),
    };
    match refusal {
        Some(refusal) => {
            held.release().await;
            Err(refusal)
        }
        None => Ok((held, record)),
    }
}

/// Writes the snapshot down, makes it, writes down that it is there.
async fn take(
    engine: &Arc<Engine>,
    held: &Held,
    record: &Record,
    name: Option<String>,
    memory: bool,
    reason: &str,
) -> Result<Snapshot> {
    let provider = engine.providers.choose(Some(&record.provider))?;
    let mut snapshot = Snapshot {
        id: random_id("s"),
        name,
        project: record.project.clone(),
        desk: record.id.clone(),
        template: record.spec.template.clone(),
        provider: record.provider.clone(),
        memory,
        size_bytes: 0,
        created_at: rfc3339(engine.clock.now_ms()),
        state: SnapshotState::Creating,
        reason: reason.into(),
    };
    {
        let _turn = engine.counting.lock().await;
        engine.snapshot_room(&record.project, provider.is_here()).await?;
        engine.store.put_snapshot(&snapshot).await?;
    }
    let made = tokio::select! {
        made = tokio::time::timeout(SNAPSHOT_LIMIT, provider.snapshot(&record.id, &snapshot.id, memory)) => match made {
            Ok(made) => made.map_err(Error::from),
            Err(_) => Err(Error::Timeout { what: "saving the desk".into(), limit: SNAPSHOT_LIMIT }),
        },
        () = held.lost() => Err(Error::Conflict("another orchestrator took the desk over while it was saved; try again".into())),
    };
    match made {
        Ok(bytes) => {
            snapshot.size_bytes = bytes;
            snapshot.state = SnapshotState::Ready;
            engine.store.put_snapshot(&snapshot).await?;
            Ok(snapshot)
        }
        Err(e) => {
            // What can't be removed now is removed by reconcile: its record still says that it is not finished.
            if let Err(left) = remove(engine, provider, &snapshot.id).await {
                tracing::warn!(desk = record.id, snapshot = snapshot.id, error = %left, "an unfinished snapshot is not removed yet");
            }
            Err(e)
        }
    }
}
