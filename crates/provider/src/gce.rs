//! Desks as virtual machines of Google Compute Engine.
//!
//! Each desk is one instance, booted from the golden image of its template, reached at its internal address. The gateway therefore
//! runs in the same network, or in one that leads there.
//!
//! ```text
//!   fleet ──► compute API: insert, stop, start, delete, with a request id ──► operation, awaited
//!   gateway ──► 10.0.0.7:5000, `hotdesk desk` in the instance ◄── token and settings from the instance's metadata
//! ```
//!
//! - **Names.** Instances are `hotdesk-FLEET-DESK`, so that every call can be repeated; labels say whose they are. A name is unique in
//!   its zone only: zones are tried in one order, the next only after Google said that the one before has no room, and
//!   [`Gce::list`](Provider::list) removes a second instance of a desk, should there ever be one.
//! - **Lost replies.** Whatever changes something carries a `requestId`, and is sent again with the same one.
//! - **Preempted** instances are found stopped by the fleet, which starts them again; see [`Preempted`].
//! - **Secrets** are in the instance's metadata, which the machine itself and those who may read instances can see; never on a
//!   disk, so neither in a snapshot. Credentials are those of the machine or of the environment, and are not kept.

mod api;
mod bucket;
mod config;
mod fault;
mod health;
mod image;
mod instance;
mod life;
mod model;
mod save;

use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage};
use api::Api;
use async_trait::async_trait;
pub use config::{Config, MachineType, Preempted};
use hotdesk_api::fleet::Capabilities;
pub use image::{Publish, Published};
use std::path::Path;
use std::sync::Mutex;
use tokio::time::Instant;

/// This provider's name.
pub(crate) const NAME: &str = "gce";
/// Whose an instance, disk, snapshot is.
const LABEL_FLEET: &str = "hotdesk-fleet";
const LABEL_DESK: &str = "hotdesk-desk";
const LABEL_TEMPLATE: &str = "hotdesk-template";
/// What `hotdesk boot` reads in the instance.
const METADATA_TOKEN: &str = "hotdesk-token";
const METADATA_SETTINGS: &str = "hotdesk-settings";

/// The provider.
pub struct Gce {
    context: Context,
    config: Config,
    api: Api,
    /// When disks that nobody uses were last looked for.
    swept: Mutex<Option<Instant>>,
}

impl Gce {
    /// Asks nothing of Google yet; credentials are looked for with the first call.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        config.check()?;
        let api = Api::new(&config)?;
        Ok(Self { context, config, api, swept: Mutex::default() })
    }

    /// The name of what belongs to a desk or a snapshot.
    fn own_name(&self, id: &str) -> String {
        format!("{NAME_PREFIX}{}-{id}", self.context.fleet)
    }
}

/// With which names begin.
const NAME_PREFIX: &str = "hotdesk-";

#[async_trait]
impl Provider for Gce {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_here(&self) -> bool {
        false
    }

    async fn capabilities(&self) -> Capabilities {
        self.can()
    }

    async fn check(&self) -> Vec<Check> {
        self.look_around().await
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        progress.stage("looking for the golden image");
        self.newest_image(template).await.map(drop)
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.make(spec, progress).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.wake(spec, progress).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.put_to_rest(id).await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.make_anew(spec, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.remove(id).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let found = self.all().await?;
        self.sweep_disks().await;
        Ok(found)
    }

    async fn usage(&self, _id: &str) -> Result<Usage> {
        Err(Error::Unsupported {
            provider: NAME,
            what: "asking what a desk uses".into(),
            reason: "Compute Engine does not tell; Cloud Monitoring has the figures of its instances".into(),
        })
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        self.console(id, lines).await
    }

    async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        if memory {
            return Err(Error::Unsupported {
                provider: NAME,
                what: "a snapshot with memory".into(),
                reason: health::NO_MEMORY.into(),
            });
        }
        self.save(id, snapshot).await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.drop_snapshot(snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        self.saved().await
    }

    async fn export(&self, _id: &str, _to: &Path) -> Result<()> {
        Err(no_archive())
    }

    async fn import(&self, _spec: &DeskSpec, _from: &Path) -> Result<()> {
        Err(no_archive())
    }
}

fn no_archive() -> Error {
    Error::Unsupported {
        provider: NAME,
        what: "an archive".into(),
        reason: "a disk of Google's can't be read from outside; a stopped desk costs its disk alone, a snapshot less".into(),
    }
}
