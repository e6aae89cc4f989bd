//! The way of every request, in layers:
//!
//! ```text
//!   connection    accepted, decrypted, cut into requests                                   connection.rs
//!   credentials   the key and the session are found and taken out                          credentials.rs, session.rs
//!   route         what is asked, of which desk, by which right: read once                  route.rs, dialects.rs
//!   admission     whose key it is, or what guest; how often; from which page               admission.rs, guest.rs
//!   handler       the dialect answers; a panic ends its request only                       dialects/, v1/, proxy/
//!   outcome       the refusal in the dialect's form, what browsers are told, metrics,
//!                 the audit log                                                            shield.rs, origin.rs, metrics.rs, audit.rs
//! ```
//!
//! Nothing reaches a desk but by a [`Caller`], and only admission makes one.

use crate::admission::{self, Shown};
use crate::app::App;
use crate::connection::Answer;
use crate::credentials::{self, Place, Secret};
use crate::guest::Guest;
use crate::listen::Peer;
use crate::refusal::{self, Refusal, Result};
use crate::route::{Class, Right, Route};
use crate::{audit, dialects, forwarded, limits, metrics, origin, session, shield, telemetry};
use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::Who;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tracing::{Instrument, Span, field};

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
    pub(crate) guest: Option<Guest>,
    /// Signed in at the dashboard: the key is that of the session.
    pub(crate) session: Option<session::Id>,
}

