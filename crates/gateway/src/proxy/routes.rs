//! The addresses that lead into desks, and their description.

use super::{Target, pass};
use crate::app::App;
use crate::entrance::Caller;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use hotdesk_api::Problem;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Described::openapi())
        .route("/v1/desks/{id}/{*rest}", any(passed))
        .route("/v1/desks/{id}/ports/{port}/", any(passed))
        .route("/v1/desks/{id}/ports/{port}/{*path}", any(passed))
        .route("/osworld/{id}", any(passed))
        .route("/osworld/{id}/", any(passed))
        .route("/osworld/{id}/{*path}", any(passed))
}

async fn passed(State(app): State<App>, caller: Caller, request: Request) -> Response {
    // The one would show the desk's secret, the other is for proxies of another kind.
    if [Method::TRACE, Method::CONNECT].contains(request.method()) {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS")]).into_response();
    }
    match Target::read(request.uri().path(), request.uri().query()) {
        Ok((desk, target)) => pass(&app, &caller, &desk, target, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[derive(OpenApi)]
#[openapi(paths(desk_route, desk_port, desk_port_http, desk_osworld))]
struct Described;

/// The desk's own API
///
/// Everything of the desk's `/v1/…`, streamed both ways, WebSockets too: `/v1/desks/{id}/screenshot`, `…/input`, `…/view`. The
/// desk describes it by itself, at `/v1/desks/{id}/openapi.json`. What the fleet offers under the same name wins.
#[utoipa::path(method(get, post, put, patch, delete), path = "/v1/desks/{id}/{rest}", tag = "desk", params(
    ("id" = String, Path, description = "Id or name of the desk"),
    ("rest" = String, Path, description = "What follows `/v1/` in the desk; may hold slashes"),
), responses(
    (status = 101, description = "Upgraded, as the client asked"),
    (status = 200, description = "What the desk answers", content_type = "*/*"),
    (status = 503, description = "The desk does not run, or does not answer", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The desk broke off; what was asked may have been done", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "What the desk answers, or a problem", content_type = "*/*"),
))]
#[expect(dead_code)]
fn desk_route() {}

/// A connection to a port of the desk
///
/// Send `Connection: Upgrade` and `Upgrade: tcp`. After the 101 the connection carries the bytes of a TCP connection to that
/// port of the desk's loopback.
#[utoipa::path(get, path = "/v1/desks/{id}/ports/{port}", tag = "desk", params(
    ("id" = String, Path, description = "Id or name of the desk"),
    ("port" = u16, Path, description = "The port, 1 to 65535"),
), responses(
    (status = 101, description = "Bytes of the TCP connection follow"),
    (status = 503, description = "The desk does not run, or nothing listens there", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "What went wrong, why, and what to do next", body = Problem, content_type = "application/problem+json"),
))]
#[expect(dead_code)]
fn desk_port() {}

/// HTTP and WebSockets to a port of the desk
///
/// The program there sees `Host: localhost:PORT`. Addresses in redirects and in Chrome's `/json` lists lead back through here.
#[utoipa::path(method(get, post, put, patch, delete), path = "/v1/desks/{id}/ports/{port}/{path}", tag = "desk", params(
    ("id" = String, Path, description = "Id or name of the desk"),
    ("port" = u16, Path, description = "The port, 1 to 65535"),
    ("path" = String, Path, description = "What the program there is asked for; may hold slashes"),
), responses(
    (status = 101, description = "Upgraded, as the client asked"),
    (status = 200, description = "What the program there answers", content_type = "*/*"),
    (status = 503, description = "The desk does not run, or nothing listens there", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "What the program there answers, or a problem", content_type = "*/*"),
))]
#[expect(dead_code)]
fn desk_port_http() {}

/// The desk's OSWorld dialect
///
/// `http://HOST:PORT/osworld/{id}` is an OSWorld base URL, and so is `http://HOST:PORT/k/KEY/osworld/{id}` for clients that send
/// no headers. `HOST:PORT/k/KEY/osworld/{id}` can stand where OSWorld's client wants `vm_ip`: the port that it puts behind it leads
/// to that port of the desk, and 5000 to its OSWorld dialect.
#[utoipa::path(method(get, post), path = "/osworld/{id}/{path}", tag = "desk", params(
    ("id" = String, Path, description = "Id or name of the desk"),
    ("path" = String, Path, description = "`screenshot`, `execute`, `setup/launch`, …"),
), responses(
    (status = 200, description = "What the desk answers", content_type = "*/*"),
    (status = 503, description = "The desk does not run, or does not answer", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "What the desk answers, or a problem", content_type = "*/*"),
))]
#[expect(dead_code)]
fn desk_osworld() {}
