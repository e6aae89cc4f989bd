//! Traces: recorded, listed, read.

use crate::Desk;
use crate::error::{Error, Result};
use crate::files::read;
use crate::server::ranges;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use hotdesk_api::trace::{NoteSnapshot, StartTrace, StepList, StepsQuery, TraceInfo, TraceList};
use hotdesk_serve::{Json, JsonRejection};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Steps of one answer.
const MOST_STEPS: u64 = 1000;
/// A picture is named by what it shows, so it never changes.
const FOR_EVER: &str = "private, max-age=31536000, immutable";

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(start_trace, current_trace, stop_trace))
        .routes(routes!(note_snapshot))
        .routes(routes!(list_traces))
        .routes(routes!(get_trace, delete_trace))
        .routes(routes!(get_trace_file))
        .routes(routes!(list_steps))
        .routes(routes!(get_frame))
        .routes(routes!(get_step_tree))
}

/// Begins to record
///
/// Every action from now on, by whomever and through whichever entrance, becomes a step.
#[utoipa::path(post, path = "/v1/trace", tag = "traces", request_body = StartTrace, responses(
    (status = 200, body = TraceInfo),
    (status = 400, description = "A field is wrong", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "A trace is being recorded", body = Problem, content_type = "application/problem+json"),
    (status = 507, description = "The disk is full", body = Problem, content_type = "application/problem+json"),
))]
async fn start_trace(State(desk): State<Desk>, body: Result<Json<StartTrace>, JsonRejection>) -> Result<Json<TraceInfo>> {
    let Json(how) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    desk.tracer.start(how).await.map(Json)
}

/// The trace that is being recorded
#[utoipa::path(get, path = "/v1/trace", tag = "traces", responses(
    (status = 200, body = TraceInfo),
    (status = 404, description = "None is", body = Problem, content_type = "application/problem+json"),
))]
async fn current_trace(State(desk): State<Desk>) -> Result<Json<TraceInfo>> {
    desk.tracer.current().map(Json).ok_or_else(|| Error::NotFound("no trace is being recorded".into()))
}

/// Ends the recording
#[utoipa::path(delete, path = "/v1/trace", tag = "traces", responses(
    (status = 200, body = TraceInfo),
    (status = 404, description = "None is being recorded", body = Problem, content_type = "application/problem+json"),
))]
async fn stop_trace(State(desk): State<Desk>) -> Result<Json<TraceInfo>> {
    desk.tracer.stop().await.map(Json)
}

/// Notes a snapshot as a step of the recording
///
/// The fleet does it for every snapshot that it takes; from there `hotdesk trace branch` goes on.
#[utoipa::path(post, path = "/v1/trace/snapshot", tag = "traces", request_body = NoteSnapshot, responses(
    (status = 204, description = "It is noted"),
    (status = 404, description = "No trace is being recorded", body = Problem, content_type = "application/problem+json"),
))]
async fn note_snapshot(State(desk): State<Desk>, body: Result<Json<NoteSnapshot>, JsonRejection>) -> Result<StatusCode> {
    let Json(note) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    desk.tracer.note_snapshot(&note.id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// All traces of the desk
#[utoipa::path(get, path = "/v1/traces", tag = "traces", responses((status = 200, body = TraceList)))]
async fn list_traces(State(desk): State<Desk>) -> Result<Json<TraceList>> {
    Ok(Json(TraceList { traces: desk.tracer.list().await? }))
}

/// One trace
#[utoipa::path(get, path = "/v1/traces/{id}", tag = "traces", params(("id" = String, Path)), responses(
    (status = 200, body = TraceInfo),
    (status = 404, description = "There is no such trace", body = Problem, content_type = "application/problem+json"),
))]
async fn get_trace(State(desk): State<Desk>, Path(id): Path<String>) -> Result<Json<TraceInfo>> {
    desk.tracer.info(&id).await.map(Json)
}

/// Deletes a trace
#[utoipa::path(delete, path = "/v1/traces/{id}", tag = "traces", params(("id" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "There is no such trace", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It is being recorded", body = Problem, content_type = "application/problem+json"),
))]
async fn delete_trace(State(desk): State<Desk>, Path(id): Path<String>) -> Result<StatusCode> {
    desk.tracer.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The whole file, which grows while it is recorded
///
/// `Range` is minded, so that a client can fetch what it does not have yet.
#[utoipa::path(get, path = "/v1/traces/{id}/file", tag = "traces", params(("id" = String, Path)), responses(
    (status = 200, description = "The file.", content_type = "application/octet-stream", body = Vec<u8>),
    (status = 206, description = "The wanted part.", content_type = "application/octet-stream", body = Vec<u8>),
    (status = 404, description = "There is no such trace", body = Problem, content_type = "application/problem+json"),
    (status = 416, description = "The file has no such bytes.", body = Problem, content_type = "application/problem+json"),
))]
async fn get_trace_file(State(desk): State<Desk>, Path(id): Path<String>, headers: HeaderMap) -> Result<Response> {
    let file = read::open(desk.tracer.file(&id)?).await?;
    ranges::respond(file, &headers, "application/octet-stream").await
}

/// Steps of a trace, in their order
#[utoipa::path(get, path = "/v1/traces/{id}/steps", tag = "traces", params(("id" = String, Path), StepsQuery), responses(
    (status = 200, body = StepList),
    (status = 404, description = "There is no such trace", body = Problem, content_type = "application/problem+json"),
))]
async fn list_steps(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    query: Result<Query<StepsQuery>, QueryRejection>,
) -> Result<Json<StepList>> {
    let Query(query) = query.map_err(|e| Error::Invalid(e.body_text()))?;
    let limit = query.limit.unwrap_or(MOST_STEPS).min(MOST_STEPS) as usize;
    let steps = desk.tracer.read(&id, move |reader| reader.steps(query.after, limit)).await?;
    Ok(Json(StepList { steps }))
}

/// A picture of a trace, without the pointer
#[utoipa::path(get, path = "/v1/traces/{id}/frames/{hash}", tag = "traces",
    params(("id" = String, Path), ("hash" = String, Path, description = "As `before` and `after` of a step name it")),
    responses(
        (status = 200, description = "The picture.", content_type = "image/png", body = Vec<u8>),
        (status = 404, description = "There is no such picture", body = Problem, content_type = "application/problem+json"),
))]
async fn get_frame(State(desk): State<Desk>, Path((id, hash)): Path<(String, String)>) -> Result<Response> {
    let png = desk.tracer.read(&id, move |reader| reader.frame(&hash)).await?;
    Ok(([(header::CONTENT_TYPE, "image/png"), (header::CACHE_CONTROL, FOR_EVER)], png).into_response())
}

/// The accessibility tree after a step
#[utoipa::path(get, path = "/v1/traces/{id}/steps/{number}/tree", tag = "traces",
    params(("id" = String, Path), ("number" = u64, Path)),
    responses(
        (status = 200, description = "The tree.", body = hotdesk_api::access::TreeReply),
        (status = 404, description = "It was not kept", body = Problem, content_type = "application/problem+json"),
))]
async fn get_step_tree(State(desk): State<Desk>, Path((id, number)): Path<(String, u64)>) -> Result<Response> {
    let json = desk.tracer.read(&id, move |reader| reader.tree(number)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
