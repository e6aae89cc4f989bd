//! Terminals (PTY): those of the desk, under names that clients choose.

use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, ok};
use super::super::{Call, api};
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::IntoResponse;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use hotdesk_api::process::Exit;
use hotdesk_api::terminal::{OpenTerminal, ResizeTerminal, TerminalEvent, TerminalInfo, TerminalList};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Inner;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// A client that offers it wants to be told of the end before the socket is closed.
const TELLS_END: &str = "X-Daytona-Pty-Exit-Control";
const ENVIRONMENT: &str = "X-Daytona-Pty-Envs~";
const NORMAL: u16 = 1000;
const FAILED: u16 = 1011;

pub(crate) async fn answer(mut call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::POST, []) => {
            let wanted: NewPty = call.json().await?;
            let terminal = open(&desk, wanted).await?;
            Ok((StatusCode::CREATED, axum::Json(json!({"sessionId": name(&terminal)}))).into_response())
        }
        (&Method::GET, []) => {
            let list: TerminalList = desk.get("/v1/terminals").await?;
            ok(json!({"sessions": list.terminals.iter().map(describe).collect::<Vec<_>>()}))
        }
        (&Method::GET, ["create-connect"]) => {
            let query = call.query();
            let wanted = NewPty {
                id: query.need("id")?.to_owned(),
                cwd: query.get("cwd").map(str::to_owned),
                envs: environment(&call.parts.headers)?,
                cols: query.number("cols")?,
                rows: query.number("rows")?,
            };
            let terminal = open(&desk, wanted).await?;
            connect(call, desk, terminal).await
        }
        (&Method::GET, [id, "connect"]) => {
            let terminal = find(&desk, id).await?;
            connect(call, desk, terminal).await
        }
        (&Method::GET, [id]) => ok(describe(&find(&desk, id).await?)),
        (&Method::DELETE, [id]) => {
            let terminal = find(&desk, id).await?;
            desk.delete(&format!("/v1/terminals/{}", terminal.id)).await?;
            ok(json!({"message": "the PTY session is ended"}))
        }
        (&Method::POST, [id, "resize"]) => {
            let size: ResizeTerminal = call.json().await?;
            let terminal = find(&desk, id).await?;
            let terminal: TerminalInfo = desk.post(&format!("/v1/terminals/{}/resize", terminal.id), &size).await?;
            ok(describe(&terminal))
        }
        _ => Err(api::nothing(&call)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NewPty {
    id: String,
    cwd: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    cols: Option<u16>,
    rows: Option<u16>,
}

async fn open(desk: &Desk, wanted: NewPty) -> Reply<TerminalInfo> {
    if wanted.id.is_empty() {
        return Err(Failure::bad_request("bad request: id is required"));
    }
    if find(desk, &wanted.id).await.is_ok_and(|terminal| terminal.running) {
        return Err(Failure::conflict(format!("conflict: there is a PTY session {} already", wanted.id)));
    }
    let request = OpenTerminal {
        tag: Some(wanted.id),
        cwd: wanted.cwd.filter(|cwd| !cwd.is_empty()),
        env: wanted.envs.unwrap_or_default().into_iter().map(|(name, value)| (name, Some(value))).collect(),
        cols: wanted.cols.filter(|n| *n > 0),
        rows: wanted.rows.filter(|n| *n > 0),
        ..OpenTerminal::default()
    };
    desk.post("/v1/terminals", &request).await
}

/// The newest of that name.
async fn find(desk: &Desk, id: &str) -> Reply<TerminalInfo> {
    let list: TerminalList = desk.get("/v1/terminals").await?;
    let found = list.terminals.into_iter().rev().find(|terminal| name(terminal) == id);
    found.ok_or_else(|| Failure::not_found(format!("not found: there is no PTY session {}", id.escape_default())))
}

fn name(terminal: &TerminalInfo) -> String {
    terminal.tag.clone().unwrap_or_else(|| terminal.id.to_string())
}

fn describe(terminal: &TerminalInfo) -> Value {
    let created = i64::try_from(terminal.started_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    json!({
        "id": name(terminal),
        "cwd": terminal.cwd.as_deref().unwrap_or_default(),
        "envs": terminal.env,
        "cols": terminal.cols,
        "rows": terminal.rows,
        "createdAt": created.unwrap_or_default().to_string(),
        "active": terminal.running,
        "lazyStart": false,
    })
}

fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Agrees to the first protocol that the client offers: it is how some tell their version.
pub(crate) fn first_protocol(headers: &HeaderMap, upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    match offered(headers).next() {
        Some(first) => upgrade.protocols([first.to_owned()]),
        None => upgrade,
    }
}

fn environment(headers: &HeaderMap) -> Reply<Option<BTreeMap<String, String>>> {
    let Some(text) = offered(headers).find_map(|word| word.strip_prefix(ENVIRONMENT)) else { return Ok(None) };
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let variables = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    variables.map(Some).ok_or_else(|| Failure::bad_request("bad request: the environment of the terminal can't be read"))
}

type DeskSocket = WebSocketStream<hotdesk_provider::door::Stream>;

async fn connect(mut call: Call, desk: Desk, terminal: TerminalInfo) -> Reply {
    let upgrade = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
    let upgrade = upgrade.map_err(|e| Failure::bad_request(format!("bad request: {}", e.body_text())))?;
    let tells_end = offered(&call.parts.headers).any(|word| word == TELLS_END);
    let upgrade = first_protocol(&call.parts.headers, upgrade);
    let inner = attach(&desk, terminal.id).await?;
    Ok(upgrade.on_upgrade(move |socket| async move {
        let busy = desk.app.fleet.busy(&desk.id, "request");
        let ended = tokio::select! {
            ended = relay(socket, inner, tells_end) => ended,
            _ = crate::guest::right_ends(&desk.app, &desk.caller) => false,
        };
        if ended {
            let _ = desk.delete(&format!("/v1/terminals/{}", terminal.id)).await;
        }
        drop(busy);
    }))
}

/// A WebSocket to the desk's terminal.
async fn attach(desk: &Desk, terminal: u64) -> Reply<DeskSocket> {
    let failed = |e: &dyn std::fmt::Display| Failure::new(StatusCode::BAD_GATEWAY, format!("the terminal can't be reached: {e}"));
    let door = desk.app.fleet.door(&desk.caller.who, &desk.id).await?;
    let stream = door.address.connect().await.map_err(|e| failed(&e))?;
    let mut request = format!("ws://desk/v1/terminals/{terminal}/attach").into_client_request().map_err(|e| failed(&e))?;
    door.dress(request.headers_mut());
    let (socket, _) = tokio_tungstenite::client_async(request, stream).await.map_err(|e| failed(&e))?;
    Ok(socket)
}

/// Carries what is typed and shown. True if the program in the terminal has ended.
async fn relay(client: WebSocket, desk: DeskSocket, tells_end: bool) -> bool {
    let (mut to_client, mut from_client) = client.split();
    let (mut to_desk, mut from_desk) = desk.split();
    let hello = json!({"type": "control", "status": "connected"}).to_string();
    if to_client.send(Message::Text(hello.into())).await.is_err() {
        return false;
    }
    let typing = async {
        while let Some(Ok(message)) = from_client.next().await {
            let data = match message {
                Message::Binary(data) => data,
                Message::Text(text) => text.as_str().to_owned().into(),
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) => continue,
            };
            if to_desk.send(Inner::Binary(data)).await.is_err() {
                break;
            }
        }
    };
    let showing = async {
        while let Some(Ok(message)) = from_desk.next().await {
            match message {
                Inner::Binary(data) => to_client.send(Message::Binary(data)).await.ok()?,
                Inner::Text(text) => {
                    if let Ok(TerminalEvent::Exit { exit }) = serde_json::from_str(text.as_str()) {
                        return Some(exit);
                    }
                }
                _ => {}
            }
        }
        None
    };
    let exit = tokio::select! {
        exit = showing => exit,
        () = typing => None,
    };
    let Some(exit) = exit else { return false };
    let code = exit_code(&exit);
    let mut end = json!({"exitCode": code});
    if let Some(signal) = &exit.signal {
        end["exitReason"] = signal.as_str().into();
    }
    if tells_end {
        let mut told = end.clone();
        told["type"] = "control".into();
        told["status"] = "exited".into();
        let _ = to_client.send(Message::Text(told.to_string().into())).await;
    }
    let code = if code == 0 { NORMAL } else { FAILED };
    let _ = to_client.send(Message::Close(Some(CloseFrame { code, reason: end.to_string().into() }))).await;
    true
}

fn exit_code(exit: &Exit) -> i32 {
    exit.exit_code.unwrap_or(-1)
}
