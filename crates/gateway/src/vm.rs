//! The four routes of `/vm`: a desk in as few words as possible.

use crate::app::App;
use crate::body::{Input, InputOrDefault};
use crate::credentials::Place;
use crate::entrance::Caller;
use crate::proxy::{self, Target, pass};
use crate::refusal::{Refusal, Result};
use crate::v1::{arrived, refuse_failed, to_its_end};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use hotdesk_api::calls::{VmCreated, VmDeleted, VmExecute, VmExecuted};
use hotdesk_api::desk::{self, NewDesk};
use serde_json::Value;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long `create` waits: the first desk of a template that is being built takes minutes.
const CREATE_LIMIT: Duration = Duration::from_secs(600);
const DELETE_LIMIT: Duration = Duration::from_secs(30);
/// What a command printed, in JSON.
const LARGEST_OUTPUT: usize = 256 << 20;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(execute)).routes(routes!(screenshot)).routes(routes!(delete))
}

/// Makes a desk and waits until it runs
#[utoipa::path(post, path = "/vm/create", tag = "vm", request_body = Option<NewDesk>, responses(
    (status = 200, description = "It runs", body = VmCreated),
    (status = 402, description = "The budget is spent", body = Problem, content_type = "application/problem+json"),
    (status = 429, description = "A limit is reached; `Retry-After` says when to ask again", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The desk was made and failed", body = Problem, content_type = "application/problem+json"),
    (status = 504, description = "It is still on its way", body = Problem, content_type = "application/problem+json"),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    InputOrDefault(new): InputOrDefault<NewDesk>,
) -> Result<Json<VmCreated>> {
    let idempotency = crate::v1::idempotency(&headers)?;
    let desk = app.fleet.create(&caller.who, new, idempotency.as_deref()).await?;
    let desk = arrived(&app, &caller.who, desk, CREATE_LIMIT).await?;
    refuse_failed(&desk)?;
    if desk.state != desk::State::Running {
        let detail = format!("the desk {} does not run after {} s: {}", desk.id, CREATE_LIMIT.as_secs(), desk.reason);
        return Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "It took too long", detail)
            .hint(format!("`GET /v1/desks/{}` tells its stage", desk.id))
            .location(format!("/v1/desks/{}", desk.id)));
    }
    let base = base(&app, &caller);
    Ok(Json(VmCreated {
        vm_id: desk.id.clone(),
        id: desk.id.clone(),
        status: "running".into(),
        url: format!("{base}/v1/desks/{}", desk.id),
        osworld_url: format!("{base}/osworld/{}", desk.id),
        desk,
    }))
}

/// Runs a command on a desk
#[utoipa::path(post, path = "/vm/{id}/execute", tag = "vm", params(("id" = String, Path, description = "Id or name")), request_body = VmExecute, responses(
    (status = 200, body = VmExecuted),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The desk broke off; the command may have run", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "The desk does not run", body = Problem, content_type = "application/problem+json"),
))]
async fn execute(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(wanted): Input<VmExecute>,
) -> Result<Response> {
    let desk = proxy::desk(&app, &caller, &id).at_most(LARGEST_OUTPUT);
    let wanted = serde_json::to_vec(&wanted).map_err(Refusal::internal)?;
    let answer = desk.exchange_json(Method::POST, "/execute", wanted.into()).await.map_err(Refusal::internal)?;
    if answer.extensions().get::<crate::entrance::PassedOn>().is_none() {
        return Ok(answer);
    }
    let status = answer.status();
    let answer = desk.read(answer).await.map_err(|e| {
        Refusal::bad_gateway(format!("the desk's answer can't be read: {e}"))
            .hint("the command ran; look at the desk before you send it again")
    })?;
    Ok(executed(status, &answer.bytes)?.into_response())
}

