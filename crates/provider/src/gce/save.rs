//! Snapshots: the disk of a desk, saved by Google. A desk that runs is saved as if its power were cut, which its file system survives.

use super::fault::Fault;
use super::model::Snapshot;
use super::{Gce, LABEL_FLEET, NAME_PREFIX};
use crate::{Error, Result};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// The first snapshot of a disk copies all that is on it.
const SAVE_LIMIT: Duration = Duration::from_secs(1800);
const DELETE_LIMIT: Duration = Duration::from_secs(120);
/// Pauses between two looks at a snapshot that is being uploaded.
const LOOK: Duration = Duration::from_secs(2);
const LABEL_SNAPSHOT: &str = "hotdesk-snapshot";

impl Gce {
    pub(super) async fn save(&self, id: &str, snapshot: &str) -> Result<u64> {
        let Some(instance) = self.find(id).await? else {
            return Err(Error::NotFound(format!("the desk `{id}` has no instance")));
        };
        let disk = instance.disk().ok_or_else(|| Error::Failed(format!("the instance of `{id}` has no boot disk")))?;
        let name = self.own_name(snapshot);
        let body = json!({
            "name": name,
            "labels": { LABEL_FLEET: self.context.fleet, LABEL_SNAPSHOT: snapshot },
        });
        let path = format!("zones/{}/disks/{disk}/createSnapshot", instance.zone());
        match self.api.post(&path, Some(body), SAVE_LIMIT).await {
            // Of an earlier call whose answer got lost.
            Ok(_) | Err(Fault::Exists(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
        let end = Instant::now() + SAVE_LIMIT;
        loop {
            let saved: Snapshot = self.api.get(&format!("global/snapshots/{name}")).await?;
            match saved.status.as_str() {
                "READY" => return Ok(saved.storage_bytes),
                "FAILED" => return Err(Error::Failed("Google could not save the disk".into())),
                _ if Instant::now() > end => return Err(Error::Failed("Google did not finish the snapshot".into())),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// A snapshot to start from.
    pub(super) async fn snapshot_of(&self, snapshot: &str) -> Result<Snapshot> {
        match self.api.get(&format!("global/snapshots/{}", self.own_name(snapshot))).await {
            Err(Fault::Gone(_)) => Err(Error::NotFound(format!("the snapshot `{snapshot}` is not at Google any more"))),
            other => Ok(other?),
        }
    }

    pub(super) async fn drop_snapshot(&self, snapshot: &str) -> Result<()> {
        match self.api.delete(&format!("global/snapshots/{}", self.own_name(snapshot)), DELETE_LIMIT).await {
            Ok(_) | Err(Fault::Gone(_)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    pub(super) async fn saved(&self) -> Result<Vec<String>> {
        let filter = format!("labels.{LABEL_FLEET} = \"{}\"", self.context.fleet);
        let saved: Vec<Snapshot> = self.api.list("global/snapshots", &filter).await?;
        let prefix = format!("{NAME_PREFIX}{}-", self.context.fleet);
        Ok(saved.iter().filter_map(|one| one.name.strip_prefix(&prefix)).map(str::to_owned).collect())
    }
}
