//! What can be done with a desk.

use super::wait::{DeskAnswer, Wait, settled, to_its_end};
use crate::app::App;
use crate::body::{Input, InputOrDefault, Params};
use crate::entrance::Caller;
use crate::proxy;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use hotdesk_api::Problem;
use hotdesk_api::calls::{ExtendDesk, ForkDesk, NewSnapshot};
use hotdesk_api::desk::{self, Desk, NewDesk, Snapshot};
use hotdesk_api::trace::NoteSnapshot;
use hotdesk_fleet::Who;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The longest that a desk's life can be moved at once: ten years, which is for ever.
const LONGEST_EXTENSION: u64 = 10 * 365 * 24 * 3600;
/// How long a desk may take to note a snapshot in its trace.
const NOTE_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start))
        .routes(routes!(stop))
        .routes(routes!(reset))
        .routes(routes!(archive))
        .routes(routes!(extend))
        .routes(routes!(snapshot))
        .routes(routes!(fork))
}

/// Starts a stopped or archived desk
#[utoipa::path(post, path = "/v1/desks/{id}/start", tag = "desks", params(("id" = String, Path, description = "Id or name"), Wait), responses(
    (status = 200, description = "Done", body = Desk),
    (status = 202, description = "On its way", body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Not possible in the state that the desk is in", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The desk failed", body = Problem, content_type = "application/problem+json"),
))]
async fn start(State(app): State<App>, caller: Caller, Path(id): Path<String>, Params(wait): Params<Wait>) -> Result<DeskAnswer> {
    let limit = wait.limit()?;
    to_its_end(async move {
        let desk = app.fleet.start(&caller.who, &id).await?;
        settled(&app, &caller.who, desk, limit, desk::State::Running, StatusCode::OK).await
    })
    .await
}

/// Stops a desk: its programs end, its files stay
#[utoipa::path(post, path = "/v1/desks/{id}/stop", tag = "desks", params(("id" = String, Path, description = "Id or name"), Wait), responses(
    (status = 200, description = "Done", body = Desk),
    (status = 202, description = "On its way", body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Not possible in the state that the desk is in", body = Problem, content_type = "application/problem+json"),
))]
async fn stop(State(app): State<App>, caller: Caller, Path(id): Path<String>, Params(wait): Params<Wait>) -> Result<DeskAnswer> {
    let limit = wait.limit()?;
    to_its_end(async move {
        let desk = app.fleet.stop(&caller.who, &id).await?;
        settled(&app, &caller.who, desk, limit, desk::State::Stopped, StatusCode::OK).await
    })
    .await
}

/// Takes a desk back to its template, running
#[utoipa::path(post, path = "/v1/desks/{id}/reset", tag = "desks", params(("id" = String, Path, description = "Id or name"), Wait), responses(
    (status = 200, description = "Done", body = Desk),
    (status = 202, description = "On its way", body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Not possible in the state that the desk is in", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The desk failed", body = Problem, content_type = "application/problem+json"),
))]
async fn reset(State(app): State<App>, caller: Caller, Path(id): Path<String>, Params(wait): Params<Wait>) -> Result<DeskAnswer> {
    let limit = wait.limit()?;
    to_its_end(async move {
        let desk = app.fleet.reset(&caller.who, &id).await?;
        settled(&app, &caller.who, desk, limit, desk::State::Running, StatusCode::OK).await
    })
    .await
}

/// Moves a stopped desk to object storage
#[utoipa::path(post, path = "/v1/desks/{id}/archive", tag = "desks", params(("id" = String, Path, description = "Id or name"), Wait), responses(
    (status = 200, description = "Done", body = Desk),
    (status = 202, description = "On its way", body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Not possible in the state that the desk is in", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The desk's provider can't", body = Problem, content_type = "application/problem+json"),
))]
async fn archive(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Params(wait): Params<Wait>,
) -> Result<DeskAnswer> {
    let limit = wait.limit()?;
    to_its_end(async move {
        let desk = app.fleet.archive(&caller.who, &id).await?;
        settled(&app, &caller.who, desk, limit, desk::State::Archived, StatusCode::OK).await
    })
    .await
}

