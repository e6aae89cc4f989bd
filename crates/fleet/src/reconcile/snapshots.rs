//! Snapshots: unfinished ones end, those of nobody go.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::telemetry;
use hotdesk_api::desk::{Snapshot, SnapshotState};
use hotdesk_provider::Provider;
use std::collections::HashSet;
use std::sync::Arc;

/// The reason of a snapshot that was made for a fork; it goes with the last desk that was made from it.
pub(crate) const FOR_A_FORK: &str = "made for a fork; goes with the last desk that came from it";

pub(super) async fn compare(engine: &Arc<Engine>, name: &str, provider: &Arc<dyn Provider>) -> Result<()> {
    // The provider first: a record is written before anything is made, so what is seen here has one, if it is somebody's.
    let exist: HashSet<String> = provider.snapshots().await?.into_iter().collect();
    let records: Vec<Snapshot> = engine.store.snapshots().await?.into_iter().filter(|s| s.provider == name).collect();
    let known: HashSet<&str> = records.iter().map(|s| s.id.as_str()).collect();
    for id in exist.iter().filter(|id| !known.contains(id.as_str())) {
        provider.delete_snapshot(id).await?;
        tracing::warn!(snapshot = id, provider = name, "an orphaned snapshot was removed");
        telemetry::orphan(name, "snapshot");
    }
    for snapshot in records {
        let unused = snapshot.reason == FOR_A_FORK && !is_used(engine, &snapshot.id);
        match snapshot.state {
            SnapshotState::Creating => unfinished(engine, provider, snapshot).await?,
            SnapshotState::Deleting => remove(engine, provider, &snapshot.id).await?,
            SnapshotState::Ready if unused => unused_fork(engine, provider, snapshot).await?,
            SnapshotState::Ready if !exist.contains(&snapshot.id) => {
                let gone = Snapshot { state: SnapshotState::Error, reason: "its files are gone; delete it".into(), ..snapshot };
                engine.store.put_snapshot(&gone).await?;
            }
            SnapshotState::Ready | SnapshotState::Error => {}
        }
    }
    Ok(())
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
    match provider.delete_snapshot(id).await {
        Ok(()) | Err(hotdesk_provider::Error::NotFound(_)) => engine.store.remove_snapshot(id).await,
        Err(e) => Err(Error::from(e)),
    }
}
