//! Other ports of a sandbox: whatever listens there, WebSockets too.
//!
//! They are public, unless the sandbox was made otherwise: then its token is needed. Desks that are no sandboxes have none.

use super::fault::plain;
use super::guests::{self, Known};
use super::{Inside, names, text, token};
use crate::app::App;
use crate::entrance::{Caller, PassedOn};
use crate::guest::Guest;
use crate::listen::Peer;
use crate::proxy::{Target, pass};
use crate::route::Class;
use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::State;
use serde_json::json;
use std::time::Duration;

const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
/// Domains of E2B's, which clients take for ours where none is set.
const DOMAINS: [&str; 2] = ["e2b.app", "e2b.dev"];
/// Where the server of OSWorld's machines listens. In a machine that is not ours it asks for nothing and executes commands.
const OSWORLD_PORT: u16 = 5000;
const MACHINES: &str = "qemu";

pub(super) async fn admit(app: &App, peer: Peer, inside: &Inside, request: &Parts) -> Result<Caller, Response> {
    let desk = inside.sandbox.as_deref().and_then(names::desk).ok_or_else(nothing)?;
    let right = token::of_traffic(app, &desk).await.map_err(|e| super::refused(e.into()))?;
    let proven = text(&request.headers, TRAFFIC_TOKEN).is_some_and(|given| token::same(&given, &right));
    let looks = || if proven { Ok(()) } else { app.limits.keyless(peer.network()) };
    let known = guests::known(app, &desk, looks).await.map_err(super::refused)?;
    let Some(Known { private, provider }) = known else { return Err(gone(app, &desk).await) };
    if !proven {
        if private || (inside.port == OSWORLD_PORT && provider == MACHINES) {
            let what = "the sandbox is not public: the header e2b-traffic-access-token is missing or wrong";
            return Err(plain(StatusCode::FORBIDDEN, what));
        }
        if peer.machine {
            let own = app.config.e2b.domain.as_deref();
            let domains: Vec<&str> = DOMAINS.into_iter().chain(own).collect();
            let checked = app.pages.check_name(&request.headers, &domains);
            checked.and_then(|()| app.pages.check_site(&request.headers, &request.method)).map_err(super::refused)?;
        }
    }
    let caller = guests::caller(&desk, peer, &request.headers, Class::Port, !proven);
    app.limits.desks(&caller.who.key).map_err(super::refused)?;
    Ok(caller)
}

pub(super) async fn answer(app: App, caller: &Caller, port: u16, mut request: Request) -> Response {
    let Some(desk) = caller.guest.as_ref().map(Guest::desk) else { return nothing() };
    for name in [super::SANDBOX_ID, super::SANDBOX_PORT, TRAFFIC_TOKEN] {
        request.headers_mut().remove(name);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    // Addresses that the program hands out lead back here as they are.
    let target = Target { port: Some(port), path, base: Some(String::new()) };
    let response = pass(&app, caller, desk, target, request).await;
    if response.extensions().get::<PassedOn>().is_some() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    match app.fleet.glance(&caller.who, desk).await.is_ok() {
        true => plain(StatusCode::BAD_GATEWAY, &format!("the sandbox runs, but the port is not open: {port}")),
        false => ended(desk),
    }
}

/// It was one, or does not run: the words of E2B's edge, which programs compare.
fn ended(desk: &str) -> Response {
    let told = json!({ "code": 502, "message": "The sandbox was not found", "sandboxId": names::sandbox(desk) });
    (StatusCode::BAD_GATEWAY, Json(told)).into_response()
}

/// There is no such sandbox, or a desk that is none, which is the same to strangers.
fn nothing() -> Response {
    plain(StatusCode::NOT_FOUND, "The sandbox was not found")
}

/// A sandbox that was deleted not long ago is told apart from what never was one: clients wait for that.
async fn gone(app: &App, desk: &str) -> Response {
    match app.fleet.wait(&token::user_of(desk), desk, Duration::ZERO).await {
        Ok(desk) if super::labels::is_sandbox(&desk) && desk.state == State::Deleted => ended(&desk.id),
        _ => nothing(),
    }
}
