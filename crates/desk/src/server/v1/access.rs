//! Accessibility routes.

use crate::Desk;
use crate::error::{Error, Result};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use hotdesk_api::access::{Act, ActReply, AtQuery, AtReply, FindReply, FindRequest, TreeQuery, TreeReply};
use hotdesk_serve::{Json, JsonRejection};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(tree))
        .routes(routes!(xml))
        .routes(routes!(find))
        .routes(routes!(at))
        .routes(routes!(act))
        .routes(routes!(forget))
}

/// The tree of the desk's programs, or a part of it
#[utoipa::path(
    get,
    path = "/v1/accessibility",
    tag = "accessibility",
    params(TreeQuery),
    responses(
        (status = 200, description = "The tree", body = TreeReply),
        (status = 400, description = "A parameter is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Accessibility is down", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn tree(State(desk): State<Desk>, query: Result<Query<TreeQuery>, QueryRejection>) -> Result<Json<TreeReply>> {
    let Query(query) = query.map_err(|e| Error::Invalid(e.body_text()))?;
    desk.access.tree(&query).await.map(Json)
}

/// The same tree as the XML of OSWorld
#[utoipa::path(
    get,
    path = "/v1/accessibility.xml",
    tag = "accessibility",
    responses(
        (status = 200, description = "The tree", body = String, content_type = "application/xml"),
        (status = 503, description = "Accessibility is down", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn xml(State(desk): State<Desk>) -> Result<Response> {
    let xml = desk.access.osworld_xml().await?;
    Ok(([(header::CONTENT_TYPE, "application/xml; charset=utf-8")], xml).into_response())
}

/// Elements by role, name, text and states
#[utoipa::path(
    post,
    path = "/v1/accessibility/find",
    tag = "accessibility",
    request_body = FindRequest,
    responses(
        (status = 200, description = "What was found, maybe nothing", body = FindReply),
        (status = 400, description = "The request is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Accessibility is down", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn find(State(desk): State<Desk>, body: Result<Json<FindRequest>, JsonRejection>) -> Result<Json<FindReply>> {
    let Json(request) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    desk.access.find(&request).await.map(Json)
}

/// The element that a click would meet
#[utoipa::path(
    get,
    path = "/v1/accessibility/at",
    tag = "accessibility",
    params(AtQuery),
    responses(
        (status = 200, description = "The smallest element there and what it is in", body = AtReply),
        (status = 400, description = "A parameter is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Accessibility or the display is down", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn at(State(desk): State<Desk>, query: Result<Query<AtQuery>, QueryRejection>) -> Result<Json<AtReply>> {
    let Query(query) = query.map_err(|e| Error::Invalid(e.body_text()))?;
    desk.access.at(query.x, query.y).await.map(Json)
}

/// Does something to an element, without mouse and keyboard
#[utoipa::path(
    post,
    path = "/v1/accessibility/act",
    tag = "accessibility",
    request_body = Act,
    responses(
        (status = 200, description = "The program has it", body = ActReply),
        (status = 400, description = "The element can't do that; the problem says what it can", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The element is gone", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The program refuses it in its present state", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Accessibility is down", body = Problem, content_type = "application/problem+json"),
        (status = 504, description = "The program does not answer", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn act(State(desk): State<Desk>, body: Result<Json<Act>, JsonRejection>) -> Result<Json<ActReply>> {
    let Json(request) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    desk.access.act(&request).await.map(Json)
}

/// Forgets what is kept of the tree, so that the next answer is built from nothing
#[utoipa::path(
    post,
    path = "/v1/accessibility/forget",
    tag = "accessibility",
    responses((status = 204, description = "Forgotten"))
)]
async fn forget(State(desk): State<Desk>) -> StatusCode {
    desk.access.forget().await;
    StatusCode::NO_CONTENT
}
