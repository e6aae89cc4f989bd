//! Recording routes.

use crate::Desk;
use crate::error::{Error, Result};
use crate::files::read;
use crate::recorder::Film;
use crate::server::ranges;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use hotdesk_api::recording::{Recording, RecordingRequest};
use hotdesk_serve::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Tells why a film is shorter than it should be.
const BROKEN: &str = "hotdesk-film-broken";

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(start_recording, get_recording, delete_recording))
        .routes(routes!(stop_recording))
        .routes(routes!(get_film))
}

/// Begin a film
///
/// Answers once the first frame is written. One film at a time: 409 while one is under way. The last film is deleted.
#[utoipa::path(
    post, path = "/v1/recording", tag = "recording",
    request_body(content = RecordingRequest, description = "What is filmed and how; may be left out."),
    responses(
        (status = 201, description = "The film is under way.", body = Recording),
        (status = 409, description = "A film is under way already.", content_type = "application/problem+json", body = hotdesk_api::Problem),
        (status = 501, description = "ffmpeg is missing.", content_type = "application/problem+json", body = hotdesk_api::Problem),
    )
)]
async fn start_recording(State(desk): State<Desk>, body: Bytes) -> Result<(StatusCode, Json<Recording>)> {
    let request = if body.trim_ascii().is_empty() {
        RecordingRequest::default()
    } else {
        hotdesk_api::json::from_slice(&body)
            .map_err(|e| Error::Invalid(format!("the body is not a description of a film: {e}")))?
    };
    desk.recorder.start_with(request).await?;
    Ok((StatusCode::CREATED, Json(desk.recorder.state().await)))
}

/// How the recorder is
#[utoipa::path(get, path = "/v1/recording", tag = "recording", responses((status = 200, body = Recording)))]
async fn get_recording(State(desk): State<Desk>) -> Json<Recording> {
    Json(desk.recorder.state().await)
}

/// Throw the film away
///
/// Ends what is under way and deletes what is kept.
#[utoipa::path(delete, path = "/v1/recording", tag = "recording", responses((status = 204, description = "There is no film any more.")))]
async fn delete_recording(State(desk): State<Desk>) -> StatusCode {
    desk.recorder.shutdown().await;
    StatusCode::NO_CONTENT
}

/// End the film and fetch it
///
/// The film stays until the next one begins: `/v1/recording/film` has it again, with `Range`.
#[utoipa::path(
    post, path = "/v1/recording/stop", tag = "recording",
    responses(
        (status = 200, description = "The film.", content_type = "video/mp4", body = Vec<u8>),
        (status = 409, description = "No film is under way.", content_type = "application/problem+json", body = hotdesk_api::Problem),
    )
)]
async fn stop_recording(State(desk): State<Desk>) -> Result<Response> {
    send(desk.recorder.finish().await?, &HeaderMap::new()).await
}

/// Fetch the last film
///
/// Streamed. `Range`, `If-Range` and `If-None-Match` are minded.
#[utoipa::path(
    get, path = "/v1/recording/film", tag = "recording",
    responses(
        (status = 200, description = "The whole film.", content_type = "video/mp4", body = Vec<u8>),
        (status = 206, description = "The wanted part.", content_type = "video/mp4", body = Vec<u8>),
        (status = 404, description = "There is no film.", content_type = "application/problem+json", body = hotdesk_api::Problem),
    )
)]
async fn get_film(State(desk): State<Desk>, headers: HeaderMap) -> Result<Response> {
    let film = desk.recorder.last().await.ok_or_else(|| Error::NotFound("there is no finished film".into()))?;
    send(film, &headers).await
}

async fn send(film: Film, headers: &HeaderMap) -> Result<Response> {
    let mut response = ranges::respond(read::open(film.file).await?, headers, "video/mp4").await?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=recording.mp4"));
    if let Some(why) = film.broken
        && let Ok(why) = HeaderValue::from_str(&why.escape_debug().to_string().chars().take(500).collect::<String>())
    {
        headers.insert(BROKEN, why);
    }
    Ok(response)
}
