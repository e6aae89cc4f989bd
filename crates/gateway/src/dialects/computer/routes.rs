//! The addresses: one call of a model in, what its API wants back out.

use super::view::MOST_DECLARED;
use super::{Deed, Eyes, View, anthropic, openai, screen};
use crate::app::App;
use crate::body::{Input, Params};
use crate::dialects::native::{Inside, Native};
use crate::entrance::{Base, Caller};
use crate::refusal::{Refusal, Result};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use hotdesk_api::Problem;
use hotdesk_api::action::Size;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Bytes of base64: what the models' APIs take is 5 MB.
const LARGEST_PICTURE: usize = 4_500_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(use_anthropic, declare_anthropic)).routes(routes!(use_openai, declare_openai))
}

/// What the model was told about its display.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Display {
    /// The width that the tool declares, in pixels. Left out with `height`: the screen's own, or as much of it as models see without loss.
    #[param(minimum = 1, maximum = 4096)]
    width: Option<u32>,
    /// The height that the tool declares, in pixels.
    #[param(minimum = 1, maximum = 4096)]
    height: Option<u32>,
    /// Which generation of the tool is declared; only for GET.
    version: Option<String>,
    /// Whether somebody has looked at the call's pending safety checks; only for OpenAI's.
    #[serde(default)]
    acknowledge_safety_checks: bool,
}

impl Display {
    fn view(&self, real: Size) -> Result<View> {
        match (self.width, self.height) {
            (None, None) => Ok(View::fitting(real)),
            (Some(width @ 1..=MOST_DECLARED), Some(height @ 1..=MOST_DECLARED)) => {
                Ok(View::declared(real, Size { width, height }))
            }
            (Some(_), Some(_)) => Err(Refusal::invalid(format!("`width` and `height` must be from 1 to {MOST_DECLARED}"))),
            _ => Err(Refusal::invalid("`width` and `height` are given together, or neither")),
        }
    }
}

/// A call of Claude's `computer` tool
///
/// Takes the `tool_use` block as the model wrote it, or its `input` alone, and answers with the `tool_result` block: a picture of
/// the settled screen, or an error that the model can learn from. Coordinates are pixels of the declared display.
#[utoipa::path(post, path = "/v1/desks/{id}/computer/anthropic", tag = "computer", params(("id" = String, Path, description = "Id or name"), Display), request_body = Value, responses(
    (status = 200, description = "The `tool_result` block", body = Value),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "The desk does not run", body = Problem, content_type = "application/problem+json"),
))]
async fn use_anthropic(
    State(app): State<App>,
    Extension(base): Extension<Base>,
    caller: Caller,
    Path(id): Path<String>,
    Params(display): Params<Display>,
    Input(value): Input<Value>,
) -> Result<Json<Value>> {
    let call = anthropic::read(value).map_err(Refusal::invalid)?;
    let native = native(app, base, caller);
    let view = display.view(screen(&native, &id).await?.size)?;
    let deed = match call.input.as_ref().map_err(String::clone).and_then(|input| anthropic::translate(input, &view)) {
        Ok(deed) => deed,
        Err(reason) => return Ok(Json(anthropic::result(&call, Err(reason)))),
    };
    let eyes = Eyes { native: &native, desk: &id, view, most: LARGEST_PICTURE };
    match eyes.perform(deed).await {
        Ok(seen) => Ok(Json(anthropic::result(&call, Ok(seen)))),
        // The list of actions was refused or stopped on its way, or a person drives: something that the model can learn from.
        Err(problem) if matches!(problem.status, 400 | 409 | 423) => Ok(Json(anthropic::result(&call, Err(problem.detail)))),
        Err(problem) => Err(problem.into()),
    }
}

/// Claude's `computer` tool, as it is declared for this desk
#[utoipa::path(get, path = "/v1/desks/{id}/computer/anthropic", tag = "computer", params(("id" = String, Path, description = "Id or name"), Display), responses(
    (status = 200, description = "One of the `tools` of a request to the model", body = Value),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn declare_anthropic(
    State(app): State<App>,
    Extension(base): Extension<Base>,
    caller: Caller,
    Path(id): Path<String>,
    Params(display): Params<Display>,
) -> Result<Json<Value>> {
    let view = display.view(screen(&native(app, base, caller), &id).await?.size)?;
    anthropic::declaration(display.version.as_deref(), view.shown).map(Json).map_err(Refusal::invalid)
}

/// A call of OpenAI's computer tool
///
/// Takes the `computer_call` item as the model wrote it, or an action alone, and answers with the `computer_call_output` item: a
/// picture of the settled screen. All actions are checked before the first is done. Coordinates are pixels of the declared display.
#[utoipa::path(post, path = "/v1/desks/{id}/computer/openai", tag = "computer", params(("id" = String, Path, description = "Id or name"), Display), request_body = Value, responses(
    (status = 200, description = "The `computer_call_output` item", body = Value),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Somebody has to look at the pending safety checks first; nothing was done", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "The desk does not run", body = Problem, content_type = "application/problem+json"),
))]
async fn use_openai(
    State(app): State<App>,
    Extension(base): Extension<Base>,
    caller: Caller,
    Path(id): Path<String>,
    Params(display): Params<Display>,
    Input(value): Input<Value>,
) -> Result<Json<Value>> {
    let call = openai::read(value).map_err(Refusal::invalid)?;
    if !call.checks.is_empty() && !display.acknowledge_safety_checks {
        let detail = format!("the call has {} pending safety checks; nothing was done", call.checks.len());
        return Err(Refusal::new(StatusCode::CONFLICT, "safety_checks", "Safety checks are pending", detail)
            .hint("look at `pending_safety_checks`, then send the call with `acknowledge_safety_checks=true`"));
    }
    let native = native(app, base, caller);
    let view = display.view(screen(&native, &id).await?.size)?;
    let actions = openai::translate(&call.steps, &view).map_err(Refusal::invalid)?;
    let deed = if actions.is_empty() { Deed::Look } else { Deed::Act(actions) };
    let eyes = Eyes { native: &native, desk: &id, view, most: LARGEST_PICTURE };
    let mut seen = eyes.perform(deed).await?;
    if seen.picture.is_none() {
        // The actions are done, so nothing may ask for them again; and the answer has room for nothing but a picture.
        let blind = |problem: Problem| {
            Refusal::bad_gateway(format!("the actions are done, but no picture can be taken: {}", problem.detail))
                .hint("send the action `screenshot`, not these again")
        };
        seen.picture = Some(eyes.look(None).await.map_err(blind)?);
    }
    Ok(Json(openai::output(&call, seen)))
}

/// OpenAI's computer tool, as it is declared for this desk
#[utoipa::path(get, path = "/v1/desks/{id}/computer/openai", tag = "computer", params(("id" = String, Path, description = "Id or name"), Display), responses(
    (status = 200, description = "One of the `tools` of a request to the model", body = Value),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn declare_openai(
    State(app): State<App>,
    Extension(base): Extension<Base>,
    caller: Caller,
    Path(id): Path<String>,
    Params(display): Params<Display>,
) -> Result<Json<Value>> {
    let view = display.view(screen(&native(app, base, caller), &id).await?.size)?;
    openai::declaration(display.version.as_deref(), view.shown).map(Json).map_err(Refusal::invalid)
}

fn native(app: App, Base(router): Base, caller: Caller) -> Native {
    Native::new(Arc::new(Inside { app, router, caller }))
}
