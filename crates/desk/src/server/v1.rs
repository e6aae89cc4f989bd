//! The native API.

pub mod access;
pub mod clipboard;
pub mod files;
pub mod health;
pub mod input;
pub mod processes;
pub mod recording;
pub mod screen;
pub mod terminals;
pub mod view;
pub mod windows;

use crate::Desk;
use crate::error::Error;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;

/// Every route under `/v1`, with its description.
pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .merge(access::router())
        .merge(clipboard::router())
        .merge(files::router())
        .merge(health::router())
        .merge(input::router())
        .merge(processes::router())
        .merge(recording::router())
        .merge(screen::router())
        .merge(terminals::router())
        .merge(view::router())
        .merge(windows::router())
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/problem+json")], serde_json::to_string(&problem).unwrap_or_default())
                .into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}
