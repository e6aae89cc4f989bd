//! The server that clients believe to be in every sandbox.

use super::connect;
use super::desk::Sandbox;
use super::fault::{Code, Fault, Result, plain};
use super::{ACCESS_TOKEN, Inside, files, filesystem, guests, names, process, text, token};
use crate::app::App;
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::refusal::Refusal;
use crate::route::Class;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use hotdesk_api::desk::State;

const PROCESS: &str = "/process.Process/";
const FILESYSTEM: &str = "/filesystem.Filesystem/";

/// Who asks; none where everybody may.
pub(super) async fn admit(app: &App, peer: Peer, inside: &Inside, request: &Parts) -> Result<Option<Caller>, Response> {
    let path = request.uri.path();
    match path {
        "/health" => health(app, peer, inside, request).await.map(|()| None),
        "/files" => files::admit(app, peer, inside, request).await.map(Some),
        _ if request.method == Method::POST && (path.starts_with(PROCESS) || path.starts_with(FILESYSTEM)) => {
            open(app, peer, inside, request).await.map(Some).map_err(Fault::into_response_of_connect)
        }
        // What E2B's own host says to its sandboxes is not for clients.
        _ => Err(plain(StatusCode::NOT_FOUND, "there is no such call")),
    }
}

pub(super) async fn answer(sandbox: Sandbox, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if path == "/files" {
        return files::answer(sandbox, request).await;
    }
    match path.strip_prefix(PROCESS) {
        Some(method) => process::answer(sandbox, method, request).await,
        None => filesystem::answer(sandbox, path.trim_start_matches(FILESYSTEM), request).await,
    }
}

/// The sandbox that a request names and has the token of.
pub(super) async fn open(app: &App, peer: Peer, inside: &Inside, request: &Parts) -> Result<Caller> {
    let given = text(&request.headers, ACCESS_TOKEN);
    let proven = match &given {
        Some(given) => token::desk(app, given).await,
        None => None,
    };
    let desk = match &inside.sandbox {
        Some(id) => {
            let desk = names::desk(id).ok_or_else(Fault::gone)?;
            if proven.as_ref() != Some(&desk) {
                // One that is gone is told so, whatever the token is: clients know by it that their sandbox has ended.
                app.limits.keyless(peer.network()).map_err(exhausted)?;
                let known = guests::known(app, &desk, || Ok(())).await.map_err(exhausted)?;
                return Err(if known.is_some() { wrong_token() } else { Fault::gone() });
            }
            desk
        }
        None => proven.ok_or_else(|| refused(app, peer))?,
    };
    admitted(app, peer, desk, request).await
}

/// Lets in whoever has proven to know the token of a desk, if that is a sandbox.
pub(super) async fn admitted(app: &App, peer: Peer, desk: String, request: &Parts) -> Result<Caller> {
    guests::known(app, &desk, || Ok(())).await.map_err(exhausted)?.ok_or_else(Fault::gone)?;
    let caller = guests::caller(&desk, peer, &request.headers, Class::Desk, false);
    app.limits.desks(&caller.who.key).map_err(exhausted)?;
    Ok(caller)
}

fn exhausted(refusal: Refusal) -> Fault {
    match refusal.problem.status {
        429 => Fault::new(Code::ResourceExhausted, refusal.problem.detail.clone()),
        _ => Fault::new(Code::Unavailable, refusal.problem.detail.clone()),
    }
}

fn wrong_token() -> Fault {
    Fault::unauthenticated("the token of the sandbox is missing or wrong")
}

/// Nobody may try tokens as fast as they like.
pub(super) fn refused(app: &App, peer: Peer) -> Fault {
    match app.limits.keyless(peer.network()) {
        Ok(()) => wrong_token(),
        Err(refusal) => exhausted(refusal),
    }
}

/// Whether a sandbox runs; asked without a token too. There is nothing more to answer, so this is an end either way.
async fn health(app: &App, peer: Peer, inside: &Inside, request: &Parts) -> Result<(), Response> {
    let proven = match text(&request.headers, ACCESS_TOKEN) {
        Some(given) => token::desk(app, &given).await,
        None => None,
    };
    let gone = || Fault::gone().into_response_of_data();
    let has_token = proven.is_some();
    let looks = || if has_token { Ok(()) } else { app.limits.keyless(peer.network()) };
    let desk = match &inside.sandbox {
        Some(id) => names::desk(id).ok_or_else(gone)?,
        None => match proven {
            Some(desk) => desk,
            None => return Err(refused(app, peer).into_response_of_data()),
        },
    };
    guests::known(app, &desk, looks).await.map_err(super::refused)?.ok_or_else(gone)?;
    let found = app.fleet.desk(&token::user_of(&desk), &desk).await;
    if found.is_ok_and(|desk| desk.state == State::Running) { Ok(()) } else { Err(gone()) }
}

/// What a call that we do not know is told.
pub(super) fn unknown(method: &str) -> Response {
    let message = format!("there is no method `{}`", method.escape_default());
    connect::reply(Err(Fault::new(Code::Unimplemented, message)))
}
