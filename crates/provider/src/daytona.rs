//! Desks as sandboxes of Daytona, through its API v0 (`https://app.daytona.io/api`).
//!
//! ```text
//!   template  = a Daytona snapshot, made from our OCI image by its pushed name, once per size
//!   desk      = a sandbox of it, named hotdesk-FLEET-DESK, with labels hotdesk.fleet and hotdesk.desk
//!   door      = the sandbox's preview link of port 5000, with the preview token, which is another after every start
//! ```
//!
//! - **Once.** A sandbox's name is unique in an organisation, so a create whose reply got lost meets itself as a conflict.
//! - **Secrets.** The desk's token goes in with the environment: whoever may read the organisation's sandboxes can read it.
//! - **Timers** of Daytona's own are off: the fleet decides when a desk stops. What lies stopped for long goes to Daytona's cold
//!   storage by itself, and comes back with a start.
//! - **Entrypoint.** It is named when the snapshot is made, because Daytona runs the image's own only on some ways.

mod config;
mod life;
mod sandbox;
mod template;
mod volume;

pub use config::{Config, Template};

use crate::cloud::{self, Api, Call, Fault, Kind, Pace, Vendor};
use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage};
use async_trait::async_trait;
use hotdesk_api::fleet::Capabilities;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use sandbox::Sandbox;
use secrecy::{ExposeSecret, SecretString};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

/// This provider's name.
pub(crate) const NAME: &str = "daytona";
/// Where the key is looked for first.
const KEY: &str = "DAYTONA_API_KEY";
const LABEL_FLEET: &str = "hotdesk.fleet";
const LABEL_DESK: &str = "hotdesk.desk";
/// The release of Daytona's own client whose forms of answers are expected; some answers differ by it.
const SPEAKS: &str = "0.226.1";
/// What the key must be allowed to do.
const PERMISSIONS: [&str; 4] = ["write:sandboxes", "delete:sandboxes", "write:snapshots", "delete:snapshots"];
/// Why there is no snapshot with memory.
const NO_MEMORY: &str = "Daytona's container sandboxes are saved without memory";

/// Desks in one organisation of Daytona.
pub struct Daytona {
    context: Context,
    config: Config,
    api: Api,
    /// Preview links that are good, by sandbox.
    links: Mutex<HashMap<String, sandbox::Link>>,
    /// Held while a snapshot is made: one is enough, however many desks want it.
    making: tokio::sync::Mutex<()>,
}

impl Daytona {
    /// Reads the key; asks nothing of Daytona yet.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        let key = cloud::credential(NAME, KEY, config.key_file.as_deref())?;
        let vendor = Vendor { name: NAME, sort };
        let pace = Pace::new(config.requests_per_second, config.burst);
        let api = Api::new(vendor, &config.api_url, config.insecure, config.ca_file.as_deref(), headers(&key)?, pace)?;
        Ok(Self { context, config, api, links: Mutex::default(), making: tokio::sync::Mutex::default() })
    }

    /// The sandbox's name, by which it can be asked for.
    fn sandbox_name(&self, id: &str) -> String {
        format!("hotdesk-{}-{id}", self.context.fleet)
    }
}

fn headers(key: &SecretString) -> Result<HeaderMap> {
    let unusable = |_| Error::Unavailable { provider: NAME, reason: "its key can't be sent".into() };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())).map_err(unusable)?;
    value.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value);
    headers.insert("x-daytona-source", HeaderValue::from_static("hotdesk"));
    headers.insert("x-daytona-sdk-version", HeaderValue::from_static(SPEAKS));
    Ok(headers)
}

/// Daytona tells a used-up quota with the status of a bad request (or of a forbidden one), so its words decide.
fn sort(status: u16, message: &str) -> Option<Kind> {
    let said = message.to_ascii_lowercase();
    let quota =
        ["quota", "limit exceeded", "limit reached", "no available runner", "maximum allowed", "exceeds maximum", "suspended"];
    match status {
        400 | 403 | 409 | 422 if quota.iter().any(|word| said.contains(word)) => Some(Kind::Quota),
        _ => None,
    }
}

#[async_trait]
impl Provider for Daytona {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_here(&self) -> bool {
        false
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities {
            reset: true,
            snapshot: true,
            live_fork: false,
            live_fork_reason: NO_MEMORY.into(),
            // Daytona moves what lies stopped to its own cold storage.
            archive: false,
            network: true,
            cpu_limit: true,
            memory_limit: true,
            disk_limit: true,
            volumes: true,
            templates: self.config.templates.keys().cloned().collect(),
        }
    }

