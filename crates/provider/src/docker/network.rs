//! Two bridges per fleet: one that leads out, one that leads nowhere. On neither can desks see each other.

use super::engine::{ORDINARY, STARTING, gone_is_none};
use super::{Docker, LABEL_FLEET};
use crate::Result;
use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::InspectNetworkOptions;
use std::collections::HashMap;

impl Docker {
    /// The name of the bridge for desks with or without a way out.
    pub(super) fn network_name(&self, out: bool) -> String {
        format!("hotdesk-{}-{}", self.context.fleet, if out { "open" } else { "closed" })
    }

    pub(super) async fn ensure_network(&self, out: bool) -> Result<String> {
        let name = self.network_name(out);
        let there = self.engine.ask(ORDINARY, async |docker| docker.inspect_network(&name, None::<InspectNetworkOptions>).await).await;
        if gone_is_none(there)?.is_some() {
            return Ok(name);
        }
        let request = NetworkCreateRequest {
            name: name.clone(),
            driver: Some("bridge".into()),
            internal: Some(!out),
            options: Some(HashMap::from([("com.docker.network.bridge.enable_icc".into(), "false".into())])),
            labels: Some(HashMap::from([(LABEL_FLEET.into(), self.context.fleet.clone())])),
            ..NetworkCreateRequest::default()
        };
        match self.engine.ask(STARTING, async |docker| docker.create_network(request).await).await {
            Err(crate::Error::Failed(message)) if !message.contains("already exists") => Err(crate::Error::Failed(message)),
            Err(other @ (crate::Error::Unavailable { .. } | crate::Error::Full(_))) => Err(other),
            _ => Ok(name),
        }
    }

    /// The bridges go with the last desk. One that is in use stays: the Engine refuses.
    pub(super) async fn remove_unused_networks(&self) -> Result<()> {
        if !self.containers().await?.is_empty() {
            return Ok(());
        }
        for out in [true, false] {
            let name = self.network_name(out);
            if let Err(e) = self.engine.ask(STARTING, async |docker| docker.remove_network(&name).await).await {
                tracing::debug!("network {name} stays: {e}");
            }
        }
        Ok(())
    }
}
