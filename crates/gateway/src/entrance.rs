//! The way of every request: the key is found and taken out, who is it, may it ask so often; then the routes; then it is
//! measured, written to the audit log, and told to the browser what its page may read.
//!
//! Closed by default: a path that is neither named in [`OPEN`] nor a file of the dashboard needs a key, also one that does not exist.

use crate::app::App;
use crate::class::{self, Class};
use crate::connection::Answer;
use crate::credentials::{self, Place, Secret};
use crate::dialects::e2b;
use crate::dialects::{computer, mcp};
use crate::listen::Peer;
use crate::refusal::{self, Refusal, Result};
use crate::{dialects, limits, metrics, openapi, origin, page, proxy, telemetry, v1, vm};
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use futures_util::FutureExt;
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::Who;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tower::ServiceExt;
use tracing::{Instrument, Span, field};

/// What everybody may ask.
const OPEN: [&str; 3] = ["/health", "/ready", "/v1/openapi.json"];
const METRICS: &str = "/metrics";
const REQUEST_ID: &str = "x-request-id";
/// A request's name, as its client gave it.
const LONGEST_REQUEST_ID: usize = 64;

/// Who asks, from where, and how.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) who: Who,
    pub(crate) secret: Secret,
    pub(crate) place: Place,
    pub(crate) peer: Peer,
    /// The name under which the client knows us.
    pub(crate) host: Option<String>,
    pub(crate) class: Class,
    /// Let in without a key, by what a dialect has checked.
    pub(crate) guest: bool,
}

impl Caller {
    /// Refuses everybody but keys of the whole fleet.
    pub(crate) fn admin(&self) -> Result<&Who> {
        match self.who.scope {
            Scope::Admin => Ok(&self.who),
            _ => Err(Refusal::denied("this needs a key of the whole fleet (scope `admin`)")),
        }
    }
}

/// Handlers that take a [`Caller`] can't be reached without a key.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Refusal::unauthorized("the request carries no key"))
    }
}

/// Marks an answer that a desk gave, which is passed on as it is.
#[derive(Clone, Copy)]
pub(crate) struct PassedOn;

/// The native API alone, for dialects that are built on it.
#[derive(Clone)]
pub(crate) struct Base(pub(crate) Router);

/// Everything that the gateway answers.
pub(crate) fn router(app: App) -> Router {
    let native = || v1::router().merge(vm::router()).merge(proxy::router());
    let base = Extension(Base(native().split_for_parts().0.fallback(refusal::no_such_path).with_state(app.clone())));
    let (routes, _) = native().merge(computer::router().layer(base.clone())).split_for_parts();
    let routes = routes
        .merge(mcp::router().layer(base))
        .merge(dialects::router())
        .merge(page::router())
        .route("/v1/openapi.json", axum::routing::get(openapi::get));
    routes.fallback(refusal::no_such_path).with_state(app)
}

pub(crate) fn service(app: App) -> Answer {
    let router = router(app.clone());
    Arc::new(move |peer, request| answer(app.clone(), router.clone(), peer, request).boxed())
}

