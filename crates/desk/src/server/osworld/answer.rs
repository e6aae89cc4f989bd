//! Answers in the forms that OSWorld's client knows: JSON, plain text that is labelled HTML, and
//! small pages for what its framework refuses by itself.

use crate::error::Error;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What handlers return.
pub(super) type Answer = Result<Response, Refusal>;

/// An answer other than 200.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What the framework answers when a handler never ran or was left by an exception.
    Page(StatusCode, String),
    Json(StatusCode, Value),
    Text(StatusCode, String),
    /// An engine can't do its work now.
    Desk(Error),
}

impl Refusal {
    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self::Page(StatusCode::BAD_REQUEST, why.into())
    }

    /// `{"status": "error", "message": …}` with 500.
    pub(super) fn message(why: impl Into<String>) -> Self {
        Self::Json(StatusCode::INTERNAL_SERVER_ERROR, json!({"status": "error", "message": why.into()}))
    }

    /// `{"error": …}`.
    pub(super) fn error(status: StatusCode, why: impl Into<String>) -> Self {
        Self::Json(status, json!({"error": why.into()}))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Desk(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Page(status, why) => page(status, &why),
            Self::Json(status, value) => json_with(status, &value),
            Self::Text(status, why) => text_with(status, why),
            Self::Desk(error) => {
                let status = StatusCode::from_u16(error.problem().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let mut response = json_with(status, &json!({"status": "error", "message": error.to_string()}));
                if let Some(seconds) = error.retry_after() {
                    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
                }
                response
            }
        }
    }
}

pub(super) fn json(value: &Value) -> Response {
    json_with(StatusCode::OK, value)
}

fn json_with(status: StatusCode, value: &Value) -> Response {
    let mut text = value.to_string();
    text.push('\n');
    json_text(status, text)
}

/// JSON that is written already.
pub(super) fn json_text(status: StatusCode, text: String) -> Response {
    with_type(status, "application/json", text.into())
}

pub(super) fn text(text: impl Into<String>) -> Response {
    text_with(StatusCode::OK, text.into())
}

fn text_with(status: StatusCode, text: String) -> Response {
    with_type(status, HTML, text.into())
}

const HTML: &str = "text/html; charset=utf-8";

fn page(status: StatusCode, why: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let html =
        format!("<!doctype html>\n<html lang=en>\n<title>{} {title}</title>\n<h1>{title}</h1>\n<p>{why}</p>\n", status.as_u16());
    with_type(status, HTML, html.into())
}

fn with_type(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// 405 with the methods that would do.
pub(super) fn wrong_method(allowed: &'static str) -> Response {
    let mut response = page(StatusCode::METHOD_NOT_ALLOWED, &format!("This path knows {allowed} only."));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The answer to OPTIONS.
pub(super) fn methods(allowed: &'static str) -> Response {
    let mut response = text("");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// 404 for a path that nobody serves.
pub(super) async fn no_such_path(uri: axum::http::Uri) -> Response {
    page(
        StatusCode::NOT_FOUND,
        &format!("There is nothing at {}. OSWorld's paths are at the root, hotdesk's own under /v1.", uri.path()),
    )
}
