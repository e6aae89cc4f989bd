//! Desks: made, listed, looked at, changed, deleted.

use super::wait::{DeskAnswer, Wait, settled, to_its_end};
use crate::app::App;
use crate::body::{Input, InputOrDefault, Params};
use crate::entrance::Caller;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use hotdesk_api::Problem;
use hotdesk_api::calls::{DeskList, DeskUsage};
use hotdesk_api::desk::{self, Desk, DeskChange, NewDesk};
use hotdesk_fleet::Filter;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const LONGEST_IDEMPOTENCY_KEY: usize = 255;
/// Lines of a desk's console: some when nothing is said, and what a person can still look through.
const CONSOLE_LINES: u32 = 200;
const MOST_CONSOLE_LINES: u32 = 10_000;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, change, delete))
        .routes(routes!(usage))
        .routes(routes!(console))
}

/// Makes a desk
///
/// The same `Idempotency-Key` gives the same desk again.
#[utoipa::path(post, path = "/v1/desks", tag = "desks", request_body = Option<NewDesk>, params(
    Wait,
    ("idempotency-key" = Option<String>, Header, description = "Up to 255 visible characters; sent again, it gives the desk of the first time", max_length = 255, pattern = "^[!-~]+$"),
), responses(
    (status = 201, description = "The desk runs", body = Desk),
    (status = 202, description = "The desk is on its way", body = Desk),
    (status = 402, description = "The budget is spent", body = Problem, content_type = "application/problem+json"),
    (status = 429, description = "A limit is reached; `Retry-After` says when to ask again", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The desk was made and failed; `Location` names it", body = Problem, content_type = "application/problem+json"),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Params(wait): Params<Wait>,
    headers: HeaderMap,
    InputOrDefault(new): InputOrDefault<NewDesk>,
) -> Result<DeskAnswer> {
    let limit = wait.limit()?;
    let idempotency = idempotency(&headers)?;
    // Not to its end: a client that leaves gives its place in the queue back. What is written down goes on by itself.
    let desk = app.fleet.create(&caller.who, new, idempotency.as_deref()).await?;
    settled(&app, &caller.who, desk, limit, desk::State::Running, StatusCode::CREATED).await
}

/// What the client calls its wish for a desk.
pub(crate) fn idempotency(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let wrong = || Refusal::invalid(format!("`Idempotency-Key` must be 1 to {LONGEST_IDEMPOTENCY_KEY} visible ASCII characters"));
    let text = value.to_str().map_err(|_| wrong())?;
    let good = !text.is_empty() && text.len() <= LONGEST_IDEMPOTENCY_KEY && text.bytes().all(|b| b.is_ascii_graphic());
    if good { Ok(Some(text.to_owned())) } else { Err(wrong()) }
}

/// Which desks are wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `filter` reads: a label may be given several times")]
struct WantedDesks {
    project: Option<String>,
    #[param(inline)]
    state: Option<desk::State>,
    /// `name=value`; can be given several times.
    #[param(style = Form, explode)]
    label: Option<Vec<String>>,
}

/// Lists desks
#[utoipa::path(get, path = "/v1/desks", tag = "desks", params(WantedDesks), responses((status = 200, body = DeskList)))]
async fn list(State(app): State<App>, caller: Caller, Params(pairs): Params<Vec<(String, String)>>) -> Result<Json<DeskList>> {
    let desks = app.fleet.desks(&caller.who, filter(pairs)?).await?;
    Ok(Json(DeskList { desks }))
}

fn filter(pairs: Vec<(String, String)>) -> Result<Filter> {
    let mut filter = Filter::default();
    for (name, value) in pairs {
        let twice = || Refusal::invalid(format!("`{name}` is given twice"));
        match name.as_str() {
            "project" if filter.project.replace(value.clone()).is_some() => return Err(twice()),
            "state" => {
                let state = serde_json::from_value(value.as_str().into())
                    .map_err(|_| Refusal::invalid(format!("`{}` is no state of a desk", value.escape_default())))?;
                if filter.state.replace(state).is_some() {
                    return Err(twice());
                }
            }
            "label" => {
                let (label, value) = value.split_once('=').ok_or_else(|| {
                    Refusal::invalid(format!("the label `{}` is not of the form `name=value`", value.escape_default()))
                })?;
                filter.labels.insert(label.into(), value.into());
            }
            "project" => {}
            _ => return Err(Refusal::invalid(format!("there is no parameter `{}`", name.escape_default()))),
        }
    }
    Ok(filter)
}

/// A desk
#[utoipa::path(get, path = "/v1/desks/{id}", tag = "desks", params(("id" = String, Path, description = "Id or name")), responses(
    (status = 200, body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<Desk>> {
    Ok(Json(app.fleet.desk(&caller.who, &id).await?))
}

/// Changes a desk's name, labels and policy
#[utoipa::path(patch, path = "/v1/desks/{id}", tag = "desks", params(("id" = String, Path, description = "Id or name")), request_body = DeskChange, responses(
    (status = 200, body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The name is taken", body = Problem, content_type = "application/problem+json"),
))]
async fn change(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(change): Input<DeskChange>,
) -> Result<Json<Desk>> {
    to_its_end(async move { Ok(Json(app.fleet.update(&caller.who, &id, change).await?)) }).await
}

/// Deletes a desk
#[utoipa::path(delete, path = "/v1/desks/{id}", tag = "desks", params(("id" = String, Path, description = "Id or name"), Wait), responses(
    (status = 200, description = "It is gone", body = Desk),
    (status = 202, description = "It is on its way", body = Desk),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Params(wait): Params<Wait>,
) -> Result<DeskAnswer> {
    let limit = wait.limit_of_delete()?;
    to_its_end(async move {
        let desk = app.fleet.delete(&caller.who, &id).await?;
        settled(&app, &caller.who, desk, limit, desk::State::Deleted, StatusCode::OK).await
    })
    .await
}

/// What a desk uses
#[utoipa::path(get, path = "/v1/desks/{id}/usage", tag = "desks", params(("id" = String, Path, description = "Id or name")), responses(
    (status = 200, body = DeskUsage),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn usage(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<DeskUsage>> {
    let usage = app.fleet.usage(&caller.who, &id).await?;
    Ok(Json(DeskUsage {
        cpu_s: usage.cpu_s,
        memory_bytes: usage.memory_bytes,
        disk_bytes: usage.disk_bytes,
        processes: usage.processes,
    }))
}

/// How much of the console.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Console {
    /// The last so many lines: 200 if left out.
    #[param(minimum = 1, maximum = 10_000)]
    lines: Option<u32>,
}

/// What the desk's server printed
#[utoipa::path(get, path = "/v1/desks/{id}/console", tag = "desks", params(("id" = String, Path, description = "Id or name"), Console), responses(
    (status = 200, description = "The last lines", body = String, content_type = "text/plain"),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn console(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Params(wanted): Params<Console>,
) -> Result<String> {
    let lines = wanted.lines.unwrap_or(CONSOLE_LINES);
    if lines == 0 || lines > MOST_CONSOLE_LINES {
        return Err(Refusal::invalid(format!("`lines` is {lines}, but must be from 1 to {MOST_CONSOLE_LINES}")));
    }
    Ok(app.fleet.logs(&caller.who, &id, lines as usize).await?)
}
