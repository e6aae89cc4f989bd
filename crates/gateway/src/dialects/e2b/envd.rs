//! The server that clients believe to be in every sandbox.

use super::connect;
use super::desk::Sandbox;
use super::fault::{Code, Fault, Result, done, plain};
use super::{ACCESS_TOKEN, Inside, files, filesystem, names, process, text, token};
use crate::app::App;
use crate::listen::Peer;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use hotdesk_api::desk::State;

const PROCESS: &str = "/process.Process/";
const FILESYSTEM: &str = "/filesystem.Filesystem/";

pub(super) async fn answer(app: App, peer: Peer, inside: Inside, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let post = request.method() == Method::POST;
    match path.as_str() {
        "/health" => health(&app, &inside, request.headers()).await,
        "/files" => files::answer(app, peer, inside, request).await,
        _ if post && (path.starts_with(PROCESS) || path.starts_with(FILESYSTEM)) => {
            let sandbox = match open(&app, peer, &inside, request.headers()).await {
                Ok(sandbox) => sandbox,
                Err(fault) => return fault.into_response_of_connect(),
            };
            match path.strip_prefix(PROCESS) {
                Some(method) => process::answer(sandbox, method, request).await,
                None => filesystem::answer(sandbox, path.trim_start_matches(FILESYSTEM), request).await,
            }
        }
        // What E2B's own host says to its sandboxes is not for clients.
        _ => plain(StatusCode::NOT_FOUND, "there is no such call"),
    }
}

/// The sandbox that a request names and has the token of.
pub(super) async fn open(app: &App, peer: Peer, inside: &Inside, headers: &HeaderMap) -> Result<Sandbox> {
    let given = text(headers, ACCESS_TOKEN);
    let desk = match &inside.sandbox {
        Some(id) => names::desk(id).ok_or_else(Fault::gone)?,
        None => {
            let given = given.as_deref().ok_or_else(|| refused(app, peer))?;
            token::find(app, given).await.ok_or_else(|| refused(app, peer))?
        }
    };
    let door = app.fleet.door(&token::user_of(&desk), &desk).await.map_err(|_| Fault::gone())?;
    if !given.is_some_and(|given| token::same(&given, &token::of(&door.secret))) {
        return Err(refused(app, peer));
    }
    limited(app, &desk)?;
    Ok(Sandbox::new(app.clone(), desk, peer, text(headers, header::HOST.as_str())))
}

/// Nobody may try tokens as fast as they like.
pub(super) fn refused(app: &App, peer: Peer) -> Fault {
    match app.limits.keyless(peer.network()) {
        Ok(()) => Fault::unauthenticated("the token of the sandbox is missing or wrong"),
        Err(refusal) => Fault::new(Code::ResourceExhausted, refusal.problem.detail.clone()),
    }
}

pub(super) fn limited(app: &App, desk: &str) -> Result<()> {
    let who = token::user_of(desk);
    app.limits.desks(&who.key).map_err(|refusal| Fault::new(Code::ResourceExhausted, refusal.problem.detail.clone()))
}

/// Whether a sandbox runs; asked without a token too.
async fn health(app: &App, inside: &Inside, headers: &HeaderMap) -> Response {
    let desk = match (&inside.sandbox, text(headers, ACCESS_TOKEN)) {
        (Some(id), _) => names::desk(id),
        (None, Some(given)) => match token::find(app, &given).await {
            Some(desk) => Some(desk),
            None => return Fault::unauthenticated("the token is no sandbox's").into_response_of_data(),
        },
        (None, None) => None,
    };
    let runs = match desk {
        Some(desk) => app.fleet.desk(&token::user_of(&desk), &desk).await.is_ok_and(|desk| desk.state == State::Running),
        None => false,
    };
    if runs { done() } else { Fault::gone().into_response_of_data() }
}

/// What a call that we do not know is told.
pub(super) fn unknown(method: &str) -> Response {
    let message = format!("there is no method `{}`", method.escape_default());
    connect::reply(Err(Fault::new(Code::Unimplemented, message)))
}
