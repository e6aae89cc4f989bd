//! Everything of a desk, passed on: its own API, its OSWorld dialect, and any port of it.
//!
//! ```text
//!   /v1/desks/{id}/{rest…}               → the desk's /v1/{rest…}
//!   /v1/desks/{id}/ports/{port}/{path…}  → {path…} of what listens on that port in the desk
//!   /osworld/{id}/{path…}                → the desk's /{path…}
//! ```
//!
//! Bodies are streamed both ways and never held. Connections to desks are kept and used again, so that a screenshot costs no
//! connect. Whoever goes away first takes the other side with it. Upgraded connections (WebSockets, raw ports) become tunnels.
//!
//! Once a request may have reached a desk it is never sent again, with one exception that can't do harm: reading (GET,
//! HEAD without a body) on a kept connection that turned out to be dead.

pub(crate) mod cdp;
mod client;
mod exchange;
mod headers;
mod pool;
mod routes;
mod target;
mod tunnel;

pub(crate) use client::{Proxied, desk};
pub(crate) use pool::Pool;
pub(crate) use routes::router;

use crate::app::App;
use crate::entrance::Caller;
use crate::refusal::{Refusal, Result};
use crate::shield;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::State;
use hotdesk_fleet::Error;
use hotdesk_provider::Door;
use std::time::Duration;
pub(crate) use target::{Target, decoded, is_keepers, numbered};

/// How long to wait before asking a desk again that is on its way.
const SOON: Duration = Duration::from_secs(1);
/// A header of requests that do not count as work on the desk.
const GLANCE: &str = "x-hotdesk-glance";

/// A request on its way to a desk.
pub(crate) struct Passage {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    /// As the client named it.
    pub(crate) desk: String,
    pub(crate) door: Door,
    pub(crate) target: Target,
}

/// Passes a request on and the answer back.
pub(crate) async fn pass(app: &App, caller: &Caller, desk: &str, target: Target, request: Request) -> Response {
    match attempt(app, caller, desk, target, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn attempt(app: &App, caller: &Caller, desk: &str, target: Target, request: Request) -> Result<Response> {
    if shield::asks_for_worker(request.headers()) {
        return Err(Refusal::denied("desks have no service workers: they would outlive the page, and see those of other desks"));
    }
    let door = door(app, caller, desk, is_glance(&request)).await?;
    let passage = Passage { app: app.clone(), caller: caller.clone(), desk: desk.to_owned(), door, target };
    match wanted_upgrade(&request) {
        Some(protocol) => tunnel::open(passage, request, &protocol).await,
        None => exchange::run(passage, request).await,
    }
}

/// Whether somebody only looks, and says that it is no work: a wall of desks keeps none of them awake.
fn is_glance(request: &Request) -> bool {
    request.method() == Method::GET && request.headers().contains_key(GLANCE) && wanted_upgrade(request).is_none()
}

/// Whether something listens on a port of a desk.
pub(crate) async fn listens(app: &App, caller: &Caller, desk: &str, port: u16) -> bool {
    let Ok(door) = door(app, caller, desk, false).await else { return false };
    let way = pool::Way { address: door.address.clone(), port: Some(port) };
    match pool::connect(&door, &way).await {
        Ok(sender) => {
            app.pool.give(way, sender);
            true
        }
        Err(_) => false,
    }
}

/// The door to a desk, or its state and what to do.
async fn door(app: &App, caller: &Caller, desk: &str, glance: bool) -> Result<Door> {
    let found = match glance {
        true => app.fleet.glance(&caller.who, desk).await,
        false => app.fleet.door(&caller.who, desk).await,
    };
    match found {
        Ok(door) => Ok(door),
        Err(error @ (Error::Conflict(_) | Error::Timeout { .. })) => {
            Err(closed(app, caller, desk).await.unwrap_or_else(|| Refusal::from(error)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Why a desk can't be reached, if its state tells.
pub(crate) async fn closed(app: &App, caller: &Caller, desk: &str) -> Option<Refusal> {
    let desk = app.fleet.desk(&caller.who, desk).await.ok()?;
    let id = &desk.id;
    let refusal = |detail: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", "The desk does not run", detail);
    let word = serde_json::to_value(desk.state).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let detail = match desk.reason.as_str() {
        "" => format!("the desk {id} is in the state `{word}`"),
        reason => format!("the desk {id} is in the state `{word}`: {reason}"),
    };
    Some(match desk.state {
        State::Running => return None,
        State::Creating | State::Starting | State::Resetting | State::Restoring => {
            refusal(detail).hint("wait until it runs").retry(SOON)
        }
        State::Stopping | State::Stopped | State::Archiving | State::Archived => {
            refusal(detail).hint(format!("`POST /v1/desks/{id}/start` starts it"))
        }
        State::Error => refusal(detail)
            .hint(format!("`GET /v1/desks/{id}/console` shows what it printed; `POST /v1/desks/{id}/reset` starts it anew")),
        State::Deleting | State::Deleted => refusal(detail).hint("`POST /v1/desks` makes another"),
    })
}

/// The protocol that an HTTP/1.1 client wants to change to, if it is one that we can pass on.
fn wanted_upgrade(request: &Request) -> Option<String> {
    let asked = request
        .headers()
        .get_all(header::CONNECTION)
        .iter()
        .any(|value| value.to_str().is_ok_and(|v| v.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"))));
    let protocol = request.headers().get(header::UPGRADE)?.to_str().ok()?;
    // A client that offers HTTP/2 in passing is as content without.
    let known = !protocol.to_ascii_lowercase().contains("h2c");
    (asked && known && request.version() == axum::http::Version::HTTP_11).then(|| protocol.to_owned())
}
