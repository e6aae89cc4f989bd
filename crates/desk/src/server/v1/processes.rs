//! Process routes.

pub(super) mod output;

use super::attach::{self, Attached, Input};
use crate::Desk;
use crate::error::{Error, Result};
use crate::files;
use crate::place;
use crate::process::jobs::{self, Job};
use crate::process::tape::{Next, Reader, Source};
use crate::process::{Command, Failure};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use hotdesk_api::process::{
    ChangeVariables, Encoding, EndProcess, Exit, ListProcesses, OutputEvent, ProcessControl, ProcessInfo, ProcessList,
    ReadOutput, RunProcess, RunResult, SendSignal, StartProcess, WriteStdin,
};
use hotdesk_serve::Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// A request that waits has to end some time.
const RUN_TIME: Duration = Duration::from_secs(60);
/// A day: what is meant to run longer is started in the background.
const RUN_TIME_LIMIT: Duration = Duration::from_secs(24 * 3600);
const RUN_OUTPUT: u64 = 1 << 20;
/// Held in memory several times while the reply is made.
const RUN_OUTPUT_LIMIT: u64 = 16 << 20;
/// How long a client may let a program end by itself.
const GRACE_LIMIT: Duration = Duration::from_secs(60);

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(run_process))
        .routes(routes!(list_processes, start_process))
        .routes(routes!(get_process, end_process))
        .routes(routes!(read_output))
        .routes(routes!(write_stdin))
        .routes(routes!(signal_process))
        .routes(routes!(attach_process))
        .routes(routes!(change_variables))
}

/// Run a program to its end
///
/// When the client leaves before, the program is killed with all that it started.
#[utoipa::path(post, path = "/v1/processes/run", tag = "processes", request_body = RunProcess, responses((status = 200, body = RunResult)))]
async fn run_process(State(desk): State<Desk>, Json(request): Json<RunProcess>) -> Result<Json<RunResult>> {
    let mut command = command(&desk, request.argv, request.shell, request.env, request.cwd)?;
    command.stdin = input(request.stdin, request.stdin_base64, "stdin", "stdin_base64")?;
    let limit = request.timeout_ms.map_or(RUN_TIME, Duration::from_millis);
    if limit > RUN_TIME_LIMIT {
        return Err(Error::Invalid(format!("`timeout_ms` is at most {}", RUN_TIME_LIMIT.as_millis())));
    }
    command.limit = Some(limit);
    let output_limit = request.output_limit.unwrap_or(RUN_OUTPUT);
    if output_limit > RUN_OUTPUT_LIMIT {
        return Err(Error::Invalid(format!("`output_limit` is at most {RUN_OUTPUT_LIMIT}")));
    }
    command.output_limit = output_limit as usize;
    command.merge_stderr = request.merge_stderr;
    let begin = Instant::now();
    let (stdout, stderr, exit, truncated) = match desk.processes.run(command).await {
        Ok(output) => (output.stdout, output.stderr, jobs::exit(output.status, false), output.truncated),
        Err(Failure::TimedOut { stdout, stderr, .. }) => {
            let exit = Exit { exit_code: None, signal: Some("SIGKILL".into()), timed_out: true };
            let truncated = [&stdout, &stderr].iter().any(|bytes| bytes.len() as u64 >= output_limit);
            (stdout, stderr, exit, truncated)
        }
        Err(failure) => return Err(failure.into()),
    };
    let duration_ms = begin.elapsed().as_millis() as u64;
    let encoding = request.encoding;
    Ok(Json(RunResult {
        stdout: encoded(stdout, encoding),
        stderr: encoded(stderr, encoding),
        encoding,
        exit,
        truncated,
        duration_ms,
    }))
}

/// List programs
#[utoipa::path(get, path = "/v1/processes", tag = "processes", params(ListProcesses), responses((status = 200, body = ProcessList)))]
async fn list_processes(State(desk): State<Desk>, Query(query): Query<ListProcesses>) -> Result<Json<ProcessList>> {
    let processes = desk.processes.jobs().list().iter().map(|job| job.info()).collect();
    let all = match query.all {
        true => Some(tokio::task::spawn_blocking(jobs::system).await.map_err(Error::internal)?),
        false => None,
    };
    Ok(Json(ProcessList { processes, all }))
}

