//! The fleet as a whole: alive, ready, numbers, audit.

use crate::app::App;
use crate::body::Params;
use crate::entrance::Caller;
use crate::metrics;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use hotdesk_api::Problem;
use hotdesk_api::calls::{Alive, AuditLine, AuditList, Ready};
use hotdesk_api::fleet::FleetInfo;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Lines of the audit log in one answer.
const AUDIT_LINES: u32 = 100;
const MOST_AUDIT_LINES: u32 = 10_000;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(numbers))
        .routes(routes!(info))
        .routes(routes!(audit))
}

/// Whether the gateway is alive
#[utoipa::path(get, path = "/health", tag = "fleet", security(()), responses((status = 200, body = Alive)))]
async fn health() -> Json<Alive> {
    Json(Alive { status: "ok".into(), version: env!("CARGO_PKG_VERSION").into() })
}

/// Whether the fleet can do its work
#[utoipa::path(get, path = "/ready", tag = "fleet", security(()), responses(
    (status = 200, body = Ready),
    (status = 503, description = "Not yet, or not now", body = Problem, content_type = "application/problem+json"),
))]
async fn ready(State(app): State<App>) -> Result<Json<Ready>> {
    if app.closing.is_cancelled() {
        return Err(Refusal::unavailable("the gateway is about to end"));
    }
    let warnings = app.fleet.ready().await.map_err(|e| Refusal::unavailable(e.to_string()))?;
    Ok(Json(Ready { ready: true, warnings }))
}

/// Numbers for Prometheus
///
/// Needs a key of the whole fleet, or, where the gateway was started with `--open-metrics`, a request from its own machine.
#[utoipa::path(get, path = "/metrics", tag = "fleet", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
))]
async fn numbers(State(app): State<App>, caller: Result<Caller>) -> Result<([(HeaderName, &'static str); 1], String)> {
    // The entrance lets a request without a key through only where that is allowed.
    if let Ok(caller) = caller {
        caller.admin()?;
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::render(&app).await))
}

/// The fleet at a glance
#[utoipa::path(get, path = "/v1/fleet", tag = "fleet", responses((status = 200, body = FleetInfo)))]
async fn info(State(app): State<App>, _: Caller) -> Result<Json<FleetInfo>> {
    Ok(Json(app.fleet.info().await?))
}

/// How many lines.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WantedLines {
    /// The last so many: 100 if left out.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
}

/// Who asked for what, and how it ended
#[utoipa::path(get, path = "/v1/audit", tag = "fleet", params(WantedLines), responses(
    (status = 200, body = AuditList),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
))]
async fn audit(State(app): State<App>, caller: Caller, Params(wanted): Params<WantedLines>) -> Result<Json<AuditList>> {
    caller.admin()?;
    let limit = wanted.limit.unwrap_or(AUDIT_LINES);
    if limit == 0 || limit > MOST_AUDIT_LINES {
        return Err(Refusal::invalid(format!("`limit` is {limit}, but must be from 1 to {MOST_AUDIT_LINES}")));
    }
    let lines = app.fleet.store().audits(limit).await?.into_iter().map(|line| AuditLine {
        at: jiff::Timestamp::from_millisecond(line.at_ms).unwrap_or_default().to_string(),
        key: line.key,
        method: line.method,
        path: line.path,
        status: line.status,
        from: line.from,
    });
    Ok(Json(AuditList { lines: lines.collect() }))
}
