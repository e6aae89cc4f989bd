//! Keys: made, listed, rotated, revoked.

use super::wait::to_its_end;
use crate::app::App;
use crate::body::Input;
use crate::entrance::Caller;
use crate::refusal::Result;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hotdesk_api::Problem;
use hotdesk_api::calls::KeyList;
use hotdesk_api::fleet::{MadeKey, NewKey};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, make)).routes(routes!(revoke)).routes(routes!(rotate))
}

/// Lists keys, without their secrets
#[utoipa::path(get, path = "/v1/keys", tag = "keys", responses(
    (status = 200, body = KeyList),
    (status = 403, description = "The key may not", body = Problem, content_type = "application/problem+json"),
))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<KeyList>> {
    Ok(Json(KeyList { keys: app.fleet.keys(&caller.who).await? }))
}

/// Makes a key; its secret is shown this once
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = NewKey, responses(
    (status = 201, body = MadeKey),
    (status = 403, description = "The key may not", body = Problem, content_type = "application/problem+json"),
))]
async fn make(State(app): State<App>, caller: Caller, Input(new): Input<NewKey>) -> Result<(StatusCode, Json<MadeKey>)> {
    to_its_end(async move { Ok((StatusCode::CREATED, Json(app.fleet.make_key(&caller.who, new).await?))) }).await
}

/// Gives a key a new secret; the old one ends
#[utoipa::path(post, path = "/v1/keys/{id}/rotate", tag = "keys", params(("id" = String, Path, description = "Id")), responses(
    (status = 200, body = MadeKey),
    (status = 403, description = "The key may not", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such key", body = Problem, content_type = "application/problem+json"),
))]
async fn rotate(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<MadeKey>> {
    to_its_end(async move { Ok(Json(app.fleet.rotate_key(&caller.who, &id).await?)) }).await
}

/// Ends a key
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(("id" = String, Path, description = "Id")), responses(
    (status = 204, description = "It is revoked"),
    (status = 403, description = "The key may not", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such key", body = Problem, content_type = "application/problem+json"),
))]
async fn revoke(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode> {
    to_its_end(async move {
        app.fleet.revoke_key(&caller.who, &id).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
