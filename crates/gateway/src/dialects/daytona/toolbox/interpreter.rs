//! Python that remembers: a context is a kernel of the desk.

use super::super::desk::{Desk, encoded};
use super::super::reply::{Failure, Reply, ok};
use super::super::{Call, api};
use crate::guest;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{Method, StatusCode};
use hotdesk_api::kernel::{ExecuteCode, Kernel, KernelEvent, KernelList, NewKernel, Outcome};
use hotdesk_desk_client::Events;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Of the desk's own API.
const KERNELS: &str = "/v1/kernels";
/// The context of whoever names none.
const DEFAULT: &str = "default";
/// How long code may take that has no limit of its own.
const USUAL: Duration = Duration::from_secs(600);
/// A client that opens a socket says soon what it wants.
const FIRST_WORD: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(20);
/// Daytona's own number.
const TIMED_OUT: u16 = 4008;

pub(crate) async fn answer(mut call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::POST, ["context"]) => {
            let wanted: NewContext = call.json().await?;
            if let Some(other) = wanted.language.filter(|language| language != "python") {
                let other = other.escape_default();
                return Err(Failure::bad_request(format!("bad request: unsupported language: {other} (only python is)")));
            }
            let new = NewKernel { cwd: wanted.cwd.filter(|cwd| !cwd.is_empty()), ..NewKernel::default() };
            let kernel: Kernel = desk.post(KERNELS, &new).await?;
            ok(context(&kernel))
        }
        (&Method::GET, ["context"]) => {
            let list: KernelList = desk.get(KERNELS).await?;
            let named = list.kernels.iter().filter(|kernel| kernel.name != DEFAULT);
            ok(json!({"contexts": named.map(context).collect::<Vec<_>>()}))
        }
        (&Method::DELETE, ["context", DEFAULT]) => Err(Failure::bad_request("bad request: the default context can't be deleted")),
        (&Method::DELETE, ["context", id]) => {
            desk.delete(&path(id)).await.map_err(|failure| match failure.status() {
                StatusCode::NOT_FOUND => {
                    Failure::not_found(format!("not found: context {}", id.escape_default())).daemon("PROCESS_NOT_FOUND")
                }
                _ => failure,
            })?;
            ok(json!({"message": "Context deleted successfully"}))
        }
        (&Method::GET, ["execute"]) => {
            let upgrade = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
            let upgrade = upgrade.map_err(|e| Failure::bad_request(format!("bad request: {}", e.body_text())))?;
            let upgrade = super::pty::first_protocol(&call.parts.headers, upgrade);
            Ok(upgrade.on_upgrade(move |socket| async move {
                let busy = desk.app.fleet.busy(&desk.id, "request");
                tokio::select! {
                    () = execute(socket, &desk) => {}
                    _ = guest::right_ends(&desk.app, &desk.caller) => {}
                }
                drop(busy);
            }))
        }
        _ => Err(api::nothing(&call)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NewContext {
    cwd: Option<String>,
    language: Option<String>,
}

fn path(name: &str) -> String {
    format!("{KERNELS}/{}", encoded(name))
}

fn context(kernel: &Kernel) -> Value {
    let created = i64::try_from(kernel.started_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    json!({
        "id": kernel.name,
        "cwd": kernel.cwd,
        "language": "python",
        "active": true,
        "createdAt": created.unwrap_or_default().to_string(),
    })
}

// ── code ──

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Execute {
    code: String,
    context_id: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<f64>,
}

/// How a conversation ends.
struct End(u16, String);

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self(close_code::ERROR, failure.message().to_owned())
    }
}

async fn execute(mut socket: WebSocket, desk: &Desk) {
    let End(code, mut reason) = match converse(&mut socket, desk).await {
        Ok(()) => End(close_code::NORMAL, String::new()),
        Err(end) => end,
    };
    // A close frame holds no more.
    while reason.len() > 120 {
        reason.pop();
    }
    if socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await.is_ok() {
        let _ = timeout(PING, async { while let Some(Ok(_)) = socket.recv().await {} }).await;
    }
}

