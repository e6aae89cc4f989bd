//! Who drives: asked, watched, taken, given back.

use crate::Desk;
use crate::error::{Error, Result};
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use hotdesk_api::lease::{Lease, TakeLease};
use hotdesk_serve::{Json, JsonRejection};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(get_lease, take_lease, give_lease)).routes(routes!(watch_lease))
}

/// Who drives
#[utoipa::path(get, path = "/v1/lease", tag = "lease", responses((status = 200, body = Lease)))]
async fn get_lease(State(desk): State<Desk>) -> Json<Lease> {
    Json(desk.lease.look())
}

/// A person takes over
///
/// What agents do from now on is refused with 423 until the person gives the desk back or does nothing
/// for `idle_s` seconds; what they look at is not. Lists of actions that are under way stop, and every
/// key and button is released. The person's own requests carry `x-hotdesk-viewer: VIEWER`.
#[utoipa::path(put, path = "/v1/lease", tag = "lease", request_body = TakeLease, responses(
    (status = 200, description = "The person drives", body = Lease),
    (status = 400, description = "A field is wrong", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Another person drives", body = Problem, content_type = "application/problem+json"),
))]
async fn take_lease(State(desk): State<Desk>, body: Result<Json<TakeLease>, JsonRejection>) -> Result<Json<Lease>> {
    let Json(how) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    let lease = desk.lease.take(how, desk.input.clone()).await?;
    tracing::info!(name = lease.name.as_deref().unwrap_or("-"), "a person drives");
    Ok(Json(lease))
}

/// Gives the desk back to the agent, whoever drives
#[utoipa::path(delete, path = "/v1/lease", tag = "lease", responses((status = 200, description = "The agent drives", body = Lease)))]
async fn give_lease(State(desk): State<Desk>) -> Json<Lease> {
    let lease = desk.lease.give(desk.input.clone()).await;
    tracing::info!("the agent drives");
    Json(lease)
}

/// Who drives, now and after every change
#[utoipa::path(get, path = "/v1/lease/events", tag = "lease",
    responses((status = 200, description = "Events.", content_type = "text/event-stream", body = Lease)))]
async fn watch_lease(State(desk): State<Desk>) -> Response {
    let mut changes = desk.lease.watch();
    let closing = desk.view.closing();
    let events = async_stream::stream! {
        loop {
            changes.mark_unchanged();
            yield Event::default().json_data(desk.lease.look());
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { break },
                () = closing.cancelled() => break,
            }
        }
    };
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
