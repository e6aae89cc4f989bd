//! Dialects: other people's words, answered from our fleet, so that programs written for them run here as they are.
//!
//! A dialect translates to calls of the fleet and of desks; it owns no logic of its own. What it has to remember is in the desk's
//! labels or in notes of the store; what a client needs and a desk can't do yet is added to the desk, in the desk's own words.

pub mod mcp;
pub mod native;

pub(crate) mod computer;
pub(crate) mod daytona;
pub(crate) mod e2b;

use crate::app::App;
use crate::class::Class;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::refusal::Result;
use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::Response;

pub(crate) fn router() -> Router<App> {
    daytona::router()
}

/// Leads requests to the dialect that they are meant for, where the address alone does not.
pub(crate) fn lead(request: &mut Request) {
    daytona::preview::lead(request);
}

/// Who asks, where a dialect lets in others than those with a key; none where it does not.
pub(crate) async fn admit(
    app: &App,
    peer: Peer,
    key: &Option<(Secret, Place)>,
    class: Class,
    request: &mut Parts,
) -> Option<Result<Caller>> {
    daytona::admit(app, peer, key, class, request).await
}

/// An error of ours in the form that the dialect's clients read.
pub(crate) async fn shape(path: &str, response: Response) -> Response {
    match daytona::owns(path) {
        true => daytona::reply::reshape(path, response).await,
        false => response,
    }
}
