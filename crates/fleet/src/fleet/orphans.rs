//! What providers have and the store does not know: shown, adopted, removed.

use super::create::{Draft, random_id};
use super::{Fleet, Who};
use crate::clock::rfc3339;
use crate::driver::hold::Held;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::limits::request;
use crate::reconcile::{orphans, snapshots};
use crate::store::facts;
use hotdesk_api::desk::{NewDesk, Snapshot, SnapshotState, State};
use hotdesk_api::fleet::{Adopt, Adopted, Orphan, OrphanKind};
use hotdesk_provider::{Address, Placed};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Fleet {
    /// What is kept though no record knows it.
    pub async fn orphans(&self, who: &Who) -> Result<Vec<Orphan>> {
        who.rules()?;
        orphans::list(&self.engine).await
    }

    /// Makes an orphan a desk or a snapshot of the fleet again. A desk is stopped then: what it was started with is not known any more.
    pub async fn adopt(&self, who: &Who, id: &str, how: Adopt) -> Result<Adopted> {
        let orphan = self.orphan(who, id).await?;
        request::new_desk(&NewDesk { name: how.name.clone(), project: how.project.clone(), ..NewDesk::default() })?;
        let project = super::create::project_of(who, how.project.as_deref())?;
        let (engine, by) = (Arc::clone(&self.engine), who.clone());
        let adopted = match orphan.kind {
            OrphanKind::Desk => {
                self.engine.detached(async move { adopt_desk(&engine, &by, &orphan, project, how).await }).await?;
                Adopted::Desk(Box::new(self.desk(who, id).await?))
            }
            OrphanKind::Snapshot => Adopted::Snapshot(
                self.engine.detached(async move { adopt_snapshot(&engine, &by, &orphan, project, how).await }).await?,
            ),
        };
        Ok(adopted)
    }

    /// Removes an orphan for good, now.
    pub async fn remove_orphan(&self, who: &Who, id: &str) -> Result<()> {
        let orphan = self.orphan(who, id).await?;
        let (engine, by) = (Arc::clone(&self.engine), who.name.clone());
        self.engine
            .detached(async move {
                let held = hold(&engine, &orphan.id).await?;
                let provider = engine.providers.choose(Some(&orphan.provider))?;
                let removed = match orphan.kind {
                    OrphanKind::Desk => provider.delete(&orphan.id).await.map_err(Error::from),
                    OrphanKind::Snapshot => snapshots::discard(provider, &orphan.id).await,
                };
                held.release().await;
                removed?;
                orphans::forget(&engine, &orphan).await?;
                let desk = (orphan.kind == OrphanKind::Desk).then_some(orphan.id.as_str());
                let reason = format!("the {} {} at {} was removed", orphan.kind.word(), orphan.id, orphan.provider);
                engine.tell("orphan", desk, None, reason, &by).await;
                engine.wanted.send_modify(|count| *count += 1);
                Ok(())
            })
            .await
    }

    /// What should be adopted was: the rest is stopped, and removed in a week. An older copy of the store is the store from now on.
    pub async fn settle_orphans(&self, who: &Who) -> Result<()> {
        who.rules()?;
        let engine = &self.engine;
        orphans::let_go(engine).await?;
        engine.store.remove_fact(facts::PUT_BACK).await?;
        engine.undecided.lock().unwrap_or_else(PoisonError::into_inner).clear();
        engine.put_back.store(engine.lost_events.load(Ordering::Relaxed), Ordering::Relaxed);
        engine.tell("orphan", None, None, "what nobody adopted is removed in a week", &who.name).await;
        engine.wanted.send_modify(|count| *count += 1);
        Ok(())
    }

    async fn orphan(&self, who: &Who, id: &str) -> Result<Orphan> {
        let unknown = || Error::NotFound { what: "orphan", id: id.into() };
        // Whoever may not see them learns nothing about ids.
        who.rules().map_err(|_| unknown())?;
        self.orphans(who).await?.into_iter().find(|o| o.id == id).ok_or_else(unknown)
    }
}

async fn hold(engine: &Arc<Engine>, id: &str) -> Result<Held> {
    let busy = || Error::Conflict(format!("another orchestrator is at work on {id}; try again"));
    engine.hold(id).await?.ok_or_else(busy)
}

async fn adopt_desk(engine: &Arc<Engine>, who: &Who, orphan: &Orphan, project: String, how: Adopt) -> Result<()> {
    let provider = engine.providers.choose(Some(&orphan.provider))?;
    let template = how.template.unwrap_or_else(|| engine.config.template.clone());
    let held = hold(engine, &orphan.id).await?;
    let work = async {
        // Its secret is not known, so nobody could use it while it runs.
        provider.stop(&orphan.id).await?;
        let mut draft = Draft::new(engine, provider.name(), &template);
        draft.id.clone_from(&orphan.id);
        draft.name = how.name;
        draft.project = project;
        draft.key.clone_from(&who.key);
        draft.network = provider.capabilities().await.network;
        let mut record = draft.record(engine, "adopted");
        record.state = State::Stopped;
        // It has files: a start must use them, and not make it anew.
        record.placed = Some(Placed { address: Address::Unix { path: "".into() }, handle: serde_json::Value::Null });
        let event = engine.event(&record, "state", &who.name);
        engine.store.insert(&record, event).await?;
        engine.apply(record);
        orphans::forget(engine, orphan).await
    };
    let result = work.await;
    held.release().await;
    engine.wanted.send_modify(|count| *count += 1);
    result
}

async fn adopt_snapshot(engine: &Arc<Engine>, who: &Who, orphan: &Orphan, project: String, how: Adopt) -> Result<Snapshot> {
    let snapshot = Snapshot {
        id: orphan.id.clone(),
        name: how.name,
        project,
        desk: random_id("d"),
        template: how.template.unwrap_or_else(|| engine.config.template.clone()),
        provider: orphan.provider.clone(),
        // Its files are good in any case; whether there is memory that fits them is not known.
        memory: false,
        size_bytes: 0,
        created_at: rfc3339(engine.clock.now_ms()),
        state: SnapshotState::Ready,
        reason: "adopted".into(),
    };
    engine.store.put_snapshot(&snapshot).await?;
    orphans::forget(engine, orphan).await?;
    engine.tell("snapshot", None, Some(&snapshot.project), format!("the snapshot {} was adopted", snapshot.id), &who.name).await;
    engine.wanted.send_modify(|count| *count += 1);
    Ok(snapshot)
}
