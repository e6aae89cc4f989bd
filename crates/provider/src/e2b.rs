//! Desks as sandboxes of E2B: micro-VMs that are resumed from a template's memory.
//!
//! ```text
//!   template  = an E2B template, built through its API from our OCI image by its pushed name, once per size
//!   desk      = a sandbox of it, with metadata hotdesk_fleet and hotdesk_desk
//!   door      = https://5000-SANDBOX.DOMAIN with the sandbox's traffic token (or one address for all, with headers)
//! ```
//!
//! - **Once.** A create carries an idempotency key, and what exists of a desk is looked for by its metadata before another is made.
//! - **Time.** A sandbox lives until its time-out; while it runs, a task of ours moves that ahead. Should we be away for longer, it is paused
//!   and not killed, and the fleet resumes it: a desk is never lost to a clock.
//! - **Secrets.** A template's memory is the same for all its sandboxes, so the desk's server is started afterwards: a small
//!   loop in the template waits for a file with the desk's settings, which is sent in through E2B's own daemon and removed when it was read.
//! - **Stop** is a pause, with memory: a desk that is started again goes on where it was.

mod alive;
mod config;
mod envd;
mod life;
mod sandbox;
mod snapshot;
mod template;

pub use config::{Config, Template};

use crate::cloud::{self, Api, Call, Kind, Pace, Vendor};
use crate::{Check, Context, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage};
use async_trait::async_trait;
use hotdesk_api::fleet::Capabilities;
use http::header::{HeaderMap, HeaderValue};
use secrecy::ExposeSecret;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tokio_util::task::AbortOnDropHandle;

/// This provider's name.
pub(crate) const NAME: &str = "e2b";
/// Where the key is looked for first.
const KEY: &str = "E2B_API_KEY";
const META_FLEET: &str = "hotdesk_fleet";
const META_DESK: &str = "hotdesk_desk";
const NO_FORK: &str = "a sandbox that goes on from a snapshot gets a desk of its own anew, because it needs a token of its own";
const NO_ARCHIVE: &str = "E2B keeps what is paused, and gives out no file systems";

/// Desks in one team of E2B.
pub struct E2b {
    team: Arc<Team>,
    _alive: AbortOnDropHandle<()>,
}

/// What the provider and its task share.
pub(crate) struct Team {
    context: Context,
    config: Config,
    api: Api,
    /// The server does not know the second version of the calls that make and resume sandboxes.
    old: AtomicBool,
    /// Where desks are that this process has seen run.
    known: Mutex<HashMap<String, sandbox::Known>>,
    /// Held while a template is built: one build is enough, however many desks want it.
    making: tokio::sync::Mutex<()>,
}

impl E2b {
    /// Reads the key and starts the task that keeps sandboxes alive; must be called within a runtime.
    pub fn new(context: Context, config: Config) -> Result<Self> {
        let key = cloud::credential(NAME, KEY, config.key_file.as_deref())?;
        let unusable = |_| Error::Unavailable { provider: NAME, reason: "its key can't be sent".into() };
        let mut value = HeaderValue::from_str(key.expose_secret()).map_err(unusable)?;
        value.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", value);
        let pace = Pace::new(config.requests_per_second, config.burst);
        let address = config.api_url.clone().unwrap_or_else(|| format!("https://api.{}", config.domain));
        let api = Api::new(Vendor { name: NAME, sort }, &address, config.insecure, config.ca_file.as_deref(), headers, pace)?;
        let team = Team {
            context,
            config,
            api,
            old: AtomicBool::new(false),
            known: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        };
        let team = Arc::new(team);
        let alive = AbortOnDropHandle::new(tokio::spawn(alive::keep(Arc::clone(&team))));
        Ok(Self { team, _alive: alive })
    }
}

/// E2B tells too many sandboxes with the status of too many requests, so its words decide.
fn sort(status: u16, message: &str) -> Option<Kind> {
    let said = message.to_ascii_lowercase();
    let quota = ["concurrent", "maximum number", "quota", "limit reached", "exceeded your", "billing", "payment", "tier"];
    match status {
        400 | 402 | 403 | 429 if quota.iter().any(|word| said.contains(word)) => Some(Kind::Quota),
        _ => None,
    }
}

