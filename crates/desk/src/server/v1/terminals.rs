//! Terminal routes.

use super::attach::{self, Attached, Input};
use super::processes::{input, output};
use crate::Desk;
use crate::error::{Error, Result};
use crate::process::tape::Next;
use crate::terminal::{Terminal, View};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use hotdesk_api::process::{OutputEvent, ReadOutput, SendSignal, WriteStdin};
use hotdesk_api::terminal::{OpenTerminal, ResizeTerminal, TerminalControl, TerminalEvent, TerminalInfo, TerminalList};
use hotdesk_serve::Json;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// A program that does not read what is typed is waited for so long.
const TYPING: Duration = Duration::from_secs(60);

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list_terminals, open_terminal))
        .routes(routes!(get_terminal, close_terminal))
        .routes(routes!(resize_terminal))
        .routes(routes!(read_terminal))
        .routes(routes!(type_into_terminal))
        .routes(routes!(signal_terminal))
        .routes(routes!(attach_terminal))
}

/// List the terminals
#[utoipa::path(get, path = "/v1/terminals", tag = "terminals", responses((status = 200, body = TerminalList)))]
async fn list_terminals(State(desk): State<Desk>) -> Json<TerminalList> {
    Json(TerminalList { terminals: desk.terminals.list() })
}

/// Open a terminal
///
/// Its program runs on when clients leave; `attach` is how they come and go.
#[utoipa::path(post, path = "/v1/terminals", tag = "terminals", request_body = OpenTerminal, responses((status = 201, body = TerminalInfo)))]
async fn open_terminal(State(desk): State<Desk>, Json(request): Json<OpenTerminal>) -> Result<(StatusCode, Json<TerminalInfo>)> {
    // Starting a program is a system call that takes a while.
    let terminals = desk.terminals.clone();
    let terminal = tokio::task::spawn_blocking(move || terminals.open(request)).await.map_err(Error::internal)??;
    Ok((StatusCode::CREATED, Json(terminal.info())))
}

/// Describe a terminal
#[utoipa::path(get, path = "/v1/terminals/{id}", tag = "terminals", params(("id" = u64, Path)), responses((status = 200, body = TerminalInfo)))]
async fn get_terminal(State(desk): State<Desk>, Path(id): Path<u64>) -> Result<Json<TerminalInfo>> {
    Ok(Json(desk.terminals.get(id)?.info()))
}

/// Close a terminal
///
/// Everything that runs in it is ended.
#[utoipa::path(
    delete, path = "/v1/terminals/{id}", tag = "terminals", params(("id" = u64, Path)),
    responses((status = 204, description = "It is gone."))
)]
async fn close_terminal(State(desk): State<Desk>, Path(id): Path<u64>) -> Result<StatusCode> {
    desk.terminals.close(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resize a terminal
#[utoipa::path(
    post, path = "/v1/terminals/{id}/resize", tag = "terminals", params(("id" = u64, Path)), request_body = ResizeTerminal,
    responses((status = 200, body = TerminalInfo))
)]
async fn resize_terminal(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    Json(size): Json<ResizeTerminal>,
) -> Result<Json<TerminalInfo>> {
    let terminal = desk.terminals.get(id)?;
    terminal.resize(size.cols, size.rows).await?;
    Ok(Json(terminal.info()))
}

/// Read what a terminal shows
///
/// A stream of server-sent events, as of a program's output; all of it is `stdout`.
#[utoipa::path(
    get, path = "/v1/terminals/{id}/output", tag = "terminals", params(("id" = u64, Path), ReadOutput),
    responses((status = 200, description = "Events.", content_type = "text/event-stream", body = OutputEvent))
)]
async fn read_terminal(State(desk): State<Desk>, Path(id): Path<u64>, Query(query): Query<ReadOutput>) -> Result<Response> {
    let terminal = desk.terminals.get(id)?;
    let watched = terminal.clone();
    let exit = move || watched.exit().cloned();
    Ok(output::stream(terminal.read(query.from), exit, query.from, query.follow, query.encoding))
}

/// Type into a terminal
#[utoipa::path(
    post, path = "/v1/terminals/{id}/input", tag = "terminals", params(("id" = u64, Path)), request_body = WriteStdin,
    responses((status = 204, description = "It was typed."))
)]
async fn type_into_terminal(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    Json(request): Json<WriteStdin>,
) -> Result<StatusCode> {
    let terminal = desk.terminals.get(id)?;
    if request.close {
        return Err(Error::Invalid("a terminal's input has no end; type Ctrl-D".into()));
    }
    if let Some(data) = input(request.text, request.base64, "text", "base64")? {
        let typing = tokio::time::timeout(TYPING, terminal.write(&data)).await;
        typing.map_err(|_| Error::Timeout { what: "the program's reading of what was typed".into(), limit: TYPING })??;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to the program of a terminal and to all that it started
#[utoipa::path(
    post, path = "/v1/terminals/{id}/signal", tag = "terminals", params(("id" = u64, Path)), request_body = SendSignal,
    responses((status = 204, description = "It was sent."))
)]
async fn signal_terminal(State(desk): State<Desk>, Path(id): Path<u64>, Json(request): Json<SendSignal>) -> Result<StatusCode> {
    desk.terminals.get(id)?.signal(&request.signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Attach to a terminal
///
/// A WebSocket. Binary messages are what is typed, and what is shown, beginning with what was shown before.
/// Text messages are a `TerminalControl` to the desk and a `TerminalEvent` from it.
#[utoipa::path(
    get, path = "/v1/terminals/{id}/attach", tag = "terminals", params(("id" = u64, Path)),
    responses((status = 101, description = "The connection becomes a WebSocket.", body = TerminalEvent))
)]
async fn attach_terminal(State(desk): State<Desk>, Path(id): Path<u64>, upgrade: WebSocketUpgrade) -> Result<Response> {
    let terminal = desk.terminals.get(id)?;
    Ok(attach::attach(upgrade, Screen { view: terminal.view(), terminal }))
}

struct Screen {
    terminal: Arc<Terminal>,
    view: View,
}

impl Attached for Screen {
    async fn next(&mut self) -> Option<Next> {
        self.view.reader.next().await
    }

    fn show(&self, next: Next) -> Message {
        match next {
            Next::Data { bytes, .. } => Message::Binary(bytes),
            Next::Lost(bytes) => attach::text(&TerminalEvent::Lost { bytes }),
        }
    }

    fn end(&self) -> Message {
        attach::text(&TerminalEvent::Exit { exit: self.terminal.exit().cloned().unwrap_or_default() })
    }

    fn problem(error: &Error) -> Message {
        attach::text(&TerminalEvent::Problem { problem: error.problem() })
    }

    fn input(&self) -> impl Input {
        Keyboard(self.terminal.clone())
    }
}

struct Keyboard(Arc<Terminal>);

impl Input for Keyboard {
    async fn write(&self, data: Bytes) -> Result<()> {
        self.0.write(&data).await
    }

    async fn control(&self, text: &str) -> Result<()> {
        match attach::parse(text)? {
            TerminalControl::Resize { cols, rows } => self.0.resize(cols, rows).await,
        }
    }
}
