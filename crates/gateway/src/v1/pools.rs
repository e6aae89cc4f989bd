//! Pools: desks kept ready.

use super::wait::to_its_end;
use crate::app::App;
use crate::body::Input;
use crate::entrance::Caller;
use crate::refusal::Result;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hotdesk_api::Problem;
use hotdesk_api::calls::PoolList;
use hotdesk_api::fleet::{Pool, PoolSpec};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, set)).routes(routes!(remove))
}

/// Lists pools
#[utoipa::path(get, path = "/v1/pools", tag = "pools", responses((status = 200, body = PoolList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<PoolList>> {
    Ok(Json(PoolList { pools: app.fleet.pools(&caller.who).await? }))
}

/// Sets the pool of a template
#[utoipa::path(put, path = "/v1/pools", tag = "pools", request_body = PoolSpec, responses(
    (status = 200, body = Pool),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
))]
async fn set(State(app): State<App>, caller: Caller, Input(spec): Input<PoolSpec>) -> Result<Json<Pool>> {
    to_its_end(async move { Ok(Json(app.fleet.set_pool(&caller.who, spec).await?)) }).await
}

/// Removes the pool of a template, and the desks that wait in it
#[utoipa::path(delete, path = "/v1/pools/{template}", tag = "pools", params(("template" = String, Path, description = "Name of the template")), responses(
    (status = 204, description = "It is gone"),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such pool", body = Problem, content_type = "application/problem+json"),
))]
async fn remove(State(app): State<App>, caller: Caller, Path(template): Path<String>) -> Result<StatusCode> {
    to_its_end(async move {
        app.fleet.remove_pool(&caller.who, &template).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