#[async_trait]
impl Provider for E2b {
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
            live_fork_reason: NO_FORK.into(),
            archive: false,
            network: true,
            cpu_limit: true,
            memory_limit: true,
            // The plan says how large it is.
            disk_limit: false,
            volumes: false,
            templates: self.team.config.templates.keys().cloned().collect(),
        }
    }

    async fn check(&self) -> Vec<Check> {
        let line = |what: &str, good, detail: String, fix: Option<&str>| Check {
            what: format!("E2B: {what}"),
            good,
            detail,
            fix: fix.map(str::to_owned),
        };
        let team = &self.team;
        if let Err(fault) = team.api.ask(Call::get("/v2/sandboxes").query("limit", 1)).await {
            let fix = if fault.kind == Kind::Auth {
                "make a key in E2B's dashboard and set E2B_API_KEY"
            } else {
                "look at api_url and at the network"
            };
            return vec![line("key", false, fault.to_string(), Some(fix))];
        }
        let mut checks = vec![line("key", true, format!("taken by {}", team.api.base()), None)];
        if team.config.templates.is_empty() {
            let fix = "push an image and name it: [e2b.templates.base] image = \"HOST/NAME:TAG\"";
            checks.push(line("templates", false, "no template has an image".into(), Some(fix)));
        }
        for name in team.config.templates.keys() {
            let (good, detail) = match team.state_of_template(name).await {
                Ok(text) => (true, text),
                Err(e) => (false, e.to_string()),
            };
            checks.push(line(&format!("template {name}"), good, detail, (!good).then_some("look at its image in the settings")));
        }
        checks
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        self.team.ensure_template(template, hotdesk_api::desk::Resources::default(), progress).await.map(drop)
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        match self.team.look(&spec.id).await? {
            Some(listed) => {
                let access = self.team.connect(&listed.sandbox_id, progress).await?;
                self.team.ready(spec, &access, false, progress).await
            }
            None => {
                let access = self.team.make(spec, progress).await?;
                self.team.ready(spec, &access, true, progress).await
            }
        }
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let gone = || Error::NotFound(format!("desk {} has no sandbox at E2B any more; it ended or was killed", spec.id));
        let listed = self.team.look(&spec.id).await?.ok_or_else(gone)?;
        let access = self.team.connect(&listed.sandbox_id, progress).await?;
        self.team.ready(spec, &access, false, progress).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.team.pause(id).await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        // Ask for what it is made from first: a desk whose template is gone stays as it is.
        self.team.origin(spec, progress).await?;
        progress.stage("removing the old sandbox");
        self.team.kill(&spec.id).await?;
        let access = self.team.make(spec, progress).await?;
        self.team.ready(spec, &access, true, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.team.kill(id).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        self.team.found().await
    }

    async fn usage(&self, id: &str) -> Result<Usage> {
        self.team.usage_of(id).await
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        self.team.logs_of(id, lines).await
    }

    async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        if memory {
            return Err(unsupported("a snapshot with memory", NO_FORK));
        }
        self.team.save(id, snapshot).await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.team.drop_snapshot(snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        self.team.saved().await
    }

    async fn export(&self, _: &str, _: &Path) -> Result<()> {
        Err(unsupported("an archive", NO_ARCHIVE))
    }

    async fn import(&self, _: &DeskSpec, _: &Path) -> Result<()> {
        Err(unsupported("an archive", NO_ARCHIVE))
    }
}

fn unsupported(what: &str, reason: &str) -> Error {
    Error::Unsupported { provider: NAME, what: what.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_sandboxes_are_told_from_too_many_requests() {
        let words = "you have reached the maximum number of concurrent E2B sandboxes (20)";
        assert_eq!(sort(429, words), Some(Kind::Quota));
        assert_eq!((sort(429, "rate limited, slow down"), sort(500, words)), (None, None));
    }
}
