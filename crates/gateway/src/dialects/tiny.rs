//! Tiny's API: `POST /tiny/boxes` makes a box, `GET /tiny/boxes/{id}/picture` shows it.

use super::Dialect;
use crate::app::App;
use crate::entrance::Caller;
use crate::proxy::{Target, pass};
use crate::refusal::{Refusal, Result};
use crate::route::{Claim, Class};
use crate::v1::arrived;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hotdesk_api::desk::NewDesk;
use serde_json::json;
use std::time::Duration;

/// How long a create waits for its box.
const START: Duration = Duration::from_secs(60);

pub(super) struct Tiny;

impl Dialect for Tiny {
    /// What an address asks for. Limits, metrics and the audit log go by it; without another word it needs a key.
    fn claim(&self, request: &mut Request) -> Option<Claim> {
        let rest = request.uri().path().strip_prefix("/tiny/")?;
        Some(match rest.strip_prefix("boxes/").and_then(|rest| rest.split_once('/')) {
            Some((id, "picture")) => Claim::new(Class::Screenshot, Some(id)),
            Some((id, _)) => Claim::new(Class::Desk, Some(id)),
            None => Claim::new(Class::Control, None),
        })
    }

    fn routes(&self) -> Router<App> {
        Router::new().route("/tiny/boxes", post(create)).route("/tiny/boxes/{id}/picture", get(picture))
    }

    /// Tiny's clients read errors as `{"error": "…"}`.
    fn refuse(&self, _path: &str, refusal: Refusal) -> Response {
        (refusal.status(), Json(json!({ "error": refusal.problem.detail }))).into_response()
    }
}

/// A box is a desk. Who may make one, and how many, the fleet decides by `caller.who`.
async fn create(State(app): State<App>, caller: Caller) -> Result<Json<serde_json::Value>, Response> {
    let made = async {
        let desk = app.fleet.create(&caller.who, NewDesk::default(), None).await?;
        arrived(&app, &caller.who, desk, START).await
    };
    let desk = made.await.map_err(|refusal| Tiny.refuse("", refusal))?;
    Ok(Json(json!({ "box": desk.id })))
}

/// Passed on to the desk's own API, streamed.
async fn picture(State(app): State<App>, caller: Caller, Path(id): Path<String>, request: Request) -> Response {
    pass(&app, &caller, &id, Target::desk("/v1/screenshot"), request).await
}
