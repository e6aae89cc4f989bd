//! Screen routes: pictures, what is known about the screen, its size, and a stream of what changes.

mod stream;
#[cfg(test)]
mod tests;

use crate::Desk;
use crate::error::{Error, Result};
use crate::screen::{Cursor, Format, SETTLE_MOST, Screen, ShotRequest};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRef, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use hotdesk_api::action::{Rect, Size};
use hotdesk_api::screen::{CursorManner, PictureFormat, ScreenInfo, ScreenshotQuery, SettledReply, SettledRequest};
use hotdesk_serve::{Json, JsonRejection};
use std::time::{Duration, Instant};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Says whether the picture shows a settled screen, where that was waited for.
const SETTLED: &str = "x-hotdesk-settled";

/// When nothing else is said: longer than the gap between two frames of an animation, shorter than a blinking text cursor's.
const QUIET: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(5);

impl FromRef<Desk> for Screen {
    fn from_ref(desk: &Desk) -> Self {
        desk.screen.clone()
    }
}

pub fn router() -> OpenApiRouter<Desk> {
    router_of()
}

/// These routes need the screen and nothing else of a desk.
fn router_of<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Screen: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(info))
        .routes(routes!(screenshot))
        .routes(routes!(settled))
        .routes(routes!(resize))
        .routes(routes!(stream::stream))
}

/// The screen's size, version and pointer.
#[utoipa::path(get, path = "/v1/screen", tag = "screen", responses(
    (status = 200, body = ScreenInfo),
    (status = 503, description = "The display is down.", body = Problem),
))]
async fn info(State(screen): State<Screen>) -> Result<Json<ScreenInfo>> {
    let glance = screen.glance().await?;
    let pointer = glance.cursor.position();
    Ok(Json(ScreenInfo { size: glance.size, depth: glance.depth, version: glance.version, pointer }))
}

/// A picture of the screen, or of a part of it.
///
/// Send the `ETag` of the last picture as `If-None-Match`: an unchanged screen is answered with 304 and no body.
#[utoipa::path(get, path = "/v1/screenshot", tag = "screen", params(ScreenshotQuery), responses(
    (status = 200, description = "The picture.", content(
        ("image/png"), ("image/jpeg"), ("image/webp"),
    ), headers(
        ("etag" = String, description = "The same as long as the picture is."),
        ("x-hotdesk-settled" = bool, description = "With `wait=settled`: whether the screen settled in time."),
    )),
    (status = 304, description = "The picture is the one whose tag was sent."),
    (status = 400, body = Problem),
    (status = 503, description = "The display is down.", body = Problem),
    (status = 504, description = "The display does not answer.", body = Problem),
))]
async fn screenshot(
    State(screen): State<Screen>,
    headers: HeaderMap,
    query: Result<Query<ScreenshotQuery>, QueryRejection>,
) -> Result<Response> {
    let query = checked(query)?;
    let request = ShotRequest {
        format: match query.format {
            PictureFormat::Png => Format::Png,
            PictureFormat::Jpeg => Format::Jpeg,
            PictureFormat::Webp => Format::Webp,
        },
        cursor: match query.cursor {
            CursorManner::True => Cursor::True,
            CursorManner::Osworld => Cursor::Osworld,
            CursorManner::None => Cursor::Hidden,
        },
        region: query.region.as_deref().map(region).transpose()?,
        max_width: query.max_width,
        scale: query.scale,
        size: query.size.as_deref().map(size).transpose()?,
        quality: query.quality,
    };
    let (quiet, limit) = settling(query.quiet_ms, query.limit_ms)?;
    let settled = match query.wait {
        Some(_) => Some(screen.settled(quiet, limit).await?),
        None if query.quiet_ms.or(query.limit_ms).is_some() => {
            return Err(Error::Invalid("quiet_ms and limit_ms need wait=settled".into()));
        }
        None => None,
    };
    let format = request.format;
    let shot = screen.shot(request).await?;
    let mut answer = match headers.get(header::IF_NONE_MATCH).is_some_and(|known| names(known, &shot.etag)) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, format.mime())], shot.bytes).into_response(),
    };
    let headers = answer.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, HeaderValue::from_str(&shot.etag).map_err(Error::internal)?);
    if let Some(settled) = settled {
        headers.insert(SETTLED, HeaderValue::from_static(if settled { "true" } else { "false" }));
    }
    Ok(answer)
}

/// Waits until nothing changes on the screen.
#[utoipa::path(post, path = "/v1/screen/settled", tag = "screen", request_body = SettledRequest, responses(
    (status = 200, body = SettledReply),
    (status = 400, body = Problem),
    (status = 503, description = "The display is down.", body = Problem),
))]
async fn settled(State(screen): State<Screen>, body: Result<Json<SettledRequest>, JsonRejection>) -> Result<Json<SettledReply>> {
    let Json(request) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    let (quiet, limit) = settling(request.quiet_ms, request.limit_ms)?;
    let start = Instant::now();
    let settled = screen.settled(quiet, limit).await?;
    Ok(Json(SettledReply { settled, waited_ms: start.elapsed().as_millis() as u64 }))
}

/// Gives the screen another size, where the X server can. Xvfb can't grow beyond the size it was started with.
#[utoipa::path(put, path = "/v1/screen/size", tag = "screen", request_body = Size, responses(
    (status = 200, description = "The size that the screen has now.", body = Size),
    (status = 400, body = Problem),
    (status = 501, description = "The X server can't.", body = Problem),
    (status = 503, description = "The display is down.", body = Problem),
))]
async fn resize(State(screen): State<Screen>, body: Result<Json<Size>, JsonRejection>) -> Result<Json<Size>> {
    let Json(size) = body.map_err(|e| Error::Invalid(e.body_text()))?;
    Ok(Json(screen.resize(size).await?))
}

fn checked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T> {
    query.map(|Query(query)| query).map_err(|e| Error::Invalid(e.body_text()))
}

/// `x,y,width,height`
fn region(text: &str) -> Result<Rect> {
    let wrong = || Error::Invalid(format!("region is {text:?}, but must be four whole numbers: x,y,width,height"));
    let mut parts = text.split(',').map(str::trim);
    let mut next = || parts.next().ok_or_else(wrong);
    let rect = Rect {
        x: next()?.parse().map_err(|_| wrong())?,
        y: next()?.parse().map_err(|_| wrong())?,
        width: next()?.parse().map_err(|_| wrong())?,
        height: next()?.parse().map_err(|_| wrong())?,
    };
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(rect)
}

/// `1280x800`
fn size(text: &str) -> Result<Size> {
    let sides = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    match sides {
        Some((width, height)) => Ok(Size { width, height }),
        None => Err(Error::Invalid(format!("size is {text:?}, but must be width and height, such as 1280x800"))),
    }
}

pub(super) fn settling(quiet_ms: Option<u64>, limit_ms: Option<u64>) -> Result<(Duration, Duration)> {
    let time = |name: &str, ms: Option<u64>, default: Duration| {
        let time = ms.map_or(default, Duration::from_millis);
        if time > SETTLE_MOST {
            return Err(Error::Invalid(format!(
                "{name} is {}, but may be at most {}",
                time.as_millis(),
                SETTLE_MOST.as_millis()
            )));
        }
        Ok(time)
    };
    Ok((time("quiet_ms", quiet_ms, QUIET)?, time("limit_ms", limit_ms, LIMIT)?))
}

/// Whether an `If-None-Match` header names this tag.
fn names(header: &HeaderValue, etag: &str) -> bool {
    let known = header.to_str().unwrap_or_default();
    known.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == "*" || tag == etag)
}
