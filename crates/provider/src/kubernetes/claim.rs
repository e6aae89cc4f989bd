//! Claims: a desk's home, where a storage class is set, and volumes that desks share.

use super::cluster::Fault;
use super::{Kubernetes, LABEL_DESK, LABEL_FLEET, unsupported};
use crate::{DeskSpec, Error, Result, VolumePlace};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Whose volume a claim is.
const LABEL_VOLUME: &str = "hotdesk.volume";
/// Volumes have no size of their own in the fleet; classes that share directories do not enforce it.
const VOLUME_SIZE: &str = "10Gi";
/// How long a claim that is being deleted is waited for, and the pause between two looks.
const GONE_LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn home_name(fleet: &str, id: &str) -> String {
    format!("hotdesk-{fleet}-{id}-home")
}

pub(super) fn volume_name(fleet: &str, volume: &str) -> String {
    format!("hotdesk-{fleet}-{volume}")
}

impl Kubernetes {
    /// Everything that a Pod mounts, made if it is not there.
    pub(super) async fn ensure_claims(&self, spec: &DeskSpec) -> Result<()> {
        if self.config.storage_class.is_some() {
            let size = format!("{}Mi", spec.resources.disk_mib);
            let name = home_name(&self.context.fleet, &spec.id);
            self.ensure_claim(&name, "ReadWriteOnce", &size, json!({LABEL_DESK: spec.id})).await?;
            self.world().await?.note_home(&spec.id, true);
        }
        for volume in &spec.volumes {
            self.ensure_volume(volume).await?;
        }
        Ok(())
    }

    async fn ensure_volume(&self, volume: &VolumePlace) -> Result<()> {
        if volume.source.is_some() {
            let what = format!("the volume {}", volume.name);
            return Err(unsupported(&what, "it is a bucket, which is mounted on the gateway's machine and not on nodes"));
        }
        let name = volume_name(&self.context.fleet, &volume.volume);
        self.ensure_claim(&name, &self.config.volume_access, VOLUME_SIZE, json!({LABEL_VOLUME: volume.volume})).await
    }

    async fn ensure_claim(&self, name: &str, access: &str, size: &str, mut labels: Value) -> Result<()> {
        labels[LABEL_FLEET] = json!(self.context.fleet);
        let mut value = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {"accessModes": [access], "resources": {"requests": {"storage": size}}},
        });
        // An empty name is the cluster's default class, which is asked for by leaving it out.
        if let Some(class) = self.config.storage_class.as_deref().filter(|class| !class.is_empty()) {
            value["spec"]["storageClassName"] = json!(class);
        }
        let claim: PersistentVolumeClaim =
            serde_json::from_value(value).map_err(|e| Error::Failed(format!("the claim {name}: {e}")))?;
        let cluster = self.cluster().await?;
        let api = cluster.api::<PersistentVolumeClaim>();
        let params = PostParams::default();
        let end = Instant::now() + GONE_LIMIT;
        loop {
            match cluster.ask("make a claim", || api.create(&params, &claim)).await {
                Ok(_) => return Ok(()),
                Err(Fault::Exists) if self.has_claim(name).await? => return Ok(()),
                // An old one is on its way out, because a Pod that is on its way out mounts it.
                Err(Fault::Exists) if Instant::now() < end => tokio::time::sleep(LOOK).await,
                Err(Fault::Exists) => return Err(Error::Failed(format!("the old claim {name} does not go away"))),
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    pub(super) async fn has_home(&self, id: &str) -> Result<bool> {
        self.has_claim(&home_name(&self.context.fleet, id)).await
    }

    /// Whether there is such a claim, and it is there to stay.
    async fn has_claim(&self, name: &str) -> Result<bool> {
        let cluster = self.cluster().await?;
        let api = cluster.api::<PersistentVolumeClaim>();
        match cluster.ask("look at a claim", || api.get(name)).await {
            Ok(claim) => Ok(claim.metadata.deletion_timestamp.is_none()),
            Err(Fault::Missing) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Removes a desk's home.
    pub(super) async fn drop_home(&self, id: &str) -> Result<()> {
        if self.config.storage_class.is_none() {
            return Ok(());
        }
        let cluster = self.cluster().await?;
        let api = cluster.api::<PersistentVolumeClaim>();
        let name = home_name(&self.context.fleet, id);
        let params = DeleteParams::default();
        match cluster.ask("delete a claim", || api.delete(&name, &params)).await {
            Ok(_) | Err(Fault::Missing) => {}
            Err(fault) => return Err(fault.into()),
        }
        self.world().await?.note_home(id, false);
        Ok(())
    }
}