impl Caller {
    /// Whether the client reaches us over TLS, by ourselves or by a proxy before us.
    pub(crate) fn is_https(&self, app: &App) -> bool {
        self.peer.tls || app.public.as_ref().is_some_and(|public| public.https)
    }

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

pub(crate) fn service(app: App) -> Answer {
    let router = dialects::router(&app);
    Arc::new(move |peer, request| {
        let peer = forwarded::client(&app.config.proxies, peer, request.headers());
        answer(app.clone(), router.clone(), peer, request).boxed()
    })
}

/// Credentials and route; the rest is done within the request's span.
async fn answer(app: App, router: Router, peer: Peer, mut request: Request) -> Response {
    let start = Instant::now();
    normalise(&mut request);
    let session = session::take(request.headers_mut());
    let by_headers = dialects::by_headers(&mut request);
    let prefix = match by_headers {
        Some(_) => None,
        None => credentials::take_prefix(&mut request),
    };
    let route = by_headers.unwrap_or_else(|| dialects::by_address(&mut request));
    let key = match route.right {
        Right::Guest => {
            credentials::hide(&mut request);
            None
        }
        _ => credentials::take(&mut request, prefix),
    };
    if route.right != Right::Guest && !route.class.is_passed_on() {
        credentials::strip_query(&mut request);
    }
    request.extensions_mut().insert(peer);
    let id = request_id(request.headers());
    let span = tracing::info_span!(
        "request",
        otel.kind = "server",
        otel.name = route.class.name(),
        id = id.to_str().unwrap_or_default(),
        method = %request.method(),
        path = %credentials::redacted(request.uri().path()),
        desk = route.desk.as_deref().map(|desk| credentials::redacted(desk).into_owned()),
        key = field::Empty,
        http.response.status_code = field::Empty,
    );
    telemetry::follow(&span, request.headers());
    let mut response = {
        let work = admitted(&app, router, peer, route, Shown { key, session }, request, start);
        work.instrument(span).await
    };
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Admission, handler and outcome.
async fn admitted(
    app: &App,
    router: Router,
    peer: Peer,
    route: Route,
    shown: Shown,
    request: Request,
    start: Instant,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut origin = app.pages.trusted(request.headers());
    let nobodys = request.headers().get(header::ORIGIN).filter(|origin| *origin == "null").cloned();
    let (mut parts, body) = request.into_parts();
    let (body, fate) = hotdesk_serve::paced(body);

    let mut caller = None;
    let mut due = None;
    let mut response = if origin.is_some() && origin::asks_first(&method, &parts.headers) {
        origin::permission(&parts.headers)
    } else {
        match admission::admit(app, peer, &route, shown, &mut parts).await {
            Err(refused) => {
                // Given back, so that the client can be heard out.
                drop(body);
                refused
            }
            Ok(admitted) => {
                caller = admitted;
                match begin(app, &route, caller.as_ref(), &parts) {
                    Err(refusal) => {
                        drop(body);
                        route.dialect.refuse(&path, refusal)
                    }
                    Ok(line) => {
                        due = line;
                        // A page of a desk has nobody's origin (see `shield`), and may read what its own port answers to everybody.
                        if route.class == Class::Port && caller.as_ref().is_some_and(|caller| caller.guest.is_some()) {
                            origin = origin.or(nobodys);
                        }
                        if let Some(caller) = &caller {
                            parts.extensions.insert(caller.clone());
                        }
                        match origin.is_some() && origin::asks_first(&method, &parts.headers) {
                            true => origin::permission(&parts.headers),
                            false => guarded(route.dialect.answer(app.clone(), router, Request::from_parts(parts, body))).await,
                        }
                    }
                }
            }
        }
    };
    if response.extensions().get::<PassedOn>().is_none() {
        response = refusal::from_text(&method, &path, response).await;
        response = route.dialect.shape(&path, response).await;
    }
    shield::over(&mut response, route.own_origin);
    let mut response = fate.settle(response, limits::DISCARD_BYTES);
    if let Some(origin) = origin {
        origin::allow(&mut response, origin);
    }
    let status = response.status();
    metrics::answered(route.class, &method, status.as_u16(), start.elapsed());
    Span::current().record("http.response.status_code", status.as_u16());
    match (due, caller) {
        (Some(due), _) => due.answered(status),
        (None, None) => app.audit.stranger(&method, &path, status, peer),
        (None, Some(_)) => {}
    }
    tracing::debug!(status = status.as_u16(), us = start.elapsed().as_micros() as u64, "answered");
    response
}

/// Nothing is done for a caller before there is a place in the audit log for what is to be written down of it.
fn begin(app: &App, route: &Route, caller: Option<&Caller>, request: &Parts) -> Result<Option<audit::Due>> {
    let Some(caller) = caller else { return Ok(None) };
    Span::current().record("key", caller.who.key.as_str());
    app.audit.begin(route, caller, request)
}

/// A request of our own for a caller who was let in already: a dialect that is built on our API asks this way. Nobody is admitted,
/// limited or measured twice; what is done is in the audit log.
pub(crate) async fn within(app: &App, router: Router, caller: &Caller, mut request: Request) -> Response {
    let route = dialects::by_address(&mut request);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let caller = Caller { class: route.class, place: Place::Header, session: None, ..caller.clone() };
    let span = tracing::info_span!(
        "within",
        otel.name = route.class.name(),
        %method,
        path = %credentials::redacted(&path),
        key = field::Empty,
        http.response.status_code = field::Empty,
    );
    let work = async {
        let (mut parts, body) = request.into_parts();
        let begun = admission::fits(&route, &parts.uri).and_then(|()| begin(app, &route, Some(&caller), &parts));
        let (mut response, due) = match begun {
            Err(refusal) => (refusal.into_response(), None),
            Ok(due) => {
                parts.extensions.insert(caller.peer);
                parts.extensions.insert(caller);
                (guarded(route.dialect.answer(app.clone(), router, Request::from_parts(parts, body))).await, due)
            }
        };
        if response.extensions().get::<PassedOn>().is_none() {
            response = refusal::from_text(&method, &path, response).await;
        }
        let status = response.status();
        Span::current().record("http.response.status_code", status.as_u16());
        if let Some(due) = due {
            due.answered(status);
        }
        response
    };
    work.instrument(span).await
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

/// HTTP/2 has the host in the address, as have requests to proxies; from here on it is a header.
fn normalise(request: &mut Request) {
    if let Some(authority) = request.uri().authority()
        && !request.headers().contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    // Where both are given, the body was cut by the first (RFC 9112, 6.3), and nobody behind us may cut it by the second.
    if request.headers().contains_key(header::TRANSFER_ENCODING) {
        request.headers_mut().remove(header::CONTENT_LENGTH);
    }
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
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
