//! What providers have and the fleet has no record of. Only for keys of the whole fleet.

use super::wait::to_its_end;
use crate::app::App;
use crate::body::Input;
use crate::entrance::Caller;
use crate::refusal::Result;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hotdesk_api::Problem;
use hotdesk_api::calls::OrphanList;
use hotdesk_api::fleet::{Adopt, Adopted};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(adopt)).routes(routes!(remove)).routes(routes!(settle))
}

/// Lists what has no record
#[utoipa::path(get, path = "/v1/orphans", tag = "orphans", responses(
    (status = 200, body = OrphanList),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<OrphanList>> {
    Ok(Json(OrphanList { orphans: app.fleet.orphans(&caller.who).await? }))
}

/// Makes it one of the fleet again
#[utoipa::path(post, path = "/v1/orphans/{id}/adopt", tag = "orphans", params(("id" = String, Path, description = "Id")),
    request_body = Adopt, responses(
    (status = 201, description = "A stopped desk, or a snapshot", body = Adopted),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such orphan", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The name is taken", body = Problem, content_type = "application/problem+json"),
))]
async fn adopt(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(how): Input<Adopt>,
) -> Result<(StatusCode, Json<Adopted>)> {
    to_its_end(async move { Ok((StatusCode::CREATED, Json(app.fleet.adopt(&caller.who, &id, how).await?))) }).await
}

/// Removes it for good
#[utoipa::path(delete, path = "/v1/orphans/{id}", tag = "orphans", params(("id" = String, Path, description = "Id")), responses(
    (status = 204, description = "It is gone"),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such orphan", body = Problem, content_type = "application/problem+json"),
))]
async fn remove(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode> {
    to_its_end(async move {
        app.fleet.remove_orphan(&caller.who, &id).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Lets go of what nobody adopted: it is stopped, and removed in a week
#[utoipa::path(post, path = "/v1/orphans/settle", tag = "orphans", responses(
    (status = 204, description = "It is settled"),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
))]
async fn settle(State(app): State<App>, caller: Caller) -> Result<StatusCode> {
    to_its_end(async move {
        app.fleet.settle_orphans(&caller.who).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
