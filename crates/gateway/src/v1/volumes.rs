//! Volumes: made, listed, deleted. They are mounted where a desk is made.

use super::wait::to_its_end;
use crate::app::App;
use crate::body::Input;
use crate::entrance::Caller;
use crate::refusal::Result;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hotdesk_api::Problem;
use hotdesk_api::calls::VolumeList;
use hotdesk_api::fleet::{NewVolume, Volume};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, make)).routes(routes!(get, delete))
}

/// Lists volumes
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", responses((status = 200, body = VolumeList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<VolumeList>> {
    Ok(Json(VolumeList { volumes: app.fleet.volumes(&caller.who).await? }))
}

/// Makes a volume
#[utoipa::path(post, path = "/v1/volumes", tag = "volumes", request_body = NewVolume, responses(
    (status = 201, body = Volume),
    (status = 400, description = "It can't be made like this", body = Problem, content_type = "application/problem+json"),
    (status = 403, description = "The key may not", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The name is taken", body = Problem, content_type = "application/problem+json"),
))]
async fn make(State(app): State<App>, caller: Caller, Input(new): Input<NewVolume>) -> Result<(StatusCode, Json<Volume>)> {
    to_its_end(async move { Ok((StatusCode::CREATED, Json(app.fleet.create_volume(&caller.who, new).await?))) }).await
}

/// Tells about a volume
#[utoipa::path(get, path = "/v1/volumes/{id}", tag = "volumes", params(("id" = String, Path, description = "Id or name")), responses(
    (status = 200, body = Volume),
    (status = 404, description = "There is no such volume, or it is not the key's", body = Problem, content_type = "application/problem+json"),
))]
async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<Volume>> {
    Ok(Json(app.fleet.volume(&caller.who, &id).await?))
}

/// Deletes a volume and everything in it
#[utoipa::path(delete, path = "/v1/volumes/{id}", tag = "volumes", params(("id" = String, Path, description = "Id or name")), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "There is no such volume, or it is not the key's", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Desks have it", body = Problem, content_type = "application/problem+json"),
))]
async fn delete(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode> {
    to_its_end(async move {
        app.fleet.delete_volume(&caller.who, &id).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
