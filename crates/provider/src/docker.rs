//! Desks as containers, through the Docker Engine API.
//!
//! The same desk as elsewhere: an image made from the template's tree with our binary on top, run without root, without
//! capabilities, without a way to get any. What is particular here:
//!
//! - **Door.** The desk's server is reached at the container's own address, without a port of this machine. Where the Engine's bridge is
//!   not in our network namespace, as with rootless Engines, port 5000 is published on a free port of loopback. Both may change with
//!   every start, so both are read afterwards.
//! - **Secrets** are in no environment and no command line, because `docker inspect` shows those: the desk's settings are a
//!   file that is put into the container before it starts, and emptied before the container is saved. Labels of desks are
//!   no labels of containers: clients put secrets there.
//! - **Networks.** Rules of the machine's packet filter keep desks from the machine, from clouds' credentials and from private networks;
//!   they are looked after (`guard`), and no desk starts without them unless a setting says so.
//! - **Root.** Programs of templates that allow it become root of a user namespace (`userns-remap`), or no such desk starts unless a
//!   setting says so.
//! - **Names.** Containers are `hotdesk-FLEET-DESK`, so that every call can be repeated; labels `hotdesk.fleet` and
//!   `hotdesk.desk` say whose they are.
//! - **Archives** hold the whole file system, because Docker has no way to give out a container's changes alone. They need
//!   neither template nor image to come back.

mod container;
mod engine;
mod guard;
mod health;
mod image;
mod network;
mod save;
mod tree;

use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage, Wishes};
use async_trait::async_trait;
use bollard::models::{ContainerSummaryStateEnum, SystemInfo};
use engine::{Engine, ORDINARY, STARTING};
use futures_util::StreamExt;
use hotdesk_api::fleet::Capabilities;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, OnceCell};
use tokio_util::task::AbortOnDropHandle;

/// This provider's name.
pub(crate) const NAME: &str = "docker";
/// Whose a container, network or image is.
const LABEL_FLEET: &str = "hotdesk.fleet";
const LABEL_DESK: &str = "hotdesk.desk";
/// What an image that is known by a tag was when the desk was made.
const LABEL_IMAGE: &str = "hotdesk.image";

/// Settings of this provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Such as `unix:///var/run/docker.sock`. None: `DOCKER_HOST`, or else the usual socket.
    pub host: Option<String>,
    /// Private networks that desks may reach, such as `10.1.0.0/16`. Services that hand out a cloud's credentials stay closed.
    pub allow_private: Vec<crate::closed::Cidr>,
    /// Start desks also where the packet filter can't be told to keep them from this machine and its networks.
    pub unguarded: bool,
    /// Start desks of templates whose programs may become root also where the Engine has no user namespaces (`userns-remap`): their
    /// root is then the machine's, with few capabilities.
    pub shared_root: bool,
}

/// Desks as containers of one Docker Engine.
pub struct Docker {
    context: Context,
    engine: Engine,
    /// Held while an image is made: it is made once, however many desks want it.
    making: Mutex<()>,
    binary: image::BinaryName,
    config: Config,
    /// Held while a bridge and its guard come or go, so that no guard goes with the bridge before.
    networks: Arc<Mutex<()>>,
    /// Looks after the guards, from the first desk on.
    watch: OnceLock<AbortOnDropHandle<()>>,
    info: OnceCell<SystemInfo>,
}

impl Docker {
    /// Asks nothing of the Engine yet; it may be down now and up later.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        let engine = Engine::new(config.host.clone())?;
        Ok(Self {
            context,
            engine,
            making: Mutex::new(()),
            binary: image::BinaryName::default(),
            config,
            networks: Arc::default(),
            watch: OnceLock::new(),
            info: OnceCell::new(),
        })
    }

    fn container_name(&self, id: &str) -> String {
        format!("hotdesk-{}-{id}", self.context.fleet)
    }
}

#[async_trait]
impl Provider for Docker {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn capabilities(&self) -> Capabilities {
        health::capabilities(self).await
    }

    async fn check(&self) -> Vec<Check> {
        health::check(self).await
    }

    fn wishes(&self, template: &str) -> Wishes {
        Wishes::of(&self.context.images, template)
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        self.ensure_image(template, progress).await.map(drop)
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        match self.look(&spec.id).await? {
            Some(found) if found.running => self.ready(spec, progress).await,
            Some(_) => self.run(spec, progress).await,
            None => {
                // Asked first: what is refused takes no time and no disk.
                self.root_of(spec).await?;
                let image = self.image_of(spec, progress).await?;
                progress.stage("making the container");
                self.make(spec, &image).await?;
                self.run(spec, progress).await
            }
        }
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        match self.look(&spec.id).await? {
            Some(found) if found.running => self.ready(spec, progress).await,
            Some(_) => self.run(spec, progress).await,
            None => Err(Error::NotFound(format!("desk `{}` has no container any more; somebody removed it", spec.id))),
        }
    }

    async fn stop(&self, id: &str) -> Result<()> {
        let name = self.container_name(id);
        let options = bollard::query_parameters::StopContainerOptionsBuilder::new().t(container::STOP_S).build();
        engine::gone_is_good(self.engine.ask(STARTING, async |docker| docker.stop_container(&name, Some(options)).await).await)
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        // Ask first: a desk whose template is gone, or not allowed any more, stays as it is.
        self.root_of(spec).await?;
        let image = self.image_of(spec, progress).await?;
        progress.stage("removing the old container");
        self.remove(&spec.id).await?;
        progress.stage("making the container");
        self.make(spec, &image).await?;
        self.run(spec, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.remove(id).await?;
        self.remove_unused_networks().await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        let containers = self.containers().await?;
        if containers.iter().any(|container| container.state == Some(ContainerSummaryStateEnum::RUNNING)) {
            self.watch_guards();
            self.look_after_guards().await;
        }
        for container in containers {
            let Some(id) = container.labels.as_ref().and_then(|labels| labels.get(LABEL_DESK)) else { continue };
            let running = container.state == Some(ContainerSummaryStateEnum::RUNNING);
            let placed = if running { self.placed_of_summary(&container) } else { None };
            found.push(Found { id: id.clone(), running, placed });
        }
        Ok(found)
    }

    async fn usage(&self, id: &str) -> Result<Usage> {
        self.usage_of(id).await
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        let name = self.container_name(id);
        let options =
            bollard::query_parameters::LogsOptionsBuilder::new().stdout(true).stderr(true).tail(&lines.to_string()).build();
        self.engine
            .ask(ORDINARY, async |docker| {
                let mut stream = docker.logs(&name, Some(options));
                let mut text = String::new();
                while let Some(part) = stream.next().await {
                    text.push_str(&String::from_utf8_lossy(&part?.into_bytes()));
                }
                Ok(text)
            })
            .await
    }

    async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        if memory {
            return Err(no_memory());
        }
        self.save_snapshot(id, snapshot).await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.drop_snapshot(snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        self.list_snapshots().await
    }

    async fn export(&self, id: &str, to: &Path) -> Result<()> {
        self.write_archive(id, to).await
    }

    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        self.read_archive(spec, from).await
    }
}

fn no_memory() -> Error {
    Error::Unsupported {
        provider: NAME,
        what: "a snapshot with memory".into(),
        reason: "the Docker Engine saves files only; the local provider can do both".into(),
    }
}
