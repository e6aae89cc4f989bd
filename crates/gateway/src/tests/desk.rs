//! What plays a desk: a server on a Unix socket that answers, streams, upgrades, dawdles and breaks off.

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::io;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub(super) struct FakeDesk {
    task: AbortHandle,
    pub(super) state: Arc<Played>,
}

/// What tests see and move.
#[derive(Default)]
pub(super) struct Played {
    secret: String,
    /// Connections that were taken.
    pub(super) connections: AtomicUsize,
    /// Connections that are open.
    pub(super) open: AtomicUsize,
    /// Requests that came, but for those by which the fleet looks after its desks.
    pub(super) asked: AtomicUsize,
    /// Requests to `/v1/count` and `/v1/break`.
    pub(super) count: AtomicUsize,
    /// What `echo` was asked: method, path and body.
    pub(super) echoed: Mutex<Vec<(String, String, Value)>>,
    /// Requests to `/v1/slow` and `/v1/stream` that are under way.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Lets `/v1/slow` and the next part of `/v1/stream` go.
    pub(super) go: Arc<Notify>,
    /// So many more times `/v1/break` breaks off.
    pub(super) breaks: AtomicUsize,
    /// The whole desk is dead.
    dead: CancellationToken,
    /// The picture.
    pub(super) picture: watch::Sender<Bytes>,
}

