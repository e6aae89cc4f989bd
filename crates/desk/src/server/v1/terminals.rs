//! Terminal routes.

use super::attach::{self, Attached, Input};
use crate::Desk;
use crate::error::{Error, Result};
use crate::process::tape::Next;
use crate::terminal::{Terminal, View};
use axum::Json;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use hotdesk_api::terminal::{OpenTerminal, ResizeTerminal, TerminalControl, TerminalEvent, TerminalInfo, TerminalList};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list_terminals, open_terminal))
        .routes(routes!(get_terminal, close_terminal))
        .routes(routes!(resize_terminal))
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
