//! New sandboxes.

use super::control::life;
use super::labels::{Kept, Pairs};
use super::names;
use super::sandbox::opened;
use crate::app::App;
use crate::refusal::{Refusal, Result};
use crate::v1::arrived;
use crate::v1::idempotency;
use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::{Desk, DeskChange, NewDesk, Policy, PolicyRequest, State};
use hotdesk_fleet::{Prepared, Who};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// When a client does not say how long a sandbox lives, on the new path and on the old one.
const LIFE: i64 = 300;
const LIFE_BEFORE: i64 = 15;
pub(super) const TEMPLATE: &str = "base";
/// Clients give up after 60 s.
const LIMIT: Duration = Duration::from_secs(50);
/// The life of a sandbox that nobody was told of: whoever asked for it has left, and did not ask again.
const UNTOLD: Duration = Duration::from_secs(120);
/// How long to wait for a place when the fleet is full, in seconds.
const QUEUE: u64 = 20;

/// What a client asks for; what it may ask for besides has no meaning here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wish {
    #[serde(rename = "templateID")]
    template: Option<String>,
    timeout: Option<i64>,
    #[serde(default)]
    auto_pause: bool,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    network: Option<Network>,
    metadata: Option<Pairs>,
    env_vars: Option<Pairs>,
}

/// What a client wants of the network. Fields that are not known here are refused: they may be about its safety.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Network {
    allow_public_traffic: Option<bool>,
    /// Of no meaning where everything is plain HTTP inside.
    #[serde(rename = "httpsPorts")]
    _https_ports: Option<Value>,
    allow_out: Option<Value>,
    deny_out: Option<Value>,
    dns_servers: Option<Value>,
    egress_proxy: Option<Value>,
    mask_request_host: Option<Value>,
    rules: Option<Value>,
}

impl Network {
    /// Refuses what can't be enforced: a sandbox has the whole network or none.
    fn check(&self) -> Result<()> {
        for (name, wish) in [
            ("allowOut", &self.allow_out),
            ("denyOut", &self.deny_out),
            ("dnsServers", &self.dns_servers),
            ("egressProxy", &self.egress_proxy),
            ("maskRequestHost", &self.mask_request_host),
            ("rules", &self.rules),
        ] {
            let wants = match wish {
                None | Some(Value::Null) => false,
                Some(Value::Array(list)) => !list.is_empty(),
                Some(Value::Object(map)) => !map.is_empty(),
                Some(Value::String(text)) => !text.is_empty(),
                Some(_) => true,
            };
            if wants {
                return Err(Refusal::invalid(format!("network.{name} can't be enforced here"))
                    .hint("a sandbox has the whole network, or none with allow_internet_access: false"));
            }
        }
        Ok(())
    }
}

pub(super) async fn make(app: App, who: Who, version: u32, headers: &HeaderMap, wish: Wish) -> Result<Response> {
    let life = life(wish.timeout.unwrap_or(if version == 1 { LIFE_BEFORE } else { LIFE }))?;
    let once = idempotency(headers)?;
    wish.network.as_ref().map_or(Ok(()), Network::check)?;
    let kept = Kept {
        metadata: wish.metadata.unwrap_or_default(),
        private: wish.network.as_ref().and_then(|network| network.allow_public_traffic) == Some(false),
    };
    let mut new = NewDesk {
        // Until it is ready and somebody is told so.
        policy: policy(false, UNTOLD).into(),
        network: wish.internet.filter(|allowed| !allowed),
        queue_s: QUEUE,
        labels: Some(kept.to_labels().ok_or_else(|| Refusal::invalid("the metadata is too much: some 60 pairs, or 4 KiB"))?),
        commands_env: wish.env_vars,
        ..NewDesk::default()
    };
    let name = wish.template.unwrap_or_else(|| TEMPLATE.into());
    match names::is_snapshot(&name) {
        true => new.snapshot = Some(name),
        false => new.template = Some(known(&app, &who, &name, &mut new).await?).filter(|template| !template.is_empty()),
    }
    if let Some(template) = &new.template {
        built(&app, template).await?;
    }
    // Not to its end: a sandbox whose client has left is ended by its policy.
    let desk = app.fleet.create(&who, new, once.as_deref()).await?;
    let mut desk = arrived(&app, &who, desk, LIMIT).await?;
    if wish.auto_pause && desk.state == State::Running {
        let policy = Some(PolicyRequest { end_stops: Some(true), ..PolicyRequest::default() });
        desk = app.fleet.update(&who, &desk.id, DeskChange { policy, ..DeskChange::default() }).await?;
    }
    let desk = ready(&app, &who, desk, life).await?;
    Ok((StatusCode::CREATED, Json(opened(&app, &who, &desk).await?)).into_response())
}

/// Clients know no sandbox that is on its way, and give up before a template is built: so nothing is made then.
async fn built(app: &App, template: &str) -> Result<()> {
    match app.fleet.prepare(None, template).await? {
        Prepared::Ready => Ok(()),
        Prepared::UnderWay(stage) => {
            let detail = format!("the template {template} is not built yet; it is being built now: {stage}");
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_built", "The template is not built yet", detail).hint(
                format!("try again in some minutes; `hotdesk template build {template}` builds it ahead and shows how far it is"),
            ))
        }
    }
}

/// The template that a name means. A name may also be a snapshot's.
async fn known(app: &App, who: &Who, name: &str, new: &mut NewDesk) -> Result<String> {
    let template = names::template(&app.config.e2b, name);
    if app.images.names().contains(&template) {
        return Ok(template);
    }
    let bare = name.rsplit('/').next().unwrap_or(name).split(':').next().unwrap_or(name);
    let snapshots = app.fleet.snapshots(who).await?;
    if let Some(snapshot) = snapshots.iter().rev().find(|snapshot| snapshot.name.as_deref() == Some(bare)) {
        new.snapshot = Some(snapshot.id.clone());
        return Ok(String::new());
    }
    Err(Refusal::not_found(format!("template '{}' was not found", name.escape_default()))
        .hint("`hotdesk template ls` lists them"))
}

/// Only its end is decided by time; nothing happens to a sandbox because it is idle.
pub(super) fn policy(pauses: bool, life: Duration) -> Policy {
    Policy { auto_stop_s: 0, auto_archive_s: 0, auto_delete_s: 0, ttl_s: life.as_secs(), end_stops: pauses }
}

/// A desk that was asked for, when it runs and its life has begun.
pub(super) async fn ready(app: &App, who: &Who, desk: Desk, life: Duration) -> Result<Desk> {
    let fresh = desk.state != State::Running || desk.expires_at.is_some();
    let desk = arrived(app, who, desk, LIMIT).await?;
    match desk.state {
        // Its life is counted from now on, not from when it was asked for.
        State::Running if fresh => Ok(app.fleet.set_end(who, &desk.id, Some(life)).await?),
        State::Running => Ok(desk),
        State::Error => {
            let reason = desk.reason.clone();
            app.fleet.delete(who, &desk.id).await?;
            Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "desk_failed",
                "The desk failed",
                format!("the sandbox failed: {reason}"),
            ))
        }
        _ => Err(Refusal::unavailable(format!(
            "the sandbox is not ready yet: {}",
            desk.stage.as_deref().unwrap_or("it is being made")
        ))),
    }
}