impl FakeDesk {
    pub(super) fn start(path: &FilePath, secret: &str) -> Arc<Self> {
        let listener = UnixListener::bind(path).unwrap();
        let state = Arc::new(Played { secret: secret.into(), ..Played::default() });
        state.picture.send_replace(Bytes::from(vec![7; 300 << 10]));
        let app = routes(state.clone());
        let playing = state.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                playing.connections.fetch_add(1, Ordering::SeqCst);
                let (app, open, cut) = (app.clone(), Counted::new(&playing), Arc::<AtomicBool>::default());
                let dead = Box::pin(playing.dead.clone().cancelled_owned());
                connections.spawn(async move {
                    let _open = open;
                    let service = TowerToHyperService::new(app.layer(Extension(cut.clone())));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(Fragile { stream, cut, dead }), service).with_upgrades().await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Arc::new(Self { task: task.abort_handle(), state })
    }

    /// As a kill: the socket's file stays, everything ends.
    pub(super) fn stop(&self) {
        self.task.abort();
        self.state.dead.cancel();
    }
}

struct Counted(Arc<Played>);

impl Counted {
    fn new(played: &Arc<Played>) -> Self {
        played.open.fetch_add(1, Ordering::SeqCst);
        Self(played.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a request as long as it is under way.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(played: &Played) -> Self {
        played.waiting.fetch_add(1, Ordering::SeqCst);
        Self(played.waiting.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn routes(state: Arc<Played>) -> Router {
    let closed = Router::new()
        .route(
            "/v1/activity",
            get(async || Json(json!({"screen_changed": 0.0, "viewers": 0, "commands": 0, "recording": false}))),
        )
        .route("/v1/screenshot", get(screenshot))
        .route("/v1/count", post(count))
        .route("/v1/break", any(break_off))
        .route("/v1/slow", any(slow))
        .route("/v1/stream", get(stream))
        .route("/v1/back", post(back))
        .route("/v1/status/{code}", any(async |Path(code): Path<u16>| (StatusCode::from_u16(code).unwrap(), "as you wish")))
        .route("/v1/view", get(view))
        .route("/v1/ports/{port}", get(port))
        .route("/v1/kernels/{name}/execute", post(play))
        .route("/execute", post(execute))
        .fallback(echo)
        .layer(middleware::from_fn_with_state(state.clone(), guard));
    Router::new().route("/health", get(async || Json(json!({"ready": true, "stage": "ready"})))).merge(closed).with_state(state)
}

async fn guard(State(played): State<Arc<Played>>, request: Request, next: Next) -> Response {
    if request.uri().path() != "/v1/activity" {
        played.asked.fetch_add(1, Ordering::SeqCst);
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    if given != Some(&format!("Bearer {}", played.secret)) {
        return (StatusCode::UNAUTHORIZED, "the desk's secret is missing").into_response();
    }
    next.run(request).await
}

/// A kernel whose code is what it tells.
async fn play(Path(name): Path<String>, Json(code): Json<Value>) -> Response {
    match name.as_str() {
        "default" | "own" => {
            ([(header::CONTENT_TYPE, "text/event-stream")], code["code"].as_str().unwrap().to_owned()).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Everything that came.
async fn echo(State(played): State<Arc<Played>>, request: Request) -> Json<Value> {
    let headers: serde_json::Map<_, _> = request
        .headers()
        .iter()
        .filter(|(name, _)| *name != header::AUTHORIZATION)
        .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap())))
        .collect();
    let (method, path) = (request.method().to_string(), request.uri().to_string());
    let body = axum::body::to_bytes(request.into_body(), 64 << 20).await.unwrap();
    let read = serde_json::from_slice(&body).unwrap_or_default();
    played.echoed.lock().unwrap().push((method.clone(), path.clone(), read));
    Json(json!({"method": method, "path": path, "headers": headers, "body": String::from_utf8_lossy(&body), "bytes": body.len()}))
}

async fn screenshot(State(played): State<Arc<Played>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/png")], played.picture.borrow().clone())
}

async fn count(State(played): State<Arc<Played>>) -> Json<usize> {
    Json(played.count.fetch_add(1, Ordering::SeqCst) + 1)
}

/// Reads the request and closes the connection instead of an answer, where it is told to.
async fn break_off(
    State(played): State<Arc<Played>>,
    Extension(cut): Extension<Arc<AtomicBool>>,
    request: Request,
) -> &'static str {
    let _ = axum::body::to_bytes(request.into_body(), 64 << 20).await;
    played.count.fetch_add(1, Ordering::SeqCst);
    if played.breaks.load(Ordering::SeqCst) > 0 {
        played.breaks.fetch_sub(1, Ordering::SeqCst);
        cut.store(true, Ordering::SeqCst);
    }
    "whole"
}

/// A connection that can be cut: nothing more is written. It ends with the desk, also when it was upgraded.
struct Fragile {
    stream: UnixStream,
    cut: Arc<AtomicBool>,
    dead: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl AsyncRead for Fragile {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.dead.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Fragile {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.load(Ordering::SeqCst) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn slow(State(played): State<Arc<Played>>) -> &'static str {
    let _waiting = Waiting::new(&played);
    played.go.notified().await;
    "at last"
}

/// A part whenever a test says so, for ever.
async fn stream(State(played): State<Arc<Played>>) -> Body {
    let waiting = Waiting::new(&played);
    let go = played.go.clone();
    Body::from_stream(futures_util::stream::unfold((0, waiting), move |(n, waiting)| {
        let go = go.clone();
        async move {
            if n > 0 {
                go.notified().await;
            }
            Some((Ok::<_, std::io::Error>(Bytes::from(format!("part {n}\n"))), (n + 1, waiting)))
        }
    }))
}

/// Sends back what comes, as it comes.
async fn back(request: Request) -> Body {
    Body::from_stream(request.into_body().into_data_stream())
}

async fn view(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket| {
        while let Some(Ok(message)) = socket.next().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

async fn port(Path(port): Path<u16>, mut request: Request) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    let Ok(mut inner) = TcpStream::connect(("127.0.0.1", port)).await else {
        let problem = json!({"code": "unavailable", "status": 503, "title": "x", "detail": format!("port {port} of the desk: refused"), "retry": true});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response();
    };
    tokio::spawn(async move {
        let mut outer = TokioIo::new(upgrade.await.unwrap());
        let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
    });
    (StatusCode::SWITCHING_PROTOCOLS, [(header::CONNECTION, "upgrade"), (header::UPGRADE, "tcp")]).into_response()
}

/// Knows `echo WORD…` and nothing else.
async fn execute(Json(wanted): Json<Value>) -> Response {
    let line = match &wanted["command"] {
        Value::String(line) => line.clone(),
        words => words.as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect::<Vec<_>>().join(" "),
    };
    match line.strip_prefix("echo ") {
        Some(said) => {
            Json(json!({"status": "success", "output": format!("{said}\n"), "error": "", "returncode": 0})).into_response()
        }
        None => {
            (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({"status": "error", "message": "no such program"}))).into_response()
        }
    }
}
