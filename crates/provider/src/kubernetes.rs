//! Desks as Pods of a Kubernetes cluster.
//!
//! ```text
//!   fleet ── create ──► Pod ──► scheduler ──► kubelet ──► the desk's server at POD-IP:5000 ◄── gateway
//!                        ▲ owns                                                 (or a port-forward through the API server)
//!                      Secret: the desk's settings and its token
//!   fleet ◄── list ──── what the watch saw (no request)
//! ```
//!
//! - **Pods** pass the *restricted* Pod Security Standard ([`pod`]): no root, no capabilities, the runtime's seccomp profile, a root file
//!   system that can't be written. They are alone: no Deployment, no Service. What keeps them is the fleet.
//! - **Names** are fixed (`hotdesk-FLEET-DESK`), so every call can be repeated: what exists already is looked at.
//! - **Watches, not polling.** [`world`] follows the fleet's Pods and claims; [`Provider::list`] costs the API server nothing.
//! - **Files.** With a storage class each desk's home is a claim of its own that outlives its Pods. Without one it ends with the Pod, so
//!   desks are not stopped at all, and one that was lost begins anew or is in error ([`OnNodeLoss`]).
//! - **Networks.** Two NetworkPolicies per fleet ([`network`]): in, from the gateway alone; out, nowhere but to what is listed.
//! - **Throttling.** All requests pass one gate ([`cluster`]): so many at a time, and when the API server asks for a pause, a pause for all.

mod check;
mod claim;
mod cluster;
mod config;
mod door;
mod life;
mod network;
mod pod;
mod world;

pub use config::{Config, DoorKind, OnNodeLoss, Toleration};

use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage};
use async_trait::async_trait;
use cluster::Cluster;
use hotdesk_api::fleet::Capabilities;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{OnceCell, Semaphore};
use world::World;

/// This provider's name.
pub(crate) const NAME: &str = "kubernetes";
/// Whose an object is, and of which desk.
const LABEL_FLEET: &str = "hotdesk.fleet";
const LABEL_DESK: &str = "hotdesk.desk";
/// Where a desk's server listens.
const PORT: u16 = 5000;

/// Every right that is used, as (API group, resource, verbs). `deploy/kubernetes` gives these and no others; a test compares.
pub const RIGHTS: &[(&str, &str, &[&str])] = &[
    ("", "pods", &["create", "delete", "get", "list", "watch"]),
    ("", "pods/log", &["get"]),
    ("", "pods/portforward", &["create", "get"]),
    // Its settings are written and never read; they go with their Pod.
    ("", "secrets", &["create"]),
    ("", "persistentvolumeclaims", &["create", "delete", "get", "list", "watch"]),
    ("networking.k8s.io", "networkpolicies", &["create", "patch"]),
];

/// Desks as Pods of one cluster.
pub struct Kubernetes {
    context: Context,
    config: Config,
    /// Reached when it is first needed; it may be down now and up later.
    cluster: OnceCell<Arc<Cluster>>,
    world: OnceCell<Arc<World>>,
    doors: door::Doors,
    guarded: network::Guarded,
    /// Desks that may be started at the same time.
    starts: Semaphore,
}

impl Kubernetes {
    /// Asks nothing of the cluster yet.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        config.check()?;
        let starts = Semaphore::new(config.starts as usize);
        let doors = door::Doors::new(context.data.join("doors"), config.door);
        Ok(Self {
            context,
            config,
            cluster: OnceCell::new(),
            world: OnceCell::new(),
            doors,
            guarded: network::Guarded::default(),
            starts,
        })
    }

    async fn cluster(&self) -> Result<&Arc<Cluster>> {
        self.cluster.get_or_try_init(async || Cluster::connect(&self.config).await.map(Arc::new)).await
    }

    /// What exists, as far as the watch has seen; the first call waits until it has seen everything.
    async fn world(&self) -> Result<&Arc<World>> {
        let cluster = self.cluster().await?;
        let world = self
            .world
            .get_or_try_init(async || {
                Ok::<_, Error>(World::follow(cluster, &self.context.fleet, self.config.storage_class.is_some()))
            })
            .await?;
        world.synced().await?;
        Ok(world)
    }

    fn pod_name(&self, id: &str) -> String {
        format!("hotdesk-{}-{id}", self.context.fleet)
    }
}

#[async_trait]
impl Provider for Kubernetes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_here(&self) -> bool {
        false
    }

    fn keeps_files(&self) -> bool {
        self.config.storage_class.is_some()
    }

    async fn changed(&self) {
        match self.world().await {
            Ok(world) => world.changed().await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn capabilities(&self) -> Capabilities {
        check::capabilities(self)
    }

    async fn check(&self) -> Vec<Check> {
        check::check(self).await
    }

    async fn prepare(&self, template: &str, _: &Progress) -> Result<()> {
        pod::template(&self.context.images, template).map(drop)
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.make(spec, progress).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.start_again(spec, progress).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.end_pod(id).await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        pod::template(&self.context.images, &spec.template)?;
        progress.stage("removing the old pod");
        self.delete(&spec.id).await?;
        self.make(spec, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.end_pod(id).await?;
        self.drop_home(id).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let world = self.world().await?;
        // A watch that goes on where it broke off says nothing until something happens, so the API server itself is asked.
        if world.is_broken() && self.answers().await {
            world.mend();
        }
        let mut found = Vec::new();
        for (id, seen) in world.all()? {
            let running = seen.as_ref().is_some_and(|seen| seen.is_running());
            let placed = match &seen {
                Some(seen) if running => Some(self.placed(&id, seen)?),
                _ => None,
            };
            found.push(Found { id, running, placed });
        }
        Ok(found)
    }

    async fn usage(&self, _: &str) -> Result<Usage> {
        Err(unsupported("usage", "the API server does not count a Pod's CPU time; the cluster's own metrics do"))
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        self.pod_logs(id, lines).await
    }

    async fn snapshot(&self, _: &str, _: &str, _: bool) -> Result<u64> {
        Err(unsupported("a snapshot", "a Pod's files can't be saved by its API server"))
    }

    async fn delete_snapshot(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn export(&self, _: &str, _: &Path) -> Result<()> {
        Err(unsupported("an archive", "a claim's files can only be read from within a Pod"))
    }

    async fn import(&self, _: &DeskSpec, _: &Path) -> Result<()> {
        Err(unsupported("an archive", "a claim's files can only be written from within a Pod"))
    }
}

fn unsupported(what: &str, reason: &str) -> Error {
    Error::Unsupported { provider: NAME, what: what.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
