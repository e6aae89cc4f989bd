//! Shell routes.

use super::processes::output;
use crate::Desk;
use crate::error::{Error, Result};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hotdesk_api::process::{OutputEvent, ReadOutput, WriteStdin};
use hotdesk_api::shell::{OpenShell, RunCommand, Shell, ShellCommand, ShellList};
use hotdesk_serve::Json;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long a command may leave its input unread while a client waits for that.
const WRITE_TIME: Duration = Duration::from_secs(60);

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list_shells, open_shell))
        .routes(routes!(get_shell, close_shell))
        .routes(routes!(run_command))
        .routes(routes!(get_command))
        .routes(routes!(read_command))
        .routes(routes!(write_command))
}

/// List the shells
#[utoipa::path(get, path = "/v1/shells", tag = "shells", responses((status = 200, body = ShellList)))]
async fn list_shells(State(desk): State<Desk>) -> Json<ShellList> {
    Json(ShellList { shells: desk.shells.list() })
}

/// Open a shell
///
/// It remembers its directory, variables and functions from one command to the next.
#[utoipa::path(post, path = "/v1/shells", tag = "shells", request_body = OpenShell, responses((status = 201, body = Shell)))]
async fn open_shell(State(desk): State<Desk>, Json(request): Json<OpenShell>) -> Result<(StatusCode, Json<Shell>)> {
    Ok((StatusCode::CREATED, Json(desk.shells.open(request).await?.describe())))
}

/// Describe a shell
#[utoipa::path(get, path = "/v1/shells/{name}", tag = "shells", params(("name" = String, Path)), responses((status = 200, body = Shell)))]
async fn get_shell(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Json<Shell>> {
    Ok(Json(desk.shells.get(&name)?.describe()))
}

/// Close a shell
///
/// Everything that runs in it is ended.
#[utoipa::path(
    delete, path = "/v1/shells/{name}", tag = "shells", params(("name" = String, Path)),
    responses((status = 204, description = "It is gone."))
)]
async fn close_shell(State(desk): State<Desk>, Path(name): Path<String>) -> Result<StatusCode> {
    desk.shells.close(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Run a command in a shell
///
/// It runs when those before it have ended. With `wait` the answer comes when it has ended itself; a client that leaves does not
/// end it.
#[utoipa::path(
    post, path = "/v1/shells/{name}/commands", tag = "shells", params(("name" = String, Path)), request_body = RunCommand,
    responses((status = 201, body = ShellCommand))
)]
async fn run_command(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Json(request): Json<RunCommand>,
) -> Result<(StatusCode, Json<ShellCommand>)> {
    let command = desk.shells.get(&name)?.run(request.command, !request.wait).await?;
    if request.wait {
        command.wait().await;
    }
    Ok((StatusCode::CREATED, Json(command.describe())))
}

/// Describe a command of a shell
#[utoipa::path(
    get, path = "/v1/shells/{name}/commands/{id}", tag = "shells", params(("name" = String, Path), ("id" = u64, Path)),
    responses((status = 200, body = ShellCommand))
)]
async fn get_command(State(desk): State<Desk>, Path((name, id)): Path<(String, u64)>) -> Result<Json<ShellCommand>> {
    Ok(Json(desk.shells.get(&name)?.command(id)?.describe()))
}

/// Read what a command prints
///
/// A stream of server-sent events, as that of a program.
#[utoipa::path(
    get, path = "/v1/shells/{name}/commands/{id}/output", tag = "shells",
    params(("name" = String, Path), ("id" = u64, Path), ReadOutput),
    responses((status = 200, description = "Events.", content_type = "text/event-stream", body = OutputEvent))
)]
async fn read_command(
    State(desk): State<Desk>,
    Path((name, id)): Path<(String, u64)>,
    Query(query): Query<ReadOutput>,
    headers: HeaderMap,
) -> Result<Response> {
    let command = desk.shells.get(&name)?.command(id)?;
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let from = resumed.unwrap_or(query.from);
    Ok(output::stream(command.output.read(from), move || command.exit(), from, query.follow, query.encoding))
}

/// Write to a command
///
/// Waits until it is read. The input of a shell's command has no end but the command's.
#[utoipa::path(
    post, path = "/v1/shells/{name}/commands/{id}/stdin", tag = "shells", params(("name" = String, Path), ("id" = u64, Path)),
    request_body = WriteStdin, responses((status = 204, description = "It was written."))
)]
async fn write_command(
    State(desk): State<Desk>,
    Path((name, id)): Path<(String, u64)>,
    Json(request): Json<WriteStdin>,
) -> Result<StatusCode> {
    let command = desk.shells.get(&name)?.command(id)?;
    let data = match (request.text, request.base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(data)) => STANDARD.decode(data).map_err(|e| Error::Invalid(format!("`base64` is not base64: {e}")))?,
        _ => return Err(Error::Invalid("give either `text` or `base64`".into())),
    };
    if request.close {
        return Err(Error::Invalid("the input of a shell's command can't be closed".into()));
    }
    let writing = tokio::time::timeout(WRITE_TIME, command.write(&data)).await;
    writing.map_err(|_| Error::Timeout { what: "the command's reading of its input".into(), limit: WRITE_TIME })??;
    Ok(StatusCode::NO_CONTENT)
}
