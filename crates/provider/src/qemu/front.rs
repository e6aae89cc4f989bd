//! What the world sees of a machine: the guest's server, and us as long as there is none.
//!
//! - Until the guest has settled, `/health` tells the stage, `/` shows it to people, everything else is 503 with a time to ask again.
//! - A guest with our own server then gets each connection as it is: it speaks everything itself.
//! - A guest with another's server is asked for what it knows; the token is checked here, and `/health`, the live view
//!   (`/v1/view`, from QEMU's own), `/v1/screenshot`, `/v1/activity` and ports (`/v1/ports/N`) are answered here.

use super::guest::{Kind, PORT, Status};
use super::vm::{self, Vm};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use futures_util::{SinkExt, StreamExt, future};
use hotdesk_api::Problem;
use hotdesk_api::activity::Activity;
use hotdesk_desk_client::headers;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

/// Seconds after which to ask again for a guest that starts.
const RETRY_S: &str = "2";

/// What is known about the machine, for whoever connects. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front(Arc<Inner>);

struct Inner {
    status: watch::Receiver<Status>,
    /// The machine, once there is one.
    vm: watch::Receiver<Option<Arc<Vm>>>,
    /// What opens a guest that has no token itself.
    secret: Option<String>,
    viewers: AtomicU32,
    commands: AtomicU32,
    /// The screen when activity was asked for the last time.
    seen: Mutex<Vec<u8>>,
}

impl Front {
    pub(crate) fn new(status: watch::Receiver<Status>, vm: watch::Receiver<Option<Arc<Vm>>>, secret: Option<String>) -> Self {
        let (viewers, commands, seen) = (AtomicU32::new(0), AtomicU32::new(0), Mutex::default());
        Self(Arc::new(Inner { status, vm, secret, viewers, commands, seen }))
    }

    pub(super) fn status(&self) -> Status {
        self.0.status.borrow().clone()
    }

    /// Whether a request may see the guest: with the token in its head or, for browsers, in its address.
    pub(super) fn lets_in(&self, request: &Request) -> bool {
        let Some(secret) = &self.0.secret else { return true };
        let query = request.uri().query().unwrap_or_default();
        let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        is_let_in(request, secret) || given.is_some_and(|given| is_same(given, secret))
    }

    /// Gives a request the token that the desk inside asks for.
    pub(super) fn open(&self, request: &mut Request) {
        if let Some(value) = self.0.secret.as_ref().and_then(|secret| HeaderValue::try_from(format!("Bearer {secret}")).ok()) {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
    }

    /// Serves one connection of a browser that wants to see the screen.
    pub(crate) async fn attend_screen(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service =
            hyper_util::service::TowerToHyperService::new(Router::new().fallback(super::screen::answer).with_state(self));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let _ = connection.with_upgrades().await;
    }

    /// The machine, if its guest has settled.
    pub(super) fn guest(&self) -> Option<(Arc<Vm>, Kind)> {
        let status = self.status();
        let vm = self.0.vm.borrow().clone()?;
        status.guest.filter(|_| status.ready).map(|kind| (vm, kind))
    }

    /// Serves one connection to the guest's server.
    pub(crate) async fn attend(self, mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        if let Some((vm, Kind::Desk)) = self.guest() {
            if let Ok(mut guest) = vm.connect(PORT).await {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut guest).await;
            }
            return;
        }
        let service = hyper_util::service::TowerToHyperService::new(Router::new().fallback(answer).with_state(self));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        if let Err(e) = connection.with_upgrades().await {
            tracing::trace!(error = %e, "a connection ended");
        }
    }

    /// Serves one connection to another port of the guest.
    pub(crate) async fn attend_port(self, mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, port: u16) {
        match self.guest() {
            Some((vm, Kind::Other)) => {
                if let Ok(mut guest) = vm.connect(port).await {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut guest).await;
                }
            }
            Some((vm, Kind::Desk)) => {
                // What listens on the guest's loopback is reached through the desk inside.
                let Ok(inside) = vm.connect(PORT).await else { return };
                let secret = self.0.secret.as_deref();
                if let Ok(guest) = hotdesk_desk_client::enter_port(inside, port, |headers| headers::open(headers, secret)).await {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut TokioIo::new(guest)).await;
                }
            }
            None => {
                let service = hyper_util::service::TowerToHyperService::new(Router::new().fallback(not_yet).with_state(self));
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        }
    }
}

async fn not_yet(State(front): State<Front>) -> Response {
    starting(&front.status(), true)
}

async fn answer(State(front): State<Front>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let status = front.status();
    let Some((vm, kind)) = front.guest() else {
        return match path.as_str() {
            "/health" => health(&status),
            _ => starting(&status, path == "/"),
        };
    };
    if kind == Kind::Desk {
        return pass(&vm, PORT, request).await;
    }
    if path == "/health" {
        return health(&status);
    }
    if let Some(secret) = &front.0.secret
        && !is_let_in(&request, secret)
    {
        return problem(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "The machine's token is missing",
            "send `Authorization: Bearer TOKEN`",
        );
    }
    match (request.method(), path.as_str()) {
        (&Method::GET, "/v1/view" | "/v1/view/websockify" | "/websockify") => view(front, vm, request).await,
        (&Method::GET, "/v1/screenshot") => match vm.screenshot().await {
            Ok(picture) => ([(header::CONTENT_TYPE, "image/png")], picture).into_response(),
            Err(e) => problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "There is no picture", &e.to_string()),
        },
        (&Method::GET, "/v1/activity") => axum::Json(activity(&front, &vm).await).into_response(),
        (&Method::GET, path) if path.starts_with("/v1/ports/") => match path.trim_start_matches("/v1/ports/").parse() {
            Ok(port) => port_tunnel(&vm, port, request).await,
            Err(_) => problem(StatusCode::BAD_REQUEST, "invalid", "That is no port", "ports go from 1 to 65535"),
        },
        (_, path) if path.starts_with("/v1/") => problem(
            StatusCode::NOT_IMPLEMENTED,
            "unsupported",
            "The guest's server does not know this",
            "the machine's disk has a server of its own at `/`; `/v1/view`, `/v1/screenshot` and `/v1/ports` are added to it",
        ),
        _ => {
            let _work = Counted::new(&front.0.commands);
            without_secret(&vm, request).await
        }
    }
}

