//! Two bridges per fleet: one that leads out, one that leads nowhere. On neither can desks see each other, and from
//! neither can they reach the machine itself.
//!
//! The Engine sees to the first two. The third it has no option for, so a rule of the machine's packet filter does it; that
//! needs root, and `check` says so where it is missing.

use super::engine::{ORDINARY, STARTING, gone_is_none};
use super::{Docker, LABEL_FLEET};
use crate::{Error, Result};
use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::InspectNetworkOptions;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the rule for each of the two bridges is known to be there.
#[derive(Default)]
pub(super) struct Guarded {
    open: AtomicBool,
    closed: AtomicBool,
}

impl Guarded {
    fn of(&self, out: bool) -> &AtomicBool {
        if out { &self.open } else { &self.closed }
    }
}

impl Docker {
    /// The name of the bridge for desks with or without a way out.
    pub(super) fn network_name(&self, out: bool) -> String {
        format!("hotdesk-{}-{}", self.context.fleet, if out { "open" } else { "closed" })
    }

    /// Its device: names of devices have room for 15 letters.
    fn device(&self, out: bool) -> String {
        let fleet: String = self.context.fleet.chars().take(8).collect();
        format!("hd-{fleet}-{}", if out { "o" } else { "c" })
    }

    pub(super) async fn ensure_network(&self, out: bool) -> Result<String> {
        let name = self.network_name(out);
        let there =
            self.engine.ask(ORDINARY, async |docker| docker.inspect_network(&name, None::<InspectNetworkOptions>).await).await;
        if gone_is_none(there)?.is_none() {
            self.make_network(out).await?;
            self.guarded.of(out).store(false, Ordering::Release);
        }
        if !self.guarded.of(out).load(Ordering::Acquire) {
            match self.guard(out).await {
                Ok(()) => self.guarded.of(out).store(true, Ordering::Release),
                Err(reason) => tracing::warn!("desks can reach this machine's own addresses, because {reason}"),
            }
        }
        Ok(name)
    }

    async fn make_network(&self, out: bool) -> Result<()> {
        let request = NetworkCreateRequest {
            name: self.network_name(out),
            driver: Some("bridge".into()),
            internal: Some(!out),
            options: Some(HashMap::from([
                ("com.docker.network.bridge.enable_icc".into(), "false".into()),
                ("com.docker.network.bridge.name".into(), self.device(out)),
            ])),
            labels: Some(HashMap::from([(LABEL_FLEET.into(), self.context.fleet.clone())])),
            ..NetworkCreateRequest::default()
        };
        match self.engine.ask(STARTING, async |docker| docker.create_network(request).await).await {
            // Somebody was quicker.
            Err(Error::Failed(message)) if message.contains("already exists") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Nothing that begins on the bridge reaches the machine itself; answers to what the machine began do.
    async fn guard(&self, out: bool) -> Result<(), String> {
        let device = self.device(out);
        match filter("-C", &device).await {
            Ok(()) => Ok(()),
            Err(_) => filter("-I", &device).await,
        }
    }

    /// Whether the rule can be there, for people.
    pub(super) async fn can_guard(&self) -> Result<(), String> {
        run(&["-w", "-L", "INPUT", "-n"]).await
    }

    /// The bridges go with the last desk. One that is in use stays: the Engine refuses.
    pub(super) async fn remove_unused_networks(&self) -> Result<()> {
        if !self.containers().await?.is_empty() {
            return Ok(());
        }
        for out in [true, false] {
            let name = self.network_name(out);
            match self.engine.ask(STARTING, async |docker| docker.remove_network(&name).await).await {
                Ok(()) => {
                    self.guarded.of(out).store(false, Ordering::Release);
                    let _ = filter("-D", &self.device(out)).await;
                }
                Err(e) => tracing::debug!("network {name} stays: {e}"),
            }
        }
        Ok(())
    }
}

async fn filter(verb: &str, device: &str) -> Result<(), String> {
    run(&["-w", verb, "INPUT", "-i", device, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]).await
}

async fn run(arguments: &[&str]) -> Result<(), String> {
    let mut command = tokio::process::Command::new("iptables");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("iptables said: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Err(format!("iptables can't be started: {e}")),
    }
}