/// Start a program in the background
#[utoipa::path(
    post, path = "/v1/processes", tag = "processes", request_body = StartProcess, responses((status = 201, body = ProcessInfo))
)]
async fn start_process(State(desk): State<Desk>, Json(request): Json<StartProcess>) -> Result<(StatusCode, Json<ProcessInfo>)> {
    let mut command = command(&desk, request.argv, request.shell, request.env, request.cwd)?;
    command.limit = request.timeout_ms.map(Duration::from_millis);
    command.merge_stderr = request.merge_stderr;
    command.stdin = request.no_input.then(Vec::new);
    let jobs = desk.processes.jobs();
    let job = jobs.start_with(&desk.processes, command, request.tag, request.patient).await?;
    Ok((StatusCode::CREATED, Json(job.info())))
}

/// Describe a program
#[utoipa::path(get, path = "/v1/processes/{id}", tag = "processes", params(("id" = u64, Path)), responses((status = 200, body = ProcessInfo)))]
async fn get_process(State(desk): State<Desk>, Path(id): Path<u64>) -> Result<Json<ProcessInfo>> {
    Ok(Json(desk.processes.jobs().get(id)?.info()))
}

/// End a program and everything that it started
///
/// It gets SIGTERM, and SIGKILL if it takes too long. Then it is forgotten.
#[utoipa::path(
    delete, path = "/v1/processes/{id}", tag = "processes", params(("id" = u64, Path), EndProcess),
    responses((status = 200, body = ProcessInfo))
)]
async fn end_process(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    Query(query): Query<EndProcess>,
) -> Result<Json<ProcessInfo>> {
    let grace = Duration::from_millis(query.grace_ms).min(GRACE_LIMIT);
    desk.processes.jobs().end(id, grace).await.map(Json)
}

/// Read what a program prints
///
/// A stream of server-sent events, each with an `OutputEvent` as its data and that event's name as its name. Its
/// id is the offset to go on from; a client that sends it back as `Last-Event-ID` misses nothing that is still kept.
#[utoipa::path(
    get, path = "/v1/processes/{id}/output", tag = "processes", params(("id" = u64, Path), ReadOutput),
    responses((status = 200, description = "Events.", content_type = "text/event-stream", body = OutputEvent))
)]
async fn read_output(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    Query(query): Query<ReadOutput>,
    headers: HeaderMap,
) -> Result<Response> {
    let job = desk.processes.jobs().get(id)?;
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let from = resumed.unwrap_or(query.from);
    Ok(output::stream(job.output.read(from), move || job.exit().cloned(), from, query.follow, query.encoding))
}

/// Write to a program
///
/// Waits until the program has read it.
#[utoipa::path(
    post, path = "/v1/processes/{id}/stdin", tag = "processes", params(("id" = u64, Path)), request_body = WriteStdin,
    responses((status = 204, description = "It was written."))
)]
async fn write_stdin(State(desk): State<Desk>, Path(id): Path<u64>, Json(request): Json<WriteStdin>) -> Result<StatusCode> {
    let job = desk.processes.jobs().get(id)?;
    if let Some(data) = input(request.text, request.base64, "text", "base64")? {
        let writing = tokio::time::timeout(RUN_TIME, job.write(&data)).await;
        writing.map_err(|_| Error::Timeout { what: "the program's reading of its input".into(), limit: RUN_TIME })??;
    }
    if request.close {
        job.close_stdin().await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to a program
#[utoipa::path(
    post, path = "/v1/processes/{id}/signal", tag = "processes", params(("id" = u64, Path)), request_body = SendSignal,
    responses((status = 204, description = "It was sent."))
)]
async fn signal_process(State(desk): State<Desk>, Path(id): Path<u64>, Json(request): Json<SendSignal>) -> Result<StatusCode> {
    desk.processes.jobs().get(id)?.signal(&request.signal, request.tree).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change the environment of programs
///
/// Of all that are started from now on; those that run keep theirs. The changes are gone when the desk is started again.
#[utoipa::path(
    patch, path = "/v1/variables", tag = "processes", request_body = ChangeVariables,
    responses((status = 204, description = "The next program has it."))
)]
async fn change_variables(Json(request): Json<ChangeVariables>) -> StatusCode {
    let set = request.set.into_iter().map(|(name, value)| (name, Some(value)));
    place::change_variables(set.chain(request.unset.into_iter().map(|name| (name, None))));
    StatusCode::NO_CONTENT
}

