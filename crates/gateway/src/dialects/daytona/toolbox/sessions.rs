//! Sessions: shells of the desk.

use super::super::desk::{Desk, encoded};
use super::super::reply::{Failure, Reply, empty, ok};
use super::super::version::Output;
use super::super::{Call, api};
use super::stream::{Piece, Pieces, STDERR, STDOUT, text};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::process::WriteStdin;
use hotdesk_api::shell::{ENTRYPOINT, OpenShell, RunCommand, Shell, ShellCommand, ShellList};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// How often a quiet follower is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);

pub(crate) async fn answer(call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::POST, []) => create(call, &desk).await,
        (&Method::GET, []) => {
            let list: ShellList = desk.get("/v1/shells").await?;
            // The entrypoint's has a call of its own; a list has what clients made.
            ok(list.shells.iter().filter(|shell| shell.name != ENTRYPOINT).map(session).collect::<Vec<_>>())
        }
        (&Method::GET, [ENTRYPOINT]) => match entrypoint(&desk).await? {
            Some(shell) => ok(session(&shell)),
            None => ok(json!({"sessionId": ENTRYPOINT, "commands": []})),
        },
        (&Method::GET, [ENTRYPOINT, "logs"]) => {
            match entrypoint(&desk).await?.and_then(|shell| shell.commands.first().cloned()) {
                Some(command) => logs(call, desk, ENTRYPOINT, &command.id.to_string()).await,
                None => ok(json!({"output": "", "stdout": "", "stderr": ""})),
            }
        }
        (&Method::GET, [id]) => {
            let shell: Shell = desk.get(&shell_path(id)).await.map_err(missing_session)?;
            ok(session(&shell))
        }
        (&Method::DELETE, [id]) => {
            desk.delete(&shell_path(id)).await.map_err(missing_session)?;
            empty(StatusCode::NO_CONTENT)
        }
        (&Method::POST, [id, "exec"]) => execute(call, &desk, id).await,
        (&Method::GET, [id, "command", command]) => {
            let command: ShellCommand = desk.get(&command_path(id, command)).await.map_err(missing_command)?;
            ok(self::command(&command))
        }
        (&Method::GET, [id, "command", command, "logs"]) => logs(call, desk, id, command).await,
        (&Method::POST, [id, "command", command, "input"]) => input(call, &desk, id, command).await,
        _ => Err(api::nothing(&call)),
    }
}

/// The shell of the sandbox's entrypoint, if it has one.
async fn entrypoint(desk: &Desk) -> Reply<Option<Shell>> {
    let list: ShellList = desk.get("/v1/shells").await?;
    Ok(list.shells.into_iter().find(|shell| shell.name == ENTRYPOINT))
}

fn shell_path(id: &str) -> String {
    format!("/v1/shells/{}", encoded(id))
}

fn command_path(id: &str, command: &str) -> String {
    format!("/v1/shells/{}/commands/{}", encoded(id), encoded(command))
}

fn missing_session(failure: Failure) -> Failure {
    match failure.status() {
        StatusCode::NOT_FOUND => Failure::not_found(format!("not found: session: {}", failure.message())),
        _ => failure,
    }
}

fn missing_command(failure: Failure) -> Failure {
    match failure.status() {
        // Also an id that is no number.
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
            Failure::not_found(format!("not found: command: {}", failure.message()))
        }
        _ => failure,
    }
}

fn session(shell: &Shell) -> Value {
    json!({"sessionId": shell.name, "commands": shell.commands.iter().map(command).collect::<Vec<_>>()})
}