pub(crate) async fn answer(app: App, router: Router, peer: Peer, mut request: Request) -> Response {
    let start = Instant::now();
    normalise(&mut request);
    dialects::lead(&mut request);
    let plane = e2b::Plane::of(&request);
    // Requests to E2B's sandboxes carry no key, and what looks like one is for a program there.
    let keyless = plane.as_ref().is_some_and(|plane| !plane.has_key());
    let key = if keyless { None } else { credentials::take(&mut request) };
    let id = request_id(request.headers());
    if !keyless && !class::of(request.method(), request.uri().path()).0.is_passed_on() {
        credentials::strip_query(&mut request);
    }
    let (class, desk) = class::of(request.method(), request.uri().path());
    let span = tracing::info_span!(
        "request",
        otel.kind = "server",
        otel.name = class.name(),
        id = id.to_str().unwrap_or_default(),
        method = %request.method(),
        path = %credentials::redacted(request.uri().path()),
        desk = desk.map(|desk| credentials::redacted(desk).into_owned()),
        key = field::Empty,
        http.response.status_code = field::Empty,
    );
    telemetry::follow(&span, request.headers());
    let mut response = {
        let work = steps(&app, router, peer, request, key, class, plane, start);
        work.instrument(span).await
    };
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

#[expect(clippy::too_many_arguments)]
async fn steps(
    app: &App,
    router: Router,
    peer: Peer,
    request: Request,
    key: Option<(Secret, Place)>,
    class: Class,
    plane: Option<e2b::Plane>,
    start: Instant,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = app.pages.trusted(request.headers());
    let (mut parts, body) = request.into_parts();
    let (body, fate) = hotdesk_serve::paced(body);
    let upgrades = parts.headers.contains_key(header::UPGRADE);

    let mut key_id = None;
    let mut response = if origin.is_some() && origin::asks_first(&method, &parts.headers) {
        origin::permission(&parts.headers)
    } else if let Some(plane) = plane.clone().filter(|plane| !plane.has_key()) {
        guarded(e2b::data(app.clone(), peer, plane, Request::from_parts(parts, body))).await
    } else {
        match admit(app, peer, key, class, &mut parts).await {
            Err(refusal) => {
                // Given back, so that the client can be heard out.
                drop(body);
                if plane.is_some() { e2b::refused(refusal) } else { refusal.into_response() }
            }
            Ok(caller) => {
                if let Some(caller) = caller {
                    Span::current().record("key", caller.who.key.as_str());
                    key_id = Some(caller.who.key.clone());
                    if plane.is_some() {
                        guarded(e2b::control(app.clone(), caller, Request::from_parts(parts, body))).await
                    } else {
                        parts.extensions.insert(caller);
                        route(router, Request::from_parts(parts, body)).await
                    }
                } else {
                    route(router, Request::from_parts(parts, body)).await
                }
            }
        }
    };
    if response.extensions().get::<PassedOn>().is_none() && plane.is_none() {
        response = refusal::from_text(&method, &path, response).await;
        response = dialects::shape(&path, response).await;
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    let mut response = fate.settle(response, limits::DISCARD_BYTES);
    if let Some(origin) = origin {
        origin::allow(&mut response, origin);
    }
    let status = response.status().as_u16();
    metrics::answered(class, &method, status, start.elapsed());
    Span::current().record("http.response.status_code", status);
    audit(app, key_id.as_deref(), &method, &path, status, class, upgrades, peer);
    tracing::debug!(status, us = start.elapsed().as_micros() as u64, "answered");
    response
}

/// Who asks; none where no key is needed.
async fn admit(app: &App, peer: Peer, key: Option<(Secret, Place)>, class: Class, request: &mut Parts) -> Result<Option<Caller>> {
    if let Some(admitted) = dialects::admit(app, peer, &key, class, request).await {
        return admitted.map(Some);
    }
    let (path, headers) = (request.uri.path(), &request.headers);
    if !class.is_passed_on() && has_nul(&request.uri) {
        return Err(Refusal::invalid("the address holds a zero byte"));
    }
    let for_all = OPEN.contains(&path) || page::owns(&request.method, path);
    let open = for_all || (path == METRICS && app.config.open_metrics && peer.is_local());
    let Some((secret, place)) = key.filter(|_| !for_all) else {
        if peer.machine {
            app.pages.check(headers, &request.method)?;
        }
        if open {
            app.limits.keyless(peer.network())?;
            return Ok(None);
        }
        app.limits.failure(peer.network())?;
        return Err(Refusal::unauthorized("the request carries no key"));
    };
    let who = match app.fleet.who(secret.reveal()).await {
        Ok(who) => who,
        Err(hotdesk_fleet::Error::Store(reason)) => return Err(hotdesk_fleet::Error::Store(reason).into()),
        Err(error) => {
            app.limits.failure(peer.network())?;
            return Err(Refusal::unauthorized(error.to_string()));
        }
    };
    match class.is_passed_on() {
        true => app.limits.desks(&who.key)?,
        false => app.limits.control(&who.key)?,
    }
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    Ok(Some(Caller { who, secret, place, peer, host, class, guest: false }))
}

async fn route(router: Router, request: Request) -> Response {
    let answered = async {
        match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    guarded(answered).await
}

/// A panic ends its request, not the connection.
async fn guarded(work: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(response) => response,
        Err(cause) => {
            let reason = cause.downcast_ref::<String>().map(String::as_str);
            let reason = reason.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            Refusal::internal(format!("a request panicked: {reason}")).into_response()
        }
    }
}

#[expect(clippy::too_many_arguments)]
fn audit(app: &App, key: Option<&str>, method: &Method, path: &str, status: u16, class: Class, upgrades: bool, peer: Peer) {
    let tunnel = upgrades && status == StatusCode::SWITCHING_PROTOCOLS.as_u16();
    let due = match key {
        // Those that the limit let through; the rest got 429.
        None => status == StatusCode::UNAUTHORIZED.as_u16(),
        Some(_) if method.is_safe() => tunnel,
        // What it is about is noted where it is done.
        Some(_) if path == mcp::PATH => false,
        Some(key) if class.is_passed_on() => app.audit.is_due(key, class::of(method, path).1.unwrap_or_default()),
        Some(_) => true,
    };
    if due {
        let path = credentials::redacted(path);
        app.audit.write(key.unwrap_or(crate::audit::NOBODY), method.as_str(), &path, status, peer.to_string());
    }
}

/// HTTP/2 has the host in the address, as have requests to proxies; from here on it is a header.
fn normalise(request: &mut Request) {
    if let Some(authority) = request.uri().authority()
        && !request.headers().contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
}

/// PostgreSQL has no zero bytes in texts, and nothing that we name has one.
fn has_nul(uri: &Uri) -> bool {
    let address = uri.path_and_query().map_or("", |p| p.as_str());
    address.contains("%00")
}

/// The client's own name for the request if it has a sane one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sane = |v: &&HeaderValue| {
        let bytes = v.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= LONGEST_REQUEST_ID
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    if let Some(given) = headers.get(REQUEST_ID).filter(sane) {
        return given.clone();
    }
    HeaderValue::try_from(format!("{:016x}", rand::random::<u64>())).unwrap_or(HeaderValue::from_static("-"))
}
