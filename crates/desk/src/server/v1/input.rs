//! Input routes: lists of actions, where the pointer is, what keys are called.

#[cfg(test)]
mod tests;

use super::screen::settling;
use crate::Desk;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::screen::{Cursor, Format, SIZE_MOST, Screen, Shot, ShotRequest};
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotdesk_api::Problem;
use hotdesk_api::action::{Batch, KeyNames, Performed, Picture, PictureShape, Point, Receipt, Wish};
use hotdesk_api::screen::{CursorManner, PictureFormat};
use hotdesk_serve::Json;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What became of the actions, where the body is a picture.
const DONE: &str = "x-hotdesk-done";
const TOOK: &str = "x-hotdesk-ms";
const SETTLED: &str = "x-hotdesk-settled";

impl FromRef<Desk> for Input {
    fn from_ref(desk: &Desk) -> Self {
        desk.input.clone()
    }
}

pub fn router() -> OpenApiRouter<Desk> {
    router_of()
}

fn router_of<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Input: FromRef<S>,
    Screen: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(perform_actions))
        .routes(routes!(release_input))
        .routes(routes!(get_pointer))
        .routes(routes!(list_keys))
}

/// Does a list of actions, waits for a quiet screen and takes a picture, as far as each is asked for.
///
/// The list is checked as a whole before anything is done, and no other list is mixed into it. With
/// `screenshot` the answer is the picture, and headers tell what became of the actions; clients that
/// accept `application/json` get both in JSON. Without `screenshot` the answer is JSON.
///
/// Once an action had an effect no answer says `retry`: what fails afterwards is told by `problem` in
/// the answer, and a list that failed on its way is a 409 that says how far it came.
#[utoipa::path(post, path = "/v1/input", tag = "input", request_body = Batch, responses(
    (status = 200, description = "All actions were done.", content(
        (Performed = "application/json"), ("image/png"), ("image/jpeg"), ("image/webp"),
    ), headers(
        ("x-hotdesk-done" = u32, description = "With a picture: how many actions were done."),
        ("x-hotdesk-ms" = f64, description = "With a picture: milliseconds that the actions took."),
        ("x-hotdesk-settled" = bool, description = "With a picture and `settle`: whether the screen settled in time."),
        ("etag" = String, description = "With a picture: the same as long as the picture is."),
    )),
    (status = 400, description = "The list can't be done; nothing was.", body = Problem),
    (status = 409, description = "The list stopped on its way; do not send it again.", body = Problem),
    (status = 503, description = "The display is down; nothing was done.", body = Problem),
))]
async fn perform_actions(
    State(input): State<Input>,
    State(screen): State<Screen>,
    headers: HeaderMap,
    Json(batch): Json<Batch>,
) -> Result<Response> {
    // Everything that can be refused is refused before the first action.
    let settle = batch.settle.map(|wish| settling(wish.quiet_ms, wish.limit_ms)).transpose()?;
    let wish = match batch.screenshot {
        None | Some(Wish::Plain(false)) => None,
        Some(Wish::Plain(true)) => Some(ShotRequest::default()),
        Some(Wish::Shaped(shape)) => Some(shot_request(shape)?),
    };
    let format = wish.as_ref().map(|wish| wish.format).unwrap_or_default();

    let receipts = input.run(batch.actions).await?;
    let (settled, shot, problem) = look(&screen, settle, wish).await;
    let ms = receipts.iter().map(|receipt| receipt.ms).sum();
    match shot {
        Some(shot) if !wants_json(&headers) => picture_answer(&receipts, ms, settled, shot, format),
        shot => Ok(Json(Performed {
            actions: receipts,
            ms,
            settled,
            screenshot: shot.map(|shot| picture(shot, format)),
            problem: problem.map(|problem| Problem { retry: false, ..problem.problem() }),
        })
        .into_response()),
    }
}

