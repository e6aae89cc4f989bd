//! The control plane: which call a request is.

use super::fault::{Code, Fault, done, plain, refused};
use super::labels::is_sandbox;
use super::sandbox::{detailed, is_there};
use super::{create, listing, metrics, names, pause, snapshots};
use crate::app::App;
use crate::entrance::Caller;
use crate::limits;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::{Desk, State};
use hotdesk_fleet::Who;
use http_body_util::{BodyExt, Limited};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::time::Duration;

/// The longest life that a client may ask for. Longer ones are a mistake, and can be had by asking again.
pub(super) const LONGEST_LIFE: u64 = 30 * 24 * 3600;

pub(super) async fn answer(app: App, caller: Caller, request: Request) -> Response {
    route(app, caller.who, request).await.unwrap_or_else(refused)
}

async fn route(app: App, who: Who, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default();
    let (version, path) = match path.strip_prefix("/v2/").or_else(|| path.strip_prefix("/v3/")) {
        Some(rest) => (2, rest),
        None => (1, path.trim_start_matches('/')),
    };
    let words: Vec<String> = path.trim_end_matches('/').split('/').map(decoded).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let method = parts.method.clone();
    let (get, post, delete) = (method == Method::GET, method == Method::POST, method == Method::DELETE);
    match words.as_slice() {
        ["sandboxes"] if post => create::make(app, who, version, &parts.headers, read(body).await?).await,
        ["sandboxes"] if get => listing::list(&app, &who, query, version).await,
        ["sandboxes", id] if get => {
            let desk = find(&app, &who, id).await?;
            Ok(Json(detailed(&app, &who, &desk).await).into_response())
        }
        ["sandboxes", id] if delete => kill(&app, &who, id).await,
        ["sandboxes", id, "timeout"] if post => set_timeout(&app, &who, id, read(body).await?).await,
        ["sandboxes", id, "refreshes"] if post => pause::refresh(&app, &who, id, read(body).await?).await,
        ["sandboxes", id, "pause"] if post => pause::pause(app, who, (*id).to_owned(), read(body).await?).await,
        ["sandboxes", id, "connect" | "resume"] if post => {
            pause::connect(app, who, (*id).to_owned(), words[2] == "resume", read(body).await?).await
        }
        ["sandboxes", id, "metrics"] if get => metrics::answer(&app, &who, id, query).await,
        ["sandboxes", id, "snapshots"] if post => snapshots::make(app, who, (*id).to_owned(), read(body).await?).await,
        ["sandboxes", id, "fork"] if post => snapshots::fork(app, who, (*id).to_owned(), read(body).await?).await,
        ["snapshots"] if get => snapshots::list(&app, &who, query).await,
        ["templates", id] if delete && names::is_snapshot(id) => snapshots::delete(&app, &who, id).await,
        ["templates", "aliases", name] if get => alias(&app, name),
        ["templates", ..] | ["default-templates"] => Ok(plain(
            StatusCode::NOT_IMPLEMENTED,
            "templates are built on this fleet by `hotdesk template build`; every template of it can be named in Sandbox.create",
        )),
        ["sandboxes", id, "network"] if method == Method::PUT => {
            find(&app, &who, id).await?;
            Ok(plain(StatusCode::NOT_IMPLEMENTED, "the network of a sandbox is decided when it is made: allow_internet_access"))
        }
        _ => Ok(Fault::new(Code::NotFound, "there is no such call").into_response_of_data()),
    }
}

/// The JSON of a body; one without is an empty object.
async fn read<T: DeserializeOwned>(body: Body) -> Result<T> {
    let wrong = || Refusal::invalid(format!("the body is larger than {} bytes, or broke off", limits::JSON_BODY));
    if limits::announces_more(&body, limits::JSON_BODY) {
        return Err(wrong());
    }
    let body = Limited::new(body, limits::JSON_BODY).collect().await.map_err(|_| wrong())?;
    let text = body.to_bytes();
    let text: &[u8] = if text.iter().all(u8::is_ascii_whitespace) { b"{}" } else { &text };
    hotdesk_api::json::from_slice(text).map_err(|e| Refusal::invalid(format!("the body can't be understood: {e}")))
}

/// A sandbox that clients may know of.
pub(super) async fn find(app: &App, who: &Who, id: &str) -> Result<Desk> {
    let desk = names::desk(id).ok_or_else(|| unknown(id))?;
    let desk = app.fleet.desk(who, &desk).await.map_err(|error| match error {
        hotdesk_fleet::Error::NotFound { .. } | hotdesk_fleet::Error::Denied(_) => unknown(id),
        other => other.into(),
    })?;
    if is_there(&desk) && is_sandbox(&desk) { Ok(desk) } else { Err(unknown(id)) }
}

pub(super) fn unknown(id: &str) -> Refusal {
    let id: String = id.chars().take(64).collect();
    Refusal::not_found(format!("sandbox {} was not found", id.escape_default()))
}

async fn kill(app: &App, who: &Who, id: &str) -> Result<Response> {
    let desk = find(app, who, id).await?;
    app.fleet.delete(who, &desk.id).await?;
    Ok(done())
}

#[derive(Deserialize)]
struct Timeout {
    timeout: i64,
}

async fn set_timeout(app: &App, who: &Who, id: &str, wish: Timeout) -> Result<Response> {
    let after = life(wish.timeout)?;
    let desk = find(app, who, id).await?;
    if desk.state == State::Running || desk.state == State::Creating {
        app.fleet.set_end(who, &desk.id, Some(after)).await?;
    }
    Ok(done())
}

/// The life that a client asks for; none is an end at once.
pub(super) fn life(seconds: i64) -> Result<Duration> {
    match u64::try_from(seconds) {
        Ok(seconds @ 0..=LONGEST_LIFE) => Ok(Duration::from_secs(seconds)),
        Err(_) => Err(Refusal::invalid(format!("the timeout is {seconds} s, but can't be below 0"))),
        Ok(_) => Err(Refusal::invalid(format!("the timeout is {seconds} s, but may be at most {LONGEST_LIFE} s"))),
    }
}

fn alias(app: &App, name: &str) -> Result<Response> {
    let ours = names::template(&app.config.e2b, name);
    if app.images.names().contains(&ours) {
        return Ok(Json(serde_json::json!({ "templateID": ours, "public": true })).into_response());
    }
    Err(Refusal::not_found(format!("template {} was not found", name.escape_default())))
}

/// Percent signs resolved; what is no text stays as it is.
pub(super) fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Cow::into_owned)
}