/// Counts something for as long as it lives.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_let_in(request: &Request, secret: &str) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    is_same(given, secret)
}

/// Takes the same time for all that are equally long.
fn is_same(given: &str, secret: &str) -> bool {
    given.len() == secret.len() && given.bytes().zip(secret.bytes()).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn health(status: &Status) -> Response {
    let code = if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, axum::Json(status)).into_response()
}

pub(super) fn problem(status: StatusCode, code: &str, title: &str, detail: &str) -> Response {
    let problem = Problem {
        code: code.into(),
        status: status.as_u16(),
        title: title.into(),
        detail: detail.into(),
        hint: None,
        retry: status == StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = (status, axum::Json(problem)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// The answer of a machine whose guest is not there yet.
pub(super) fn starting(status: &Status, page: bool) -> Response {
    let mut response = if page {
        let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let text = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"{RETRY_S}\">\
             <title>{stage}</title><body style=\"font-family:sans-serif;margin:3em\"><h1>{stage}</h1><p>{detail}</p></body></html>",
            stage = safe(&status.stage),
            detail = safe(&status.detail),
        );
        (StatusCode::SERVICE_UNAVAILABLE, Html(text)).into_response()
    } else {
        let detail = format!("{}: {}", status.stage, status.detail);
        problem(StatusCode::SERVICE_UNAVAILABLE, "starting", "The machine is not ready", &detail)
    };
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_S));
    // The next connection may already be the guest's.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn activity(front: &Front, vm: &Vm) -> Activity {
    let now = vm.screenshot().await.unwrap_or_default();
    let mut seen = front.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
    // Which part of it changed is not told by a picture that is compressed; a caret or a clock changes its size by little.
    let changed = match (seen.len(), now.len()) {
        (0, _) => 0.0,
        (before, after) => before.abs_diff(after) as f32 / before.max(1) as f32,
    };
    *seen = now;
    Activity {
        screen_changed: changed.min(1.0),
        viewers: front.0.viewers.load(Ordering::Relaxed),
        commands: front.0.commands.load(Ordering::Relaxed),
        recording: false,
        driver: Default::default(),
    }
}

/// The machine's own screen, live.
pub(super) async fn view(front: Front, vm: Arc<Vm>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response(),
    };
    upgrade.protocols(["binary"]).on_upgrade(async move |socket| {
        let path = vm.view();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else { return };
        let Ok(mut screen) = vm::connect_below(folder, name).await else { return };
        let _viewer = Counted::new(&front.0.viewers);
        let (sink, stream) = socket.split();
        let received = stream.filter_map(|message| {
            future::ready(match message {
                Ok(Message::Binary(bytes)) => Some(Ok(bytes)),
                Ok(Message::Close(_)) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => None,
                Err(e) => Some(Err(io::Error::other(e))),
            })
        });
        let sent =
            sink.sink_map_err(io::Error::other).with(|bytes: Bytes| future::ready(Ok::<_, io::Error>(Message::Binary(bytes))));
        let mut viewer = tokio::io::join(StreamReader::new(received), SinkWriter::new(CopyToBytes::new(sent)));
        let _ = tokio::io::copy_bidirectional(&mut viewer, &mut screen).await;
    })
}

/// A raw connection to a port of the guest.
async fn port_tunnel(vm: &Vm, port: u16, mut request: Request) -> Response {
    let asked = request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"tcp"));
    if !asked {
        return problem(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade",
            "A port is no page",
            "send `Connection: Upgrade` and `Upgrade: tcp`",
        );
    }
    let mut guest = match vm.connect(port).await {
        Ok(guest) => guest,
        Err(e) => return problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The port can't be reached", &e.to_string()),
    };
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(client) = client.await {
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut guest).await;
        }
    });
    let upgraded = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "tcp")];
    (StatusCode::SWITCHING_PROTOCOLS, upgraded, Body::empty()).into_response()
}

async fn without_secret(vm: &Vm, mut request: Request) -> Response {
    request.headers_mut().remove(header::AUTHORIZATION);
    pass(vm, PORT, request).await
}

/// Passes a request on, and whatever becomes of it back.
pub(super) async fn pass(vm: &Vm, port: u16, mut request: Request) -> Response {
    let lost = |e: &dyn std::fmt::Display| {
        let detail = format!("the guest's server does not answer: {e}");
        problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The guest's server is away", &detail)
    };
    let stream = match vm.connect(port).await {
        Ok(stream) => stream,
        Err(e) => return lost(&e),
    };
    let mut sender = match hotdesk_desk_client::handshake(TokioIo::new(stream), ()).await {
        Ok(sender) => sender,
        Err(e) => return lost(&e),
    };
    let client = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let mut answer = match sender.send_request(request).await {
        Ok(answer) => answer,
        Err(e) => return lost(&e),
    };
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (answer.status(), client) {
        let guest = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(client), Ok(guest)) = tokio::join!(client, guest) {
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(guest)).await;
            }
        });
    }
    // A hop's own: how the body comes is decided anew.
    answer.headers_mut().remove(header::TRANSFER_ENCODING);
    answer.map(Body::new)
}
