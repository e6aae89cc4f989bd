//! Python that remembers: one process of the desk for each context, which runs what it is told (`interpreter.py`).

use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, ok};
use super::super::{Call, api};
use super::stream::{Piece, Pieces};
use crate::guest;
use crate::lines::{LONGEST, Lines};
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::Method;
use bytes::Bytes;
use hotdesk_api::process::{ProcessInfo, ProcessList, SendSignal, StartProcess, WriteStdin};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

const WORKER: &str = include_str!("interpreter.py");
/// The desk's processes that are contexts have names that begin with this.
const TAG: &str = "daytona-interpreter/";
/// The context of whoever names none.
const DEFAULT: &str = "default";
/// How long code may take that has no limit of its own.
const USUAL: Duration = Duration::from_secs(600);
/// A client that opens a socket says soon what it wants.
const FIRST_WORD: Duration = Duration::from_secs(30);
/// Code that is interrupted gets so long to end; then its context is gone.
const GRACE: Duration = Duration::from_secs(2);
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
            let id = format!("{:016x}", rand::random::<u64>());
            let process = start(&desk, &id, wanted.cwd).await?;
            ok(describe(&desk, &process).await?)
        }
        (&Method::GET, ["context"]) => {
            let mut contexts = Vec::new();
            for process in all(&desk).await?.iter().filter(|process| process.running && name(process) != Some(DEFAULT)) {
                contexts.push(describe(&desk, process).await?);
            }
            ok(json!({"contexts": contexts}))
        }
        (&Method::DELETE, ["context", id]) => {
            if *id == DEFAULT {
                return Err(Failure::bad_request("bad request: the default context can't be deleted"));
            }
            let missing =
                || Failure::not_found(format!("not found: context {}", id.escape_default())).daemon("PROCESS_NOT_FOUND");
            let process = find(&desk, id).await?.ok_or_else(missing)?;
            desk.delete(&path(&process)).await?;
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

// ── contexts ──

async fn all(desk: &Desk) -> Reply<Vec<ProcessInfo>> {
    let list: ProcessList = desk.get("/v1/processes").await?;
    Ok(list.processes.into_iter().filter(|process| name(process).is_some()).collect())
}

fn name(process: &ProcessInfo) -> Option<&str> {
    process.tag.as_deref()?.strip_prefix(TAG)
}

fn path(process: &ProcessInfo) -> String {
    format!("/v1/processes/{}", process.id)
}

async fn find(desk: &Desk, id: &str) -> Reply<Option<ProcessInfo>> {
    Ok(all(desk).await?.into_iter().rev().find(|process| process.running && name(process) == Some(id)))
}

async fn start(desk: &Desk, id: &str, cwd: Option<String>) -> Reply<ProcessInfo> {
    let argv = ["python3", "-c", WORKER].map(str::to_owned).to_vec();
    let start = StartProcess {
        argv: Some(argv),
        cwd: cwd.filter(|cwd| !cwd.is_empty()),
        patient: true,
        tag: Some(format!("{TAG}{id}")),
        ..StartProcess::default()
    };
    desk.post("/v1/processes", &start).await
}

async fn describe(desk: &Desk, process: &ProcessInfo) -> Reply<Value> {
    let cwd = match &process.cwd {
        Some(cwd) => cwd.clone(),
        None => super::home(desk).await?,
    };
    let created = i64::try_from(process.started_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    Ok(json!({
        "id": name(process).unwrap_or_default(),
        "cwd": cwd,
        "language": "python",
        "active": process.running,
        "createdAt": created.unwrap_or_default().to_string(),
    }))
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
        Ok(Some(Ok(Message::Text(text)))) => serde_json::from_str::<Execute>(text.as_str()),
        Ok(Some(Ok(Message::Binary(bytes)))) => serde_json::from_slice(&bytes),
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
    let process = match &wanted.context_id {
        Some(id) => find(desk, id).await?.ok_or_else(|| refused(&format!("context not found: {id}")))?,
        None => match find(desk, DEFAULT).await? {
            Some(process) => process,
            None => start(desk, DEFAULT, None).await?,
        },
    };
    let request = format!("{:016x}", rand::random::<u64>());
    // Listened to first, so that nothing is missed; what another prints meanwhile is not for us.
    let printed = Pieces::after(desk, &path(&process), process.output_bytes).await?;
    let line = json!({"request": request, "code": wanted.code, "envs": wanted.envs.unwrap_or_default()}).to_string() + "\n";
    let input = WriteStdin { text: Some(line), ..WriteStdin::default() };
    desk.post::<Value>(&format!("{}/stdin", path(&process)), &input).await?;
    let mut told = Told { printed, lines: Lines::ending(b"\n"), flooded: false, request, begun: false };
    let followed = follow(socket, &mut told, limit.map(|limit| Instant::now() + limit)).await;
    // What has not begun waits behind the code of others, which is no business of ours.
    if (told.begun || told.flooded) && !matches!(followed, Followed::Completed) {
        interrupt(desk, &process, &mut told).await;
    }
    match followed {
        Followed::Completed | Followed::Left => Ok(()),
        Followed::Late => Err(End(TIMED_OUT, String::new())),
        Followed::Dead if told.flooded => Err(End(
            close_code::SIZE,
            format!("a line of the interpreter's output is longer than {} KiB: the context is ended", LONGEST >> 10),
        )),
        Followed::Dead => Err(End(close_code::AWAY, "the interpreter ended".into())),
    }
}

enum Followed {
    Completed,
    /// It took too long.
    Late,
    /// Nobody listens any more.
    Left,
    /// The process is gone.
    Dead,
}

/// Passes on what the code prints, until it ends.
async fn follow(socket: &mut WebSocket, told: &mut Told, until: Option<Instant>) -> Followed {
    let mut ping = tokio::time::interval(PING);
    let late = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(late);
    loop {
        tokio::select! {
            chunk = told.next() => {
                let Some(chunk) = chunk else { return Followed::Dead };
                let over = is_end(&chunk);
                if socket.send(Message::Text(chunk.to_string().into())).await.is_err() {
                    return if over { Followed::Completed } else { Followed::Left };
                }
                if over {
                    return Followed::Completed;
                }
            }
            heard = socket.recv() => if matches!(heard, Some(Ok(Message::Close(_)) | Err(_)) | None) {
                return Followed::Left;
            },
            _ = ping.tick() => if socket.send(Message::Ping(Default::default())).await.is_err() {
                return Followed::Left;
            },
            () = &mut late => return Followed::Late,
        }
    }
}

fn is_end(chunk: &Value) -> bool {
    chunk["type"] == "control"
}

/// Makes code end. If it does not, its context goes with it.
async fn interrupt(desk: &Desk, process: &ProcessInfo, told: &mut Told) {
    let signal = SendSignal { signal: "INT".into(), tree: false };
    let _ = desk.post::<Value>(&format!("{}/signal", path(process)), &signal).await;
    let end = Instant::now() + GRACE;
    loop {
        match timeout_at(end, told.next()).await {
            Ok(Some(chunk)) if !is_end(&chunk) => {}
            Ok(Some(_)) => return,
            Ok(None) | Err(_) => break,
        }
    }
    let _ = desk.delete(&path(process)).await;
}

/// What a context tells about one request.
struct Told {
    printed: Pieces,
    lines: Lines,
    /// A line never ended: the code writes where the worker does, and not what it does.
    flooded: bool,
    request: String,
    /// The code runs, or has run.
    begun: bool,
}

impl Told {
    fn line(&mut self) -> Option<Bytes> {
        let line = self.lines.next();
        self.flooded |= line.is_err();
        line.unwrap_or_default()
    }

    /// None when the process has ended, or can't be understood any more.
    async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(line) = self.line() {
                if let Ok(Value::Object(mut chunk)) = serde_json::from_slice(&line)
                    && chunk.remove("request").is_some_and(|request| request == self.request.as_str())
                {
                    if !std::mem::replace(&mut self.begun, true) {
                        continue;
                    }
                    return Some(chunk.into());
                }
            }
            if self.flooded {
                return None;
            }
            match self.printed.next().await? {
                Piece::Out(data) => self.lines.push(&data),
                Piece::Err(data) => tracing::debug!(text = %String::from_utf8_lossy(&data), "an interpreter complains"),
            }
        }
    }
}
