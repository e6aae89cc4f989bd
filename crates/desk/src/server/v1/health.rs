//! `/health`, what the desk is, and what its parts say.

use crate::Desk;
use crate::error::{Error, Result};
use crate::session::tools;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::health::{Health, Info, Logs};
use hotdesk_serve::Json;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// As many lines as are kept of all parts together, and some.
const MOST_LINES: usize = 10_000;
const DEFAULT_LINES: usize = 200;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(get_health))
        .routes(routes!(get_health_v1))
        .routes(routes!(get_info))
        .routes(routes!(get_logs))
}

/// How the desk is
///
/// 200 when it is ready, 503 while it starts, heals or stops. The body is the same in all cases; `waiting_for`
/// tells what the desk waits for and since when.
#[utoipa::path(
    get, path = "/health", tag = "health",
    responses(
        (status = 200, description = "The desk is ready.", body = Health),
        (status = 503, description = "The desk is not ready.", body = Health),
    )
)]
async fn get_health(State(desk): State<Desk>) -> Response {
    answer(&desk)
}

/// How the desk is
///
/// The same as `/health`.
#[utoipa::path(
    get, path = "/v1/health", tag = "health",
    responses(
        (status = 200, description = "The desk is ready.", body = Health),
        (status = 503, description = "The desk is not ready.", body = Health),
    )
)]
async fn get_health_v1(State(desk): State<Desk>) -> Response {
    answer(&desk)
}

fn answer(desk: &Desk) -> Response {
    let health = desk.session.health();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = (status, [(header::CACHE_CONTROL, "no-store")], Json(&health)).into_response();
    if !health.ready {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What the desk is and what it can do
#[utoipa::path(get, path = "/v1/info", tag = "health", responses((status = 200, body = Info)))]
async fn get_info(State(desk): State<Desk>) -> Result<Json<Info>> {
    let size = desk.screen.size().await.ok();
    let place = desk.place.clone();
    // Looks at a dozen directories.
    let features = tokio::task::spawn_blocking(move || tools::features(&place)).await.map_err(Error::internal)?;
    Ok(Json(Info {
        version: env!("CARGO_PKG_VERSION").into(),
        display: desk.place.display.name(),
        size,
        attached: desk.session.attached(),
        home: desk.place.home.to_string_lossy().into_owned(),
        user: desk.place.env.get("USER").cloned(),
        features,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogsQuery {
    /// One part alone: `x_server`, `bus`, `window_manager`, `program_1`, …
    part: Option<String>,
    /// How many lines at most, the last ones; 200 if left out.
    tail: Option<usize>,
}

/// What the parts of the session wrote
///
/// The last 200 lines of each part are kept.
#[utoipa::path(get, path = "/v1/logs", tag = "health", params(LogsQuery), responses((status = 200, body = Logs)))]
async fn get_logs(State(desk): State<Desk>, Query(query): Query<LogsQuery>) -> Result<Json<Logs>> {
    if let Some(part) = &query.part {
        let parts = desk.session.health().parts;
        if !parts.contains_key(part) {
            let known = parts.into_keys().collect::<Vec<_>>().join(", ");
            return Err(Error::NotFound(format!("the session has no part `{}`; it has {known}", part.escape_debug())));
        }
    }
    let lines = desk.session.logs(query.part.as_deref(), query.tail.unwrap_or(DEFAULT_LINES).min(MOST_LINES));
    Ok(Json(Logs { lines }))
}