/// What comes after the actions. Failing here is no failure of theirs.
async fn look(
    screen: &Screen,
    settle: Option<(Duration, Duration)>,
    wish: Option<ShotRequest>,
) -> (Option<bool>, Option<Shot>, Option<Error>) {
    let settled = match settle {
        Some((quiet, limit)) => match screen.settled(quiet, limit).await {
            Ok(settled) => Some(settled),
            Err(error) => return (None, None, Some(error)),
        },
        None => None,
    };
    match wish {
        Some(wish) => match screen.shot(wish).await {
            Ok(shot) => (settled, Some(shot), None),
            Err(error) => (settled, None, Some(error)),
        },
        None => (settled, None, None),
    }
}

fn picture_answer(receipts: &[Receipt], ms: f64, settled: Option<bool>, shot: Shot, format: Format) -> Result<Response> {
    let mut answer = ([(header::CONTENT_TYPE, format.mime())], shot.bytes).into_response();
    let headers = answer.headers_mut();
    let mut set = |name: &'static str, value: String| -> Result<()> {
        headers.insert(name, HeaderValue::from_str(&value).map_err(Error::internal)?);
        Ok(())
    };
    set(header::ETAG.as_str(), shot.etag)?;
    set(DONE, receipts.len().to_string())?;
    set(TOOK, format!("{ms:.3}"))?;
    if let Some(settled) = settled {
        set(SETTLED, settled.to_string())?;
    }
    Ok(answer)
}

fn picture(shot: Shot, format: Format) -> Picture {
    Picture { r#type: format.mime().into(), size: shot.size, etag: shot.etag, data: BASE64_STANDARD.encode(&shot.bytes) }
}

/// Whether the client asks for JSON by name; `*/*` leaves the choice to us.
fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|range| range.split(';').next().is_some_and(|kind| kind.trim() == "application/json"))
}

fn shot_request(shape: PictureShape) -> Result<ShotRequest> {
    if shape.scale.is_some_and(|scale| !(scale > 0.0 && scale <= 1.0)) {
        return Err(Error::Invalid("`scale` is above 0 and at most 1".into()));
    }
    if shape.quality.is_some_and(|quality| !(1..=100).contains(&quality)) {
        return Err(Error::Invalid("`quality` is between 1 and 100".into()));
    }
    if shape.max_width == Some(0) || shape.region.is_some_and(|region| region.width == 0 || region.height == 0) {
        return Err(Error::Invalid("a picture has at least one pixel".into()));
    }
    let fits = |side: u32| (1..=SIZE_MOST).contains(&side);
    if shape.size.is_some_and(|size| !fits(size.width) || !fits(size.height)) {
        return Err(Error::Invalid(format!("each side of `size` is from 1 to {SIZE_MOST}")));
    }
    if shape.size.is_some() && (shape.scale.is_some() || shape.max_width.is_some()) {
        return Err(Error::Invalid("`size` stands alone, without `scale` and `max_width`".into()));
    }
    Ok(ShotRequest {
        format: match shape.format {
            PictureFormat::Png => Format::Png,
            PictureFormat::Jpeg => Format::Jpeg,
            PictureFormat::Webp => Format::Webp,
        },
        cursor: match shape.cursor {
            CursorManner::True => Cursor::True,
            CursorManner::Osworld => Cursor::Osworld,
            CursorManner::None => Cursor::Hidden,
        },
        region: shape.region,
        max_width: shape.max_width,
        scale: shape.scale,
        size: shape.size,
        quality: shape.quality,
    })
}

/// Stops the lists that are running or waiting and releases every key and button.
#[utoipa::path(post, path = "/v1/input/release", tag = "input", responses(
    (status = 204, description = "Nothing is pressed any more."),
    (status = 503, description = "The display is down.", body = Problem),
))]
async fn release_input(State(input): State<Input>) -> Result<StatusCode> {
    input.release_all().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where the pointer is.
#[utoipa::path(get, path = "/v1/input/pointer", tag = "input", responses(
    (status = 200, body = Point),
    (status = 503, description = "The display is down.", body = Problem),
))]
async fn get_pointer(State(input): State<Input>) -> Result<Json<Point>> {
    input.pointer().await.map(Json)
}

/// The names of keys. A single character is a name as well, and so is `U+20AC`.
#[utoipa::path(get, path = "/v1/input/keys", tag = "input", responses((status = 200, body = KeyNames)))]
async fn list_keys(State(input): State<Input>) -> Json<KeyNames> {
    Json(input.key_names())
}
