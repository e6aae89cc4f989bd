//! Sandboxes as E2B tells them, and the way into one.

use super::{META_DESK, META_FLEET, Team};
use crate::cloud::{Call, escaped};
use crate::door::Web;
use crate::{Address, Error, Found, Placed, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

/// The port of the desk's server in our images.
pub(super) const PORT: u16 = 5000;
const PAGE: usize = 100;

/// One of a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    #[serde(rename = "sandboxID")]
    pub(super) sandbox_id: String,
    pub(super) state: String,
    pub(super) started_at: jiff::Timestamp,
    pub(super) end_at: jiff::Timestamp,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

impl Listed {
    pub(super) fn is_running(&self) -> bool {
        self.state == "running"
    }
}

/// What opens a sandbox: told when it is made or resumed, and at no other time.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Access {
    #[serde(rename = "sandboxID")]
    pub(super) sandbox_id: String,
    #[serde(default)]
    pub(super) envd_access_token: Option<String>,
    #[serde(default)]
    traffic_access_token: Option<String>,
    #[serde(default)]
    domain: Option<String>,
}

/// A desk's sandbox and its address.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) sandbox: String,
    pub(super) placed: Placed,
}

impl Team {
    /// All sandboxes of the fleet, or those of one desk, oldest first.
    pub(super) async fn sandboxes(&self, desk: Option<&str>) -> Result<Vec<Listed>> {
        let mut wanted = format!("{META_FLEET}={}", escaped(&self.context.fleet));
        if let Some(desk) = desk {
            wanted = format!("{wanted}&{META_DESK}={}", escaped(desk));
        }
        let mut all: Vec<Listed> = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut call =
                Call::get("/v2/sandboxes").query("metadata", &wanted).query("state", "running,paused").query("limit", PAGE);
            if let Some(token) = &next {
                call = call.query("nextToken", token);
            }
            let reply = self.api.ask(call).await?;
            let page: Vec<Listed> = reply.json()?;
            // Looked at again: what is not ours is never touched.
            all.extend(page.into_iter().filter(|listed| {
                let is = |name: &str, value: &str| listed.metadata.get(name).is_some_and(|v| v == value);
                is(META_FLEET, &self.context.fleet)
                    && desk.is_none_or(|desk| is(META_DESK, desk))
                    && listed.metadata.contains_key(META_DESK)
            }));
            let token = reply.headers.get("x-next-token").and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty());
            match token {
                Some(token) if next.as_deref() != Some(token) => next = Some(token.to_owned()),
                _ => break,
            }
        }
        all.sort_by(|a, b| a.started_at.cmp(&b.started_at).then_with(|| a.sandbox_id.cmp(&b.sandbox_id)));
        Ok(all)
    }

    /// A desk's sandbox. Should there be two, because a reply got lost at a server that knows no idempotency, one is left.
    pub(super) async fn look(&self, desk: &str) -> Result<Option<Listed>> {
        let mut all = self.sandboxes(Some(desk)).await?;
        if all.is_empty() {
            return Ok(None);
        }
        let known = self.known(desk).and_then(|known| all.iter().position(|listed| listed.sandbox_id == known.sandbox));
        let kept = all.swap_remove(known.unwrap_or(0));
        for extra in all {
            tracing::warn!(desk, sandbox = extra.sandbox_id, "a second sandbox of a desk is removed");
            self.kill_one(&extra.sandbox_id).await?;
        }
        Ok(Some(kept))
    }

    pub(super) async fn found(&self) -> Result<Vec<Found>> {
        let mut desks: HashMap<String, Found> = HashMap::new();
        for listed in self.sandboxes(None).await? {
            let Some(id) = listed.metadata.get(META_DESK).cloned() else { continue };
            let known = self.known(&id);
            let ours = known.as_ref().is_some_and(|known| known.sandbox == listed.sandbox_id);
            if desks.contains_key(&id) && !ours {
                continue;
            }
            let placed = known.filter(|_| ours && listed.is_running()).map(|known| known.placed);
            desks.insert(id.clone(), Found { id, running: listed.is_running(), placed });
        }
        Ok(desks.into_values().collect())
    }

    pub(super) fn known(&self, desk: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(desk).cloned()
    }

    pub(super) fn remember(&self, desk: &str, known: Known) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(desk.to_owned(), known);
    }

    pub(super) fn forget(&self, desk: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(desk);
    }

    /// The way to a port of a sandbox.
    pub(super) fn web(&self, access: &Access, port: u16) -> Result<Web> {
        let mut headers = Vec::new();
        if let Some(token) = &access.traffic_access_token {
            headers.push(("e2b-traffic-access-token".to_owned(), token.clone()));
        }
        let url = match &self.config.sandbox_url {
            Some(url) => {
                headers.push(("e2b-sandbox-id".into(), access.sandbox_id.clone()));
                headers.push(("e2b-sandbox-port".into(), port.to_string()));
                url.clone()
            }
            None => {
                let domain = access.domain.as_deref().filter(|domain| !domain.is_empty()).unwrap_or(&self.config.domain);
                format!("https://{port}-{}.{domain}", access.sandbox_id)
            }
        };
        Web::of(&url, self.config.ca_file.clone(), headers)
            .ok_or_else(|| Error::Failed(format!("{url} is no web address of a sandbox")))
    }

    pub(super) fn placed(&self, access: &Access) -> Result<Placed> {
        let handle = serde_json::json!({ "sandbox": access.sandbox_id });
        Ok(Placed { address: Address::Web(self.web(access, PORT)?), handle })
    }
}
