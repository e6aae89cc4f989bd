//! Two bridges per fleet: one that leads out, one that leads nowhere. On neither can desks see each other, and from
//! neither can they reach the machine itself or, unless a setting opens them, the networks around it ([`guard`]).

use super::engine::{ORDINARY, STARTING, gone_is_none};
use super::guard::{self, Guard};
use super::{Docker, LABEL_FLEET, NAME};
use crate::{Error, Result};
use bollard::models::{NetworkCreateRequest, NetworkInspect};
use bollard::query_parameters::InspectNetworkOptions;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// How often the guards are compared with what they should be, while there is a bridge.
const LOOK: Duration = Duration::from_secs(5);

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

    /// Whether the bridge is in our network namespace, so that its containers are reached at their own addresses.
    pub(super) fn is_near(&self, out: bool) -> bool {
        guard::is_here(&self.device(out))
    }

    /// The bridge, with its guard; to be asked for before every start, because both can have gone since the last one.
    pub(super) async fn ensure_network(&self, out: bool) -> Result<String> {
        self.watch_guards();
        let _held = self.networks.lock().await;
        let name = self.network_name(out);
        let network = match self.inspect_network(&name).await? {
            Some(network) => Some(network),
            None => {
                self.make_network(out).await?;
                self.inspect_network(&name).await?
            }
        };
        let ipv6 = network.and_then(|network| network.enable_ipv6).unwrap_or(false);
        match self.guard(out, ipv6).put().await {
            Ok(_) => {}
            Err(reason) if self.config.unguarded => {
                tracing::warn!("desks can reach this machine and its networks, because {reason}")
            }
            Err(reason) => {
                return Err(Error::Unsupported {
                    provider: NAME,
                    what: "a desk that can't reach this machine and its networks".into(),
                    reason: format!("{reason}; `[docker] unguarded = true` starts desks all the same"),
                });
            }
        }
        Ok(name)
    }

    async fn inspect_network(&self, name: &str) -> Result<Option<NetworkInspect>> {
        let asked =
            self.engine.ask(ORDINARY, async |docker| docker.inspect_network(name, None::<InspectNetworkOptions>).await).await;
        gone_is_none(asked)
    }

    /// Looks after the guards from now on, whether the Engine answers or not: bridges and containers outlive it.
    pub(super) fn watch_guards(&self) {
        self.watch.get_or_init(|| {
            let guards = [true, false].map(|out| (self.network_name(out), self.guard(out, false)));
            let (held, unguarded) = (Arc::clone(&self.networks), self.config.unguarded);
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    tokio::time::sleep(LOOK).await;
                    let _held = held.lock().await;
                    for (name, guard) in guards.iter().filter(|(_, guard)| guard::is_here(&guard.device)) {
                        look_after(name, guard, unguarded).await;
                    }
                }
            }))
        });
    }

    /// The same now, with what the Engine knows of its bridges.
    pub(super) async fn look_after_guards(&self) {
        let _held = self.networks.lock().await;
        for out in [true, false] {
            let name = self.network_name(out);
            let Ok(Some(network)) = self.inspect_network(&name).await else { continue };
            look_after(&name, &self.guard(out, network.enable_ipv6.unwrap_or(false)), self.config.unguarded).await;
        }
    }

    fn guard(&self, out: bool, ipv6: bool) -> Guard {
        let fleet: String = self.context.fleet.chars().take(8).collect();
        Guard {
            device: self.device(out),
            chain: format!("HOTDESK-{fleet}"),
            forwards: out,
            ipv6,
            allowed: self.config.allow_private.clone(),
        }
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

    /// The bridges go with the last desk. One that is in use stays: the Engine refuses.
    pub(super) async fn remove_unused_networks(&self) -> Result<()> {
        let _held = self.networks.lock().await;
        if !self.containers().await?.is_empty() {
            return Ok(());
        }
        for out in [true, false] {
            let name = self.network_name(out);
            match self.engine.ask(STARTING, async |docker| docker.remove_network(&name).await).await {
                Ok(()) => self.guard(out, true).remove().await,
                Err(e) => tracing::debug!("network {name} stays: {e}"),
            }
        }
        Ok(())
    }
}

/// Whoever reloads the machine's packet filter takes our rules away; desks that run must not profit from it for long.
async fn look_after(network: &str, guard: &Guard, unguarded: bool) {
    match guard.put().await {
        Ok(guard::Found::Whole) => {}
        Ok(guard::Found::Mended) => {
            tracing::warn!(network, "rules that guard desks were gone from the packet filter, and are back")
        }
        Err(reason) if unguarded => tracing::debug!(network, "no guard: {reason}"),
        Err(reason) => tracing::error!(network, "desks that run can reach this machine and its networks, because {reason}"),
    }
}
