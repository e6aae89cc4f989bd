//! One sandbox, as Daytona tells it, and the way into it.

use super::{Daytona, LABEL_DESK, LABEL_FLEET};
use crate::cloud::{Call, Fault, escaped, gone_is_none};
use crate::door::Web;
use crate::{Address, Error, Placed, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// The port of the desk's server in our images.
const PORT: u16 = 5000;
const PAGE: usize = 100;
/// A link of a sandbox that changed is asked for anew, but not with every look.
const LINK_REST: Duration = Duration::from_secs(20);
/// And one that did not change, now and then: its token is another after a start of which we were not told.
const LINK_AGE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) state: String,
    pub(super) error_reason: Option<String>,
    pub(super) recoverable: Option<bool>,
    pub(super) updated_at: Option<String>,
    pub(super) toolbox_proxy_url: String,
}

impl Sandbox {
    /// Runs, or will without a word of ours.
    pub(super) fn is_up(&self) -> bool {
        ["started", "starting", "creating", "restoring", "resuming", "pulling_snapshot", "snapshotting", "resizing", "unknown"]
            .contains(&self.state.as_str())
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state.as_str(), "destroyed" | "destroying")
    }

    pub(super) fn is_broken(&self) -> bool {
        matches!(self.state.as_str(), "error" | "build_failed")
    }
}

/// A preview link that was good.
#[derive(Debug, Clone)]
pub(super) struct Link {
    placed: Placed,
    of: Option<String>,
    since: Instant,
}

#[derive(Deserialize)]
struct Preview {
    url: String,
    token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Sandbox>,
    next_cursor: Option<String>,
}

impl Daytona {
    pub(super) async fn sandbox(&self, name: &str) -> Result<Option<Sandbox>, Fault> {
        gone_is_none(self.api.ask_for(Call::get(format!("/sandbox/{}", escaped(name)))).await)
    }

    /// A desk's sandbox; one that is being removed counts as none.
    pub(super) async fn look(&self, id: &str) -> Result<Option<Sandbox>> {
        let found = self.sandbox(&self.sandbox_name(id)).await?;
        Ok(found.filter(|sandbox| !sandbox.is_gone() && sandbox.labels.get(LABEL_FLEET) == Some(&self.context.fleet)))
    }

    /// All of this fleet.
    pub(super) async fn sandboxes(&self) -> Result<Vec<Sandbox>> {
        let labels = serde_json::json!({ LABEL_FLEET: self.context.fleet }).to_string();
        let mut all: Vec<Sandbox> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut call = Call::get("/sandbox").query("limit", PAGE).query("labels", &labels);
            if let Some(cursor) = &cursor {
                call = call.query("cursor", cursor);
            }
            let page: Page = self.api.ask_for(call).await?;
            // Labels are looked at again: what is not ours is never touched.
            let ours = page.items.into_iter().filter(|s| !s.is_gone() && s.labels.get(LABEL_FLEET) == Some(&self.context.fleet));
            all.extend(ours.filter(|s| s.labels.contains_key(LABEL_DESK)));
            match page.next_cursor {
                Some(next) if !next.is_empty() && cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(all),
            }
        }
    }

    /// The way into a sandbox that was just started: asked for anew.
    pub(super) async fn placed(&self, sandbox: &Sandbox) -> Result<Placed> {
        let call = Call::get(format!("/sandbox/{}/ports/{PORT}/preview-url", escaped(&sandbox.id)));
        let preview: Preview = self.api.ask_for(call).await?;
        let headers = [("x-daytona-preview-token", preview.token.as_str()), ("x-daytona-skip-preview-warning", "true")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let web = Web::of(&preview.url, self.config.ca_file.clone(), headers)
            .ok_or_else(|| Error::Failed("Daytona's preview link is no web address".into()))?;
        let placed = Placed { address: Address::Web(web), handle: serde_json::json!({ "sandbox": sandbox.id }) };
        let link = Link { placed: placed.clone(), of: sandbox.updated_at.clone(), since: Instant::now() };
        self.links.lock().unwrap_or_else(PoisonError::into_inner).insert(sandbox.id.clone(), link);
        Ok(placed)
    }

    /// The same for a sandbox that was found: asked for when it may have changed. Nothing if Daytona does not say.
    pub(super) async fn placed_if_changed(&self, sandbox: &Sandbox) -> Option<Placed> {
        let known = self.links.lock().unwrap_or_else(PoisonError::into_inner).get(&sandbox.id).cloned();
        if let Some(link) = known {
            let rest = if link.of == sandbox.updated_at { LINK_AGE } else { LINK_REST };
            if link.since.elapsed() < rest {
                return Some(link.placed);
            }
        }
        self.placed(sandbox).await.ok()
    }

    pub(super) fn forget(&self, sandbox: &str) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }
}
