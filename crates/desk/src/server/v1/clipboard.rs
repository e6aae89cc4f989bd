//! Clipboard routes: raw contents of any type.

#[cfg(test)]
mod tests;

use crate::Desk;
use crate::clipboard::{Clipboard, Content, LARGEST};
use crate::error::{Error, Result};
use axum::extract::{DefaultBodyLimit, FromRef, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hotdesk_api::Problem;
use hotdesk_api::clipboard::{ClipboardQuery, ClipboardTypes};
use hotdesk_serve::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The type of a body that says none.
const TEXT: &str = "text/plain;charset=utf-8";

impl FromRef<Desk> for Clipboard {
    fn from_ref(desk: &Desk) -> Self {
        desk.clipboard.clone()
    }
}

pub fn router() -> OpenApiRouter<Desk> {
    router_of()
}

fn router_of<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Clipboard: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(read_clipboard, write_clipboard, clear_clipboard))
        .routes(routes!(list_clipboard_types))
        .layer(DefaultBodyLimit::max(LARGEST))
}

/// The content of the clipboard: as text in UTF-8, or as another type that its owner offers.
#[utoipa::path(get, path = "/v1/clipboard", tag = "clipboard", params(ClipboardQuery), responses(
    (status = 200, description = "The content, as it is.", content(("text/plain"), ("application/octet-stream"))),
    (status = 404, description = "It is empty, or has no such type.", body = Problem),
    (status = 413, description = "It is larger than 64 MiB.", body = Problem),
    (status = 503, description = "The display is down.", body = Problem),
    (status = 504, description = "The program that owns it does not answer.", body = Problem),
))]
async fn read_clipboard(State(clipboard): State<Clipboard>, Query(query): Query<ClipboardQuery>) -> Result<Response> {
    let content = clipboard.get(query.selection, query.r#type).await?;
    // Names of X targets are no MIME types.
    let kind = if content.kind.contains('/') { content.kind.as_str() } else { "application/octet-stream" };
    let kind = HeaderValue::from_str(kind).map_err(Error::internal)?;
    Ok(([(header::CONTENT_TYPE, kind)], content.bytes).into_response())
}

/// Puts a content on the clipboard: the body as it is, of the type that `type` or the header names.
#[utoipa::path(put, path = "/v1/clipboard", tag = "clipboard", params(ClipboardQuery),
    request_body(description = "The content.", content(("text/plain"), ("application/octet-stream"))),
    responses(
        (status = 204, description = "It is on the clipboard until something else is."),
        (status = 400, body = Problem),
        (status = 413, description = "It is larger than 64 MiB.", body = Problem),
        (status = 503, description = "The display is down.", body = Problem),
))]
async fn write_clipboard(
    State(clipboard): State<Clipboard>,
    Query(query): Query<ClipboardQuery>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<StatusCode> {
    let named = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().map(str::to_owned)).transpose();
    let named = named.map_err(|_| Error::Invalid("the content type is not ASCII".into()))?;
    // What curl says of any body if nobody tells it better.
    let named = named.filter(|kind| kind != "application/x-www-form-urlencoded");
    let kind = query.r#type.or(named).unwrap_or_else(|| TEXT.to_owned());
    clipboard.set(query.selection, Content { kind, bytes }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Empties the clipboard.
#[utoipa::path(delete, path = "/v1/clipboard", tag = "clipboard", params(ClipboardQuery), responses(
    (status = 204, description = "It is empty."),
    (status = 400, body = Problem),
    (status = 503, description = "The display is down.", body = Problem),
))]
async fn clear_clipboard(State(clipboard): State<Clipboard>, Query(query): Query<ClipboardQuery>) -> Result<StatusCode> {
    if query.r#type.is_some() {
        return Err(Error::Invalid("the clipboard is emptied as a whole, not one type of it".into()));
    }
    clipboard.clear(query.selection).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The types that the content can be read as.
#[utoipa::path(get, path = "/v1/clipboard/types", tag = "clipboard", params(ClipboardQuery), responses(
    (status = 200, body = ClipboardTypes),
    (status = 503, description = "The display is down.", body = Problem),
    (status = 504, description = "The program that owns it does not answer.", body = Problem),
))]
async fn list_clipboard_types(
    State(clipboard): State<Clipboard>,
    Query(query): Query<ClipboardQuery>,
) -> Result<Json<ClipboardTypes>> {
    clipboard.types(query.selection).await.map(Json)
}