async fn converse(socket: &mut WebSocket, desk: &Desk) -> Result<(), End> {
    let wanted = match timeout(FIRST_WORD, socket.recv()).await {
        Ok(Some(Ok(Message::Text(text)))) => hotdesk_api::json::from_slice::<Execute>(text.as_bytes()),
        Ok(Some(Ok(Message::Binary(bytes)))) => hotdesk_api::json::from_slice(&bytes),
        _ => return Err(End(close_code::PROTOCOL, "nothing was asked".into())),
    };
    let wanted = wanted.map_err(|e| End(close_code::PROTOCOL, format!("invalid JSON payload: {e}")))?;
    let refused = |why: &str| End(close_code::POLICY, why.to_owned());
    if wanted.code.is_empty() {
        return Err(refused("code is required"));
    }
    let limit = match wanted.timeout {
        None => Some(USUAL),
        Some(0.0) => None,
        Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|_| refused("timeout must be 0 or more"))?),
    };
    let run = ExecuteCode {
        code: wanted.code,
        env: wanted.envs.unwrap_or_default(),
        timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        result: false,
    };
    let events = match &wanted.context_id {
        Some(id) => start(desk, id, &run).await.map_err(|failure| match failure.status() {
            StatusCode::NOT_FOUND => refused(&format!("context not found: {id}")),
            _ => failure.into(),
        })?,
        None => start_in_default(desk, &run).await?,
    };
    follow(socket, events).await
}

async fn start(desk: &Desk, kernel: &str, run: &ExecuteCode) -> Reply<Events<Body>> {
    let path = format!("{}/execute", path(kernel));
    desk.client().post_events(&path, run).await.map_err(|e| desk.failure(e))
}

/// In the default context, which is made when it is first used.
async fn start_in_default(desk: &Desk, run: &ExecuteCode) -> Reply<Events<Body>> {
    match start(desk, DEFAULT, run).await {
        Err(failure) if failure.status() == StatusCode::NOT_FOUND => {}
        started => return started,
    }
    let new = NewKernel { name: Some(DEFAULT.into()), ..NewKernel::default() };
    match desk.post::<Kernel>(KERNELS, &new).await {
        // Another client was faster.
        Err(failure) if failure.status() != StatusCode::CONFLICT => return Err(failure),
        _ => {}
    }
    start(desk, DEFAULT, run).await
}

/// Passes on what the code does, until it ends. Whoever leaves before makes the desk interrupt it.
async fn follow(socket: &mut WebSocket, mut events: Events<Body>) -> Result<(), End> {
    let mut ping = tokio::time::interval(PING);
    loop {
        let message = tokio::select! {
            event = events.next_json() => match event.ok().flatten() {
                Some(KernelEvent::End { outcome, reason }) => return finish(socket, outcome, reason).await,
                Some(event) => match chunk(event) {
                    Some(chunk) => Message::Text(chunk.to_string().into()),
                    None => continue,
                },
                None => return finish(socket, Outcome::Died, None).await,
            },
            heard = socket.recv() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                Some(Ok(_)) => continue,
            },
            _ = ping.tick() => Message::Ping(Default::default()),
        };
        if socket.send(message).await.is_err() {
            return Ok(());
        }
    }
}

async fn finish(socket: &mut WebSocket, outcome: Outcome, reason: Option<String>) -> Result<(), End> {
    match outcome {
        Outcome::Done => {
            let completed = json!({"type": "control", "text": "completed"});
            // Whoever has left need not know.
            let _ = socket.send(Message::Text(completed.to_string().into())).await;
            Ok(())
        }
        Outcome::TimedOut => Err(End(TIMED_OUT, String::new())),
        Outcome::Died => Err(End(close_code::AWAY, reason.unwrap_or_else(|| "the interpreter ended".into()))),
    }
}

/// What code does, in Daytona's form, if it has one.
fn chunk(event: KernelEvent) -> Option<Value> {
    match event {
        KernelEvent::Stdout { data } => Some(json!({"type": "stdout", "text": data})),
        KernelEvent::Stderr { data } => Some(json!({"type": "stderr", "text": data})),
        KernelEvent::Error { name, value, traceback } => {
            Some(json!({"type": "error", "name": name, "value": value, "traceback": traceback}))
        }
        KernelEvent::Result { .. } | KernelEvent::End { .. } => None,
    }
}
