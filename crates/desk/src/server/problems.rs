//! Every error of the native API in one form, also those that axum makes: a body that is no JSON,
//! a parameter of the wrong type, a wrong method, an unknown path.

use crate::error::Error;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;

/// Longer than anything that axum says.
const TEXT_LIMIT: usize = 16 << 10;

pub const CONTENT_TYPE: &str = "application/problem+json";

/// A problem as an answer.
pub fn response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_string(problem).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response()
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if matches!(self, Self::Internal(_)) {
            tracing::error!(error = %self, "a request failed");
        }
        let mut response = response(&self.problem());
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The answer to a path that does not exist.
pub async fn no_such_path(request: Request) -> Error {
    Error::NotFound(format!("there is no `{}`; `/v1/openapi.json` lists what there is", request.uri().path().escape_default()))
}

/// The middleware: an error that is only text becomes a problem; its headers (`Allow`) stay.
pub async fn from_text(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || !is_text(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, TEXT_LIMIT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let (code, status, title, hint) = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            let allowed = parts.headers.get(header::ALLOW).and_then(|v| v.to_str().ok()).unwrap_or("another method");
            ("method_not_allowed", status, "This method is not offered here", Some(format!("use {allowed}")))
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            ("unsupported_media_type", status, "The body has the wrong type", Some("see `/v1/openapi.json`".to_owned()))
        }
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", status, "Too large", None),
        StatusCode::NOT_FOUND => ("not_found", status, "There is no such thing", None),
        StatusCode::UPGRADE_REQUIRED => ("upgrade_required", status, "This is a WebSocket", None),
        // axum tells JSON that does not parse (400) from JSON of the wrong shape (422); to a client both are its mistake.
        _ if status.is_client_error() => {
            ("invalid", StatusCode::BAD_REQUEST, "The request can't be understood", Some("see `/v1/openapi.json`".to_owned()))
        }
        _ => ("internal", status, "hotdesk failed", None),
    };
    let detail = if text.is_empty() { format!("{method} {}: {status}", path.escape_default()) } else { text };
    let problem = Problem { code: code.into(), status: status.as_u16(), title: title.into(), detail, hint, retry: false };
    parts.status = status;
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(serde_json::to_string(&problem).unwrap_or_default()))
}

fn is_text(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"))
}