    async fn check(&self) -> Vec<Check> {
        let line = |what: &str, good, detail: String, fix: Option<&str>| Check {
            what: format!("Daytona: {what}"),
            good,
            detail,
            fix: fix.map(str::to_owned),
        };
        #[derive(serde::Deserialize)]
        struct Key {
            #[serde(default)]
            permissions: Vec<String>,
        }
        let key: Key = match self.api.ask_for(Call::get("/api-keys/current")).await {
            Ok(key) => key,
            Err(fault) => {
                let fix = if fault.kind == Kind::Auth {
                    "make a key in Daytona's dashboard and set DAYTONA_API_KEY"
                } else {
                    "look at api_url and at the network"
                };
                return vec![line("key", false, fault.to_string(), Some(fix))];
            }
        };
        let missing: Vec<_> =
            PERMISSIONS.iter().filter(|wanted| !key.permissions.iter().any(|has| has == *wanted)).copied().collect();
        let mut checks = vec![if missing.is_empty() {
            line("key", true, format!("taken by {}", self.api.base()), None)
        } else {
            line("key", false, format!("it may not do: {}", missing.join(", ")), Some("make a key with these permissions"))
        }];
        if self.config.templates.is_empty() {
            let fix = "push an image and name it: [daytona.templates.base] image = \"HOST/NAME:TAG\"";
            checks.push(line("templates", false, "no template has an image".into(), Some(fix)));
        }
        for name in self.config.templates.keys() {
            let (good, detail) = match self.state_of_template(name).await {
                Ok(text) => (true, text),
                Err(e) => (false, e.to_string()),
            };
            checks.push(line(&format!("template {name}"), good, detail, (!good).then_some("look at its image in the settings")));
        }
        checks
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        let resources = hotdesk_api::desk::Resources::default();
        self.ensure_template(template, resources, progress).await.map(drop)
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let sandbox = match self.look(&spec.id).await? {
            Some(sandbox) => self.running(sandbox, progress).await?,
            None => self.make(spec, progress).await?,
        };
        self.ready(spec, &sandbox, progress).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let gone = || Error::NotFound(format!("desk {} has no sandbox at Daytona any more; somebody removed it", spec.id));
        let sandbox = self.look(&spec.id).await?.ok_or_else(gone)?;
        let sandbox = self.running(sandbox, progress).await?;
        self.ready(spec, &sandbox, progress).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.halt(id).await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        // Ask for what it is made from first: a desk whose template is gone stays as it is.
        self.origin(spec, progress).await?;
        progress.stage("removing the old sandbox");
        self.remove(&spec.id).await?;
        let sandbox = self.make(spec, progress).await?;
        self.ready(spec, &sandbox, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.remove(id).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for sandbox in self.sandboxes().await? {
            let Some(id) = sandbox.labels.get(LABEL_DESK).cloned() else { continue };
            let running = sandbox.is_up();
            let placed = if sandbox.state == "started" { self.placed_if_changed(&sandbox).await } else { None };
            found.push(Found { id, running, placed });
        }
        Ok(found)
    }

    async fn usage(&self, id: &str) -> Result<Usage> {
        self.usage_of(id).await
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        self.logs_of(id, lines).await
    }

    async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        if memory {
            return Err(unsupported("a snapshot with memory", NO_MEMORY));
        }
        self.save(id, snapshot).await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.drop_snapshot(&self.sandbox_name(snapshot)).await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        let prefix = self.sandbox_name("");
        let all = self.daytona_snapshots(&prefix).await?;
        Ok(all.into_iter().filter_map(|snapshot| snapshot.name.strip_prefix(&prefix).map(str::to_owned)).collect())
    }

    async fn export(&self, _: &str, _: &Path) -> Result<()> {
        Err(unsupported("an archive", NO_ARCHIVE))
    }

    async fn import(&self, _: &DeskSpec, _: &Path) -> Result<()> {
        Err(unsupported("an archive", NO_ARCHIVE))
    }
}

/// Why desks are not moved to the fleet's archive.
const NO_ARCHIVE: &str = "Daytona keeps what lies stopped in its own cold storage, and gives out no file systems";

fn unsupported(what: &str, reason: &str) -> Error {
    Error::Unsupported { provider: NAME, what: what.into(), reason: reason.into() }
}

fn is(fault: &Fault, kind: Kind) -> bool {
    fault.kind == kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_up_quota_is_told_from_a_bad_request() {
        assert_eq!(sort(400, "Total CPU limit exceeded. Maximum allowed: 10."), Some(Kind::Quota));
        assert_eq!(sort(403, "Organization is suspended: Depleted credits"), Some(Kind::Quota));
        assert_eq!(sort(400, "Snapshot quota exceeded"), Some(Kind::Quota));
        assert_eq!((sort(400, "name must be a string"), sort(500, "quota")), (None, None));
    }
}
