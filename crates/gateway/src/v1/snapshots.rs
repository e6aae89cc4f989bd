//! Snapshots: listed and deleted. They are made at their desk.

use super::wait::to_its_end;
use crate::app::App;
use crate::entrance::Caller;
use crate::refusal::Result;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hotdesk_api::Problem;
use hotdesk_api::calls::SnapshotList;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(delete))
}

/// Lists snapshots
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots", responses((status = 200, body = SnapshotList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<SnapshotList>> {
    Ok(Json(SnapshotList { snapshots: app.fleet.snapshots(&caller.who).await? }))
}

/// Deletes a snapshot
#[utoipa::path(delete, path = "/v1/snapshots/{id}", tag = "snapshots", params(("id" = String, Path, description = "Id")), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "There is no such snapshot, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Desks need it", body = Problem, content_type = "application/problem+json"),
))]
async fn delete(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode> {
    to_its_end(async move {
        app.fleet.delete_snapshot(&caller.who, &id).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
