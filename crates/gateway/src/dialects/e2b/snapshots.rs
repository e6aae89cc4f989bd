//! Snapshots and forks.

use super::control::{find, life};
use super::create::{policy, ready};
use super::fault::{done, plain};
use super::files::pairs;
use super::names;
use super::sandbox::opened;
use crate::app::App;
use crate::refusal::{Refusal, Result};
use crate::v1::memory;
use crate::v1::to_its_end;
use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::{NewDesk, Snapshot, SnapshotState, State};
use hotdesk_fleet::{Error, Who};
use serde::Deserialize;
use serde_json::{Value, json};

/// Forks at once, as E2B allows.
const MOST_FORKS: usize = 100;
const MOST_LISTED: usize = 100;
const NEXT: &str = "x-next-token";
/// The life of a fork if the client does not say.
const LIFE: i64 = 15;

#[derive(Deserialize)]
pub(super) struct Wish {
    name: Option<String>,
    memory: Option<bool>,
}

pub(super) async fn make(app: App, who: Who, id: String, wish: Wish) -> Result<Response> {
    to_its_end(async move {
        let desk = find(&app, &who, &id).await?;
        let memory = memory(&app, &who, &desk.id, wish.memory).await?;
        // `team/name:tag` is a name too.
        let name =
            wish.name.map(|name| name.rsplit('/').next().unwrap_or_default().split(':').next().unwrap_or_default().to_owned());
        let saved = match app.fleet.snapshot(&who, &desk.id, name.clone(), memory).await {
            // Not every desk can be saved with its memory; its files always can.
            Err(error) if memory && wish.memory.is_none() => {
                tracing::warn!(desk = desk.id, %error, "a sandbox was not saved with its memory; its files are saved");
                app.fleet.snapshot(&who, &desk.id, name, false).await?
            }
            other => other?,
        };
        Ok((StatusCode::CREATED, Json(told(&saved))).into_response())
    })
    .await
}

fn told(snapshot: &Snapshot) -> Value {
    let names: Vec<&str> = snapshot.name.as_deref().into_iter().collect();
    json!({ "snapshotID": snapshot.id, "names": names })
}

pub(super) async fn list(app: &App, who: &Who, query: &str) -> Result<Response> {
    let pairs = pairs(query);
    let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty());
    let desk = value("sandboxID").map(|id| names::desk(id).unwrap_or_default());
    let mut all = app.fleet.snapshots(who).await?;
    all.retain(|snapshot| {
        snapshot.state == SnapshotState::Ready
            && desk.as_ref().is_none_or(|desk| *desk == snapshot.desk)
            && value("name").is_none_or(|name| snapshot.name.as_deref() == Some(name))
            && is_known(snapshot)
    });
    all.sort_by(|a, b| (&b.created_at, &b.id).cmp(&(&a.created_at, &a.id)));
    if let Some(from) = value("nextToken") {
        let at = all.iter().position(|snapshot| snapshot.id == from).map_or(all.len(), |at| at + 1);
        all.drain(..at);
    }
    let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(MOST_LISTED).clamp(1, MOST_LISTED);
    let more = all.len() > limit;
    all.truncate(limit);
    let mut response = Json(all.iter().map(told).collect::<Vec<_>>()).into_response();
    if let Some(token) = all.last().filter(|_| more).and_then(|last| HeaderValue::try_from(&last.id).ok()) {
        response.headers_mut().insert(NEXT, token);
    }
    Ok(response)
}

/// What a fork is made from is nobody's, and neither is what was deleted and only stays for the sandboxes that came from it.
fn is_known(snapshot: &Snapshot) -> bool {
    snapshot.reason == "asked for"
}

pub(super) async fn delete(app: &App, who: &Who, id: &str) -> Result<Response> {
    let unknown = || Ok(plain(StatusCode::NOT_FOUND, &format!("snapshot {id} was not found")));
    if !app.fleet.snapshots(who).await?.iter().any(|snapshot| snapshot.id == id && is_known(snapshot)) {
        return unknown();
    }
    match app.fleet.give_up_snapshot(who, id).await {
        Ok(()) => Ok(done()),
        Err(Error::NotFound { .. }) => unknown(),
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
pub(super) struct Fork {
    timeout: Option<i64>,
    count: Option<usize>,
}

pub(super) async fn fork(app: App, who: Who, id: String, wish: Fork) -> Result<Response> {
    let life = life(wish.timeout.unwrap_or(LIFE))?;
    let count = wish.count.unwrap_or(1);
    if !(1..=MOST_FORKS).contains(&count) {
        return Err(Refusal::invalid(format!("`count` is {count}, but must be from 1 to {MOST_FORKS}")));
    }
    to_its_end(async move {
        let desk = find(&app, &who, &id).await?;
        if desk.state != State::Running {
            return Ok(plain(StatusCode::CONFLICT, &format!("sandbox {id} does not run")));
        }
        let mut memory = memory(&app, &who, &desk.id, None).await?;
        let mut children = Vec::new();
        for _ in 0..count {
            let new =
                || NewDesk { policy: policy(false, life.max(std::time::Duration::from_secs(60))).into(), ..NewDesk::default() };
            let mut made = app.fleet.fork(&who, &desk.id, memory, new()).await;
            if made.is_err() && memory {
                memory = false;
                made = app.fleet.fork(&who, &desk.id, memory, new()).await;
            }
            let child = async {
                let child = ready(&app, &who, made?, life).await?;
                opened(&app, &who, &child).await
            };
            children.push(match child.await {
                Ok(child) => json!({ "sandbox": child }),
                Err(refusal) => json!({ "error": { "code": refusal.problem.status, "message": refusal.problem.detail } }),
            });
        }
        Ok((StatusCode::CREATED, Json(children)).into_response())
    })
    .await
}
