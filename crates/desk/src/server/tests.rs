//! Tests of the server as a whole: real requests to a desk whose display does not exist.

mod any_input;
mod files;
mod frame;
mod freeze;
mod git;
mod kernels;
mod ports;
mod processes;
mod terminals;

use crate::config::{AttachTarget, Config};
use crate::place::{Display, Place};
use crate::server::listen::Address;
use crate::server::{Server, app};
use crate::{Desk, Error};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A display that nobody starts.
const NO_DISPLAY: u16 = 279;

/// A place whose home is `home`, on a display that does not exist.
pub(crate) fn place(home: &Path) -> Place {
    let env = [
        ("HOME", home.to_string_lossy().into_owned()),
        ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
    ];
    Place {
        display: Display { number: NO_DISPLAY, cookie: None },
        home: home.to_owned(),
        runtime_dir: home.join(".run"),
        bus: String::new(),
        env: env.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>(),
    }
}

/// Settings for a desk at `home` that takes any free port.
fn config(home: &Path) -> Config {
    Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        attach: Some(AttachTarget(NO_DISPLAY)),
        home: Some(home.to_owned()),
        ..Config::default()
    }
}

/// A desk in a directory of its own, asked without a network.
struct TestDesk {
    home: TempDir,
    desk: Desk,
    app: Router,
}

impl TestDesk {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let desk = desk(config(home.path()), home.path()).await;
        Self { app: app(desk.clone()), desk, home }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 64 << 20).await.unwrap().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.ask(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    async fn put(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.ask(Request::put(path).body(body.into()).unwrap()).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        let request = Request::post(path).header("content-type", "application/json");
        self.ask(request.body(Body::from(body.to_string())).unwrap()).await
    }
}

/// A desk whose sockets and secrets lie in `home`.
async fn desk(config: Config, home: &Path) -> Desk {
    let mut desk = Desk::start(config).await.unwrap();
    let place = std::sync::Arc::make_mut(&mut desk.place);
    place.runtime_dir = home.join(".run");
    desk
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The value of a good answer.
    #[track_caller]
    fn good(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Asserts a problem of this status and code, complete in all its parts.
    #[track_caller]
    fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!((self.status.as_u16(), self.header("content-type")), (status, "application/problem+json"), "{}", self.text());
        let problem: hotdesk_api::Problem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!((problem.status, problem.code.as_str()), (status, code), "{problem:?}");
        assert!(!problem.title.is_empty() && !problem.detail.is_empty(), "{problem:?}");
        problem.detail
    }
}

/// The same desk behind a real socket.
struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn new(desk: Desk) -> Self {
        let server = Server::bind(desk).await.unwrap();
        let Some(Address::Tcp(address)) = server.addresses().next().cloned() else { panic!("no address") };
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        Self { address, stop, running }
    }

    async fn socket(&self, path: &str) -> Result<Socket, tokio_tungstenite::tungstenite::Error> {
        let url = format!("ws://{}{path}", self.address);
        tokio_tungstenite::connect_async(url).await.map(|(socket, _)| socket)
    }
}

type Socket = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

#[test]
fn errors_are_cheap_to_carry() {
    assert!(size_of::<Error>() <= 96);
}