fn command(command: &ShellCommand) -> Value {
    let mut view = json!({"id": command.id.to_string(), "command": command.command});
    // Left out while it runs: null is no number to old clients.
    if let Some(code) = command.exit_code {
        view["exitCode"] = code.into();
    }
    view
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewSession {
    session_id: String,
}

async fn create(mut call: Call, desk: &Desk) -> Reply {
    let NewSession { session_id: name } = call.json().await?;
    let request = OpenShell { name, ..OpenShell::default() };
    desk.post::<Shell>("/v1/shells", &request).await?;
    empty(StatusCode::CREATED)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Execute {
    command: String,
    run_async: Option<bool>,
    r#async: Option<bool>,
}

async fn execute(mut call: Call, desk: &Desk, id: &str) -> Reply {
    let wanted: Execute = call.json().await?;
    if wanted.command.trim().is_empty() {
        return Err(Failure::bad_request("bad request: command is required"));
    }
    let wait = !(wanted.run_async == Some(true) || wanted.r#async == Some(true));
    let request = RunCommand { command: wanted.command, wait };
    let path = format!("{}/commands", shell_path(id));
    let told: Result<ShellCommand, Failure> = desk.post(&path, &request).await;
    let told = told.map_err(|failure| match failure.status() {
        StatusCode::CONFLICT => Failure::new(StatusCode::GONE, failure.message()).daemon("SESSION_ENDED"),
        _ => missing_session(failure),
    })?;
    let command_id = told.id.to_string();
    if !wait {
        return Ok((StatusCode::ACCEPTED, axum::Json(json!({"cmdId": command_id}))).into_response());
    }
    let printed = Pieces::open(desk, &command_path(id, &command_id), false).await?.all().await?;
    let mut reply = json!({"cmdId": command_id, "exitCode": told.exit_code.unwrap_or(-1)});
    match call.version.output() {
        Output::Combined => reply["output"] = text(&printed.combined).into(),
        Output::Framed => reply["output"] = text(&printed.framed).into(),
        Output::Json => {
            reply["output"] = text(&printed.framed).into();
            reply["stdout"] = text(&printed.stdout).into();
            reply["stderr"] = text(&printed.stderr).into();
        }
    }
    ok(reply)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    data: String,
}

async fn input(mut call: Call, desk: &Desk, id: &str, command: &str) -> Reply {
    let Input { data } = call.json().await?;
    let request = WriteStdin { text: Some(data), ..WriteStdin::default() };
    let path = format!("{}/stdin", command_path(id, command));
    let written: Result<Value, Failure> = desk.post(&path, &request).await;
    written.map_err(|failure| match failure.status() {
        StatusCode::CONFLICT => Failure::new(StatusCode::GONE, failure.message()).daemon("COMMAND_ALREADY_COMPLETED"),
        _ => missing_command(failure),
    })?;
    empty(StatusCode::NO_CONTENT)
}

async fn logs(mut call: Call, desk: Desk, id: &str, command: &str) -> Reply {
    let follow = call.query().flag(["follow", "follow"]);
    let pieces = Pieces::open(&desk, &command_path(id, command), follow).await.map_err(missing_command)?;
    let upgrade = call.parts.headers.contains_key(header::UPGRADE);
    match (follow, upgrade) {
        (true, true) => {
            let socket = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
            let socket = socket.map_err(|e| Failure::bad_request(format!("bad request: {}", e.body_text())))?;
            let socket = super::pty::first_protocol(&call.parts.headers, socket);
            Ok(socket.on_upgrade(move |socket| async move {
                tokio::select! {
                    () = follow_socket(socket, pieces) => {}
                    _ = crate::guest::right_ends(&desk.app, &desk.caller) => {}
                }
            }))
        }
        (true, false) => Ok(follow_text(pieces)),
        (false, _) => {
            let printed = pieces.all().await?;
            let plain = |bytes: &[u8]| ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text(bytes)).into_response();
            match call.version.output() {
                Output::Combined => Ok(plain(&printed.combined)),
                Output::Framed => Ok(plain(&printed.framed)),
                Output::Json => ok(json!({
                    "output": text(&printed.framed),
                    "stdout": text(&printed.stdout),
                    "stderr": text(&printed.stderr),
                })),
            }
        }
    }
}

/// For the oldest clients: text as it comes, until the command ends.
fn follow_text(mut pieces: Pieces) -> Response {
    let body = async_stream::stream! {
        while let Some(Piece::Out(data) | Piece::Err(data)) = pieces.next().await {
            yield Ok::<_, std::convert::Infallible>(axum::body::Bytes::from(data));
        }
    };
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(body)).into_response()
}

/// Marked pieces until the command ends; then the socket is closed in peace.
async fn follow_socket(mut socket: WebSocket, mut pieces: Pieces) {
    let mut ping = tokio::time::interval(PING);
    loop {
        tokio::select! {
            piece = pieces.next() => {
                let (mark, data) = match piece {
                    Some(Piece::Out(data)) => (STDOUT, data),
                    Some(Piece::Err(data)) => (STDERR, data),
                    None => break,
                };
                if socket.send(Message::Binary([mark, &data].concat().into())).await.is_err() {
                    return;
                }
            }
            heard = socket.recv() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            _ = ping.tick() => {
                if socket.send(Message::Ping(Default::default())).await.is_err() {
                    return;
                }
            }
        }
    }
    let end = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    if socket.send(Message::Close(Some(end))).await.is_ok() {
        // Until the client has answered it.
        let _ = tokio::time::timeout(PING, async { while let Some(Ok(_)) = socket.recv().await {} }).await;
    }
}