/// Attach to a program
///
/// A WebSocket. Binary messages to the desk are the program's input. Binary messages from it are output: a byte that is
/// 1 for stdout and 2 for stderr, then what was printed, beginning with the oldest that is kept. Text messages are a
/// `ProcessControl` to the desk and an `OutputEvent` from it.
#[utoipa::path(
    get, path = "/v1/processes/{id}/attach", tag = "processes", params(("id" = u64, Path)),
    responses((status = 101, description = "The connection becomes a WebSocket.", body = OutputEvent))
)]
async fn attach_process(State(desk): State<Desk>, Path(id): Path<u64>, upgrade: WebSocketUpgrade) -> Result<Response> {
    let job = desk.processes.jobs().get(id)?;
    Ok(attach::attach(upgrade, Watched { reader: job.output.read(0), job }))
}

struct Watched {
    job: Arc<Job>,
    reader: Reader,
}

impl Attached for Watched {
    async fn next(&mut self) -> Option<Next> {
        self.reader.next().await
    }

    fn show(&self, next: Next) -> Message {
        match next {
            Next::Data { source, bytes, .. } => {
                let mut tagged = BytesMut::with_capacity(bytes.len() + 1);
                tagged.put_u8(if source == Source::Stdout { 1 } else { 2 });
                tagged.put_slice(&bytes);
                Message::Binary(tagged.freeze())
            }
            Next::Lost(bytes) => attach::text(&OutputEvent::Lost { bytes }),
        }
    }

    fn end(&self) -> Message {
        attach::text(&OutputEvent::Exit { exit: self.job.exit().cloned().unwrap_or_default() })
    }

    fn problem(error: &Error) -> Message {
        attach::text(&OutputEvent::Problem { problem: error.problem() })
    }

    fn input(&self) -> impl Input {
        Stdin(self.job.clone())
    }
}

struct Stdin(Arc<Job>);

impl Input for Stdin {
    async fn write(&self, data: Bytes) -> Result<()> {
        self.0.write(&data).await
    }

    async fn control(&self, text: &str) -> Result<()> {
        match attach::parse(text)? {
            ProcessControl::CloseStdin => self.0.close_stdin().await,
            ProcessControl::Signal { signal } => self.0.signal(&signal, false).await?,
        }
        Ok(())
    }
}

fn command(
    desk: &Desk,
    argv: Option<Vec<String>>,
    shell: Option<String>,
    env: BTreeMap<String, Option<String>>,
    cwd: Option<String>,
) -> Result<Command> {
    let argv = match (argv, shell) {
        (Some(argv), None) if argv.first().is_none_or(String::is_empty) => {
            return Err(Error::Invalid("`argv` names no program".into()));
        }
        (Some(argv), None) => argv,
        (None, Some(script)) => vec!["/bin/sh".into(), "-c".into(), script],
        _ => return Err(Error::Invalid("give either `argv` or `shell`".into())),
    };
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Error::Invalid(format!("`env`: `{}` can't be the name of a variable", name.escape_default())));
    }
    let mut command = Command::new(argv);
    command.env = env;
    command.cwd = cwd.map(|cwd| files::resolve(&desk.place, &cwd)).transpose()?;
    if let Some(cwd) = command.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Err(Error::NotFound(format!("`cwd`: {} is not a directory", cwd.display())));
    }
    Ok(command)
}

pub(super) fn input(text: Option<String>, base64: Option<String>, text_name: &str, base64_name: &str) -> Result<Option<Vec<u8>>> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(Error::Invalid(format!("give either `{text_name}` or `{base64_name}`"))),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map(Some).map_err(|e| Error::Invalid(format!("`{base64_name}` is not base64: {e}")))
        }
        (None, None) => Ok(None),
    }
}

fn encoded(bytes: Vec<u8>, encoding: Encoding) -> String {
    match encoding {
        // Most output is UTF-8 and is not copied.
        Encoding::Text => String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        Encoding::Base64 => STANDARD.encode(bytes),
    }
}