/// What the desk's `/execute` says, in the form of ours. That gives 500 for a command that can't be started, which is no error of
/// a server's.
fn executed(status: StatusCode, text: &[u8]) -> Result<Json<VmExecuted>> {
    let value: Option<Value> = serde_json::from_slice(text).ok();
    let word = |name: &str| value.as_ref().and_then(|v| v.get(name)).and_then(Value::as_str).map(str::to_owned);
    match (status, &value) {
        (StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT, _) => Err(Refusal::unavailable(
            word("message").or_else(|| word("detail")).unwrap_or_else(|| "the desk can't do that now".into()),
        )),
        (_, Some(Value::Object(_))) => Ok(Json(VmExecuted {
            status: word("status").unwrap_or_else(|| "error".into()),
            output: word("output").unwrap_or_default(),
            error: word("error").or_else(|| word("message")).unwrap_or_default(),
            returncode: value.as_ref().and_then(|v| v.get("returncode")).and_then(Value::as_i64).unwrap_or(-1),
        })),
        _ => Err(Refusal::invalid(plain(text))),
    }
}

/// The last paragraph of the small page by which OSWorld's server refuses.
fn plain(page: &[u8]) -> String {
    let page = String::from_utf8_lossy(page);
    let text = page.split("<p>").last().unwrap_or_default().split("</p>").next().unwrap_or_default().trim();
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    if text.is_empty() { "the desk did not take the command".into() } else { text }
}

/// A picture of a desk's screen
#[utoipa::path(get, path = "/vm/{id}/screenshot", tag = "vm", params(("id" = String, Path, description = "Id or name")), responses(
    (status = 200, description = "The picture", content_type = "image/png"),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "The desk does not run", body = Problem, content_type = "application/problem+json"),
))]
async fn screenshot(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Response {
    pass(&app, &caller, &id, Target::desk("/v1/screenshot"), Request::new(Body::empty())).await
}

/// Deletes a desk
#[utoipa::path(delete, path = "/vm/{id}/delete", tag = "vm", params(("id" = String, Path, description = "Id or name")), responses(
    (status = 200, body = VmDeleted),
    (status = 404, description = "There is no such desk, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn delete(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<VmDeleted>> {
    to_its_end(async move {
        let desk = app.fleet.delete(&caller.who, &id).await?;
        let desk = arrived(&app, &caller.who, desk, DELETE_LIMIT).await?;
        let status = if desk.state == desk::State::Deleted { "deleted" } else { "deleting" };
        Ok(Json(VmDeleted { status: status.into(), vm_id: desk.id.clone(), id: desk.id }))
    })
    .await
}

/// What stands before the paths of addresses that we hand out. The key is in it where the client had it there.
fn base(app: &App, caller: &Caller) -> String {
    let base = base_without_key(app, caller);
    match caller.place {
        Place::Header => base,
        Place::Address => format!("{base}/k/{}", caller.secret.reveal()),
    }
}

/// The same for those who get a key of their own.
pub(crate) fn base_without_key(app: &App, caller: &Caller) -> String {
    match &app.public {
        Some(public) => format!("{}://{}{}", if public.https { "https" } else { "http" }, public.host, public.path),
        None => {
            let scheme = if caller.peer.tls { "https" } else { "http" };
            format!("{scheme}://{}", caller.host.as_deref().unwrap_or("localhost"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_desk_take_one_form() {
        let good = br#"{"status": "success", "output": "hi\n", "error": "", "returncode": 3}"#;
        let Json(answer) = executed(StatusCode::OK, good).unwrap();
        assert_eq!((answer.status.as_str(), answer.output.as_str(), answer.returncode), ("success", "hi\n", 3));
        let missing = br#"{"status": "error", "message": "No such file"}"#;
        let Json(answer) = executed(StatusCode::INTERNAL_SERVER_ERROR, missing).unwrap();
        assert_eq!((answer.status.as_str(), answer.error.as_str(), answer.returncode), ("error", "No such file", -1));
        let page = b"<!doctype html>\n<h1>x</h1>\n<p>No closing quotation &lt;.</p>\n";
        let refusal = executed(StatusCode::INTERNAL_SERVER_ERROR, page).unwrap_err();
        assert_eq!((refusal.problem.status, refusal.problem.detail.as_str()), (400, "No closing quotation <."));
        assert_eq!(executed(StatusCode::SERVICE_UNAVAILABLE, b"{}").unwrap_err().problem.status, 503);
    }
}