/// Moves the end of a desk's life
#[utoipa::path(post, path = "/v1/desks/{id}/extend", tag = "desks", params(("id" = String, Path, description = "Id or name")), request_body = ExtendDesk, responses(
    (status = 200, body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn extend(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(wanted): Input<ExtendDesk>,
) -> Result<Json<Desk>> {
    if wanted.by_s == 0 || wanted.by_s > LONGEST_EXTENSION {
        return Err(Refusal::invalid(format!("`by_s` is {}, but must be from 1 to {LONGEST_EXTENSION}", wanted.by_s)));
    }
    to_its_end(async move { Ok(Json(app.fleet.extend(&caller.who, &id, Duration::from_secs(wanted.by_s)).await?)) }).await
}

/// Saves a desk, so that others can start from it
#[utoipa::path(post, path = "/v1/desks/{id}/snapshot", tag = "snapshots", params(("id" = String, Path, description = "Id or name")), request_body = Option<NewSnapshot>, responses(
    (status = 200, body = Snapshot),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Not possible in the state that the desk is in", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The desk's provider can't", body = Problem, content_type = "application/problem+json"),
))]
async fn snapshot(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    InputOrDefault(new): InputOrDefault<NewSnapshot>,
) -> Result<Json<Snapshot>> {
    to_its_end(async move {
        let memory = memory(&app, &caller.who, &id, new.memory).await?;
        let snapshot = app.fleet.snapshot(&caller.who, &id, new.name, memory).await?;
        note_in_trace(&app, &caller, &id, &snapshot.id).await;
        Ok(Json(snapshot))
    })
    .await
}

/// A desk that records a trace notes the snapshot as a step. One that does not, or does not run, has no use for it.
async fn note_in_trace(app: &App, caller: &Caller, desk: &str, snapshot: &str) {
    let note = NoteSnapshot { id: snapshot.to_owned() };
    let noted = proxy::desk(app, caller, desk).within(NOTE_LIMIT).tell(Method::POST, "/v1/trace/snapshot", &note).await;
    if let Err(error) = noted {
        tracing::debug!(desk, snapshot, %error, "the desk did not note the snapshot");
    }
}

/// A second desk that starts where this one is
#[utoipa::path(post, path = "/v1/desks/{id}/fork", tag = "snapshots", params(("id" = String, Path, description = "Id or name"), Wait), request_body = Option<ForkDesk>, responses(
    (status = 201, description = "The fork runs", body = Desk),
    (status = 202, description = "The fork is on its way", body = Desk),
    (status = 402, description = "The budget is spent", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Not possible in the state that the desk is in", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The desk's provider can't", body = Problem, content_type = "application/problem+json"),
    (status = 429, description = "A limit is reached; `Retry-After` says when to ask again", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The fork failed", body = Problem, content_type = "application/problem+json"),
))]
async fn fork(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Params(wait): Params<Wait>,
    InputOrDefault(Fork(new)): InputOrDefault<Fork>,
) -> Result<DeskAnswer> {
    let limit = wait.limit()?;
    if new.desk.template.is_some() || new.desk.snapshot.is_some() {
        return Err(Refusal::invalid("a fork has the template of its desk: leave `template` and `snapshot` out"));
    }
    to_its_end(async move {
        let memory = memory(&app, &caller.who, &id, new.memory).await?;
        let desk = app.fleet.fork(&caller.who, &id, memory, new.desk).await?;
        settled(&app, &caller.who, desk, limit, desk::State::Running, StatusCode::CREATED).await
    })
    .await
}

/// Whether memory is saved too: as asked, or where the provider can and the desk runs.
pub(crate) async fn memory(app: &App, who: &Who, id: &str, wanted: Option<bool>) -> Result<bool> {
    if let Some(wanted) = wanted {
        return Ok(wanted);
    }
    let desk = app.fleet.desk(who, id).await?;
    let info = app.fleet.info().await?;
    let provider = info.providers.iter().find(|provider| provider.name == desk.provider);
    // Volumes are no part of a memory.
    let plain = desk.state == desk::State::Running && desk.volumes.is_empty();
    Ok(plain && provider.is_some_and(|provider| provider.capabilities.live_fork))
}

/// [`ForkDesk`] with unknown names refused, which serde can't for flattened parts.
#[derive(Default)]
struct Fork(ForkDesk);

impl<'de> Deserialize<'de> for Fork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = serde_json::Map::deserialize(deserializer)?;
        let memory = map.remove("memory").map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let desk: NewDesk = hotdesk_api::json::from_value(map.into()).map_err(D::Error::custom)?;
        Ok(Self(ForkDesk { memory: memory.flatten(), desk }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_read_strictly() {
        let read = |text: &str| hotdesk_api::json::from_slice::<Fork>(text.as_bytes()).map(|fork| fork.0);
        assert_eq!(read(r#"{"memory": true, "name": "a"}"#).unwrap().desk.name.as_deref(), Some("a"));
        assert_eq!(read(r#"{"memory": null}"#).unwrap().memory, None);
        assert!(read(r#"{"memroy": true}"#).is_err());
        assert!(read(r#"{"memory": 1}"#).is_err());
        assert!(read("[]").is_err() && read(r#"{"policy": [60]}"#).is_err());
    }
}
