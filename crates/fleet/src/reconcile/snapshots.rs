//! Snapshots: unfinished ones end, those of nobody are kept for a while ([`orphans`]).

use super::orphans::{self, Stranger};
use super::{LIST_LIMIT, Memory, REMOVE_LIMIT};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::store::DELETED;
use crate::telemetry;
use hotdesk_api::desk::{Snapshot, SnapshotState};
use hotdesk_api::fleet::OrphanKind;
use hotdesk_provider::Provider;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The reason of a snapshot that was made for a fork; it goes with the last desk that was made from it.
pub(crate) const FOR_A_FORK: &str = "made for a fork; goes with the last desk that came from it";

pub(super) async fn compare(
    engine: &Arc<Engine>,
    memory: &Mutex<Memory>,
    name: &str,
    provider: &Arc<dyn Provider>,
) -> Result<()> {
    // The provider first: a record is written before anything is made, so what is seen here has one, if it is somebody's.
    let exist: HashSet<String> = list(provider).await?.into_iter().collect();
    let all = engine.store.snapshots().await?;
    // Of any provider: a row that can't be read may not say whose it is, and its files are not to be taken for nobody's.
    let known: HashSet<String> = all.iter().map(|s| s.id.clone()).collect();
    let records: Vec<Snapshot> = all.into_iter().filter(|s| s.provider == name).collect();
    let mut unknown = Vec::new();
    // One that can't be removed does not keep the others waiting; the last error is told.
    let mut failed = None;
    for id in exist.iter().filter(|id| !known.contains(*id)) {
        match engine.store.note(DELETED, &format!("snapshot/{id}")).await? {
            None => unknown.push(Stranger { id: id.clone(), running: false }),
            Some(_) => match discard(provider, id).await {
                Ok(()) => {
                    tracing::warn!(snapshot = id, provider = name, "what was left of a deleted snapshot was removed");
                    telemetry::orphan(name, "snapshot");
                }
                Err(e) => failed = Some(e),
            },
        }
    }
    let settled = orphans::settle(engine, memory, provider, OrphanKind::Snapshot, unknown, exist.len()).await;
    failed = settled.err().or(failed);
    for snapshot in records {
        let id = snapshot.id.clone();
        if let Err(e) = compare_one(engine, provider, snapshot, exist.contains(&id)).await {
            tracing::warn!(snapshot = id, error = %e, "not reconciled; trying again");
            failed = Some(e);
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn compare_one(engine: &Arc<Engine>, provider: &Arc<dyn Provider>, snapshot: Snapshot, exists: bool) -> Result<()> {
    let unused = snapshot.reason == FOR_A_FORK && !is_used(engine, &snapshot.id);
    // An older copy of the store does not know that it was finished, or that a desk was made from it.
    let put_back = engine.put_back.load(Ordering::Relaxed);
    match snapshot.state {
        SnapshotState::Creating if put_back && exists => {
            let there = Snapshot { state: SnapshotState::Ready, ..snapshot };
            engine.store.put_snapshot(&there).await
        }
        SnapshotState::Creating => unfinished(engine, provider, snapshot).await,
        SnapshotState::Deleting => remove(engine, provider, &snapshot.id).await,
        SnapshotState::Ready if unused && !put_back => unused_fork(engine, provider, snapshot).await,
        SnapshotState::Ready if !exists => {
            let gone = Snapshot { state: SnapshotState::Error, reason: "its files are gone; delete it".into(), ..snapshot };
            engine.store.put_snapshot(&gone).await
        }
        SnapshotState::Ready | SnapshotState::Error => Ok(()),
    }
}

async fn list(provider: &Arc<dyn Provider>) -> Result<Vec<String>> {
    match tokio::time::timeout(LIST_LIMIT, provider.snapshots()).await {
        Ok(found) => found.map_err(Error::from),
        Err(_) => Err(Error::Timeout { what: "listing the snapshots".into(), limit: LIST_LIMIT }),
    }
}

/// Removes its files; one that is gone already is no error.
pub(crate) async fn discard(provider: &Arc<dyn Provider>, id: &str) -> Result<()> {
    match tokio::time::timeout(REMOVE_LIMIT, provider.delete_snapshot(id)).await {
        Ok(Ok(()) | Err(hotdesk_provider::Error::NotFound(_))) => Ok(()),
        Ok(Err(e)) => Err(Error::from(e)),
        Err(_) => Err(Error::Timeout { what: "removing a snapshot".into(), limit: REMOVE_LIMIT }),
    }
}

/// The desks that were made from it, and need it to be reset or started.
pub(crate) fn users(engine: &Engine, snapshot: &str) -> Vec<String> {
    let mut used = Vec::new();
    engine.view.for_each(|_, r| {
        if r.spec.snapshot.as_ref().is_some_and(|s| s.id == snapshot) {
            used.push(r.id.clone());
        }
    });
    used
}

fn is_used(engine: &Engine, snapshot: &str) -> bool {
    !users(engine, snapshot).is_empty()
}

/// Whoever makes a snapshot holds its desk; if we can hold it, nobody does.
async fn unfinished(engine: &Arc<Engine>, provider: &Arc<dyn Provider>, snapshot: Snapshot) -> Result<()> {
    let Some(held) = engine.hold(&snapshot.desk).await? else { return Ok(()) };
    let now = engine.store.snapshots().await?.into_iter().find(|s| s.id == snapshot.id);
    if now.is_some_and(|s| s.state == SnapshotState::Creating) {
        tracing::info!(snapshot = snapshot.id, desk = snapshot.desk, "a snapshot that was never finished is removed");
        remove(engine, provider, &snapshot.id).await?;
    }
    held.release().await;
    Ok(())
}

/// A fork holds the source's lease from the snapshot until its own record is written.
async fn unused_fork(engine: &Arc<Engine>, provider: &Arc<dyn Provider>, snapshot: Snapshot) -> Result<()> {
    let Some(held) = engine.hold(&snapshot.desk).await? else { return Ok(()) };
    if !engine.alone {
        engine.reread().await?;
    }
    if !is_used(engine, &snapshot.id) {
        remove(engine, provider, &snapshot.id).await?;
    }
    held.release().await;
    Ok(())
}

pub(crate) async fn remove(engine: &Engine, provider: &Arc<dyn Provider>, id: &str) -> Result<()> {
    discard(provider, id).await?;
    engine.store.remove_snapshot(id).await
}
