//! The native API.

pub mod access;
pub mod activity;
mod attach;
pub mod clipboard;
pub mod files;
pub mod freeze;
pub mod git;
pub mod health;
pub mod input;
pub mod kernels;
pub mod lease;
pub mod ports;
pub mod processes;
pub mod recording;
pub mod screen;
pub mod shells;
pub mod terminals;
pub mod trace;
pub mod users;
pub mod view;
pub mod windows;

use super::{openapi, problems};
use crate::Desk;
use axum::{Router, middleware, routing};
use utoipa_axum::router::OpenApiRouter;

/// The native API as it is served: all routes, their description, and problems for everything else.
pub fn service() -> Router<Desk> {
    let (router, _) = router().split_for_parts();
    router
        .route("/v1/openapi.json", routing::get(openapi::get))
        .fallback(problems::no_such_path)
        .layer(middleware::from_fn(problems::from_text))
}

/// Every route under `/v1`, with its description.
pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .merge(access::router())
        .merge(activity::router())
        .merge(clipboard::router())
        .merge(files::router())
        .merge(freeze::router())
        .merge(git::router())
        .merge(health::router())
        .merge(input::router())
        .merge(kernels::router())
        .merge(lease::router())
        .merge(ports::router())
        .merge(processes::router())
        .merge(recording::router())
        .merge(screen::router())
        .merge(shells::router())
        .merge(terminals::router())
        .merge(trace::router())
        .merge(users::router())
        .merge(view::router())
        .merge(windows::router())
}
