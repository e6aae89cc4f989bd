//! `process.Process`: programs and terminals of a sandbox.
//!
//! E2B knows both by their process ids; the desk has numbers of its own, which are never used again.

use super::connect::{self, Envelopes};
use super::desk::{Sandbox, User};
use super::envd;
use super::fault::{Code, Fault, Result};
use super::streams::{self, Plan};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use hotdesk_api::process::{ProcessInfo, ProcessList, SendSignal, StartProcess, WriteStdin};
use hotdesk_api::terminal::{OpenTerminal, ResizeTerminal, TerminalInfo, TerminalList};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How a program that has ended can still be asked for its end.
const REMEMBERED: Duration = Duration::from_secs(30);

pub(super) async fn answer(sandbox: Sandbox, method: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    match method {
        "Start" => streamed(start(sandbox, headers, body).await),
        "Connect" => streamed(attach(sandbox, headers, body).await),
        "List" => connect::reply(list(&sandbox).await),
        "SendInput" => connect::reply(send_input(&sandbox, headers, body).await),
        "StreamInput" => match stream_input(&sandbox, body).await {
            Ok(()) => connect::reply_to_stream(&json!({})),
            Err(fault) => connect::refused_stream(fault),
        },
        "CloseStdin" => connect::reply(close_stdin(&sandbox, headers, body).await),
        "SendSignal" => connect::reply(send_signal(&sandbox, headers, body).await),
        "Update" => connect::reply(update(&sandbox, headers, body).await),
        _ => envd::unknown(method),
    }
}

fn streamed(outcome: Result<Response>) -> Response {
    outcome.unwrap_or_else(connect::refused_stream)
}

#[derive(Deserialize)]
struct Start {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    /// Old clients leave it out and mean yes.
    stdin: Option<bool>,
}

#[derive(Deserialize)]
struct Config {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Deserialize)]
struct Pty {
    size: Option<PtySize>,
}

#[derive(Deserialize)]
struct PtySize {
    cols: u16,
    rows: u16,
}

async fn start(sandbox: Sandbox, headers: &HeaderMap, body: Body) -> Result<Response> {
    let Start { process, pty, tag, stdin } = connect::message(headers, body).await?;
    let limit = connect::limit(headers)?;
    let plan = Plan::new(headers, limit);
    let name = connect::user(headers)?;
    let user = sandbox.user(name.as_deref()).await?;
    let mut env: BTreeMap<String, Option<String>> =
        sandbox.environment().await?.into_iter().map(|(name, value)| (name, Some(value))).collect();
    env.extend(process.envs.into_iter().map(|(name, value)| (name, Some(value))));
    let argv = std::iter::once(process.cmd).chain(process.args).collect();
    let timeout_ms = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let cwd = process.cwd.filter(|cwd| !cwd.is_empty());
    // A program or a directory that is not there is a wrong wish, not a missing process.
    let wrong = |fault: Fault| fault.when(Code::NotFound, Code::InvalidArgument).when(Code::AlreadyExists, Code::InvalidArgument);
    let (pid, output, terminal) = match pty {
        Some(Pty { size }) => {
            let (cols, rows) = size.map(|size| (size.cols, size.rows)).unzip();
            let wish = OpenTerminal { argv: Some(argv), env, cwd, cols, rows, timeout_ms, patient: true, tag };
            let made: TerminalInfo = user.post("terminals", &wish).await.map_err(wrong)?;
            (made.pid, format!("terminals/{}/output?encoding=base64", made.id), true)
        }
        None => {
            let no_input = stdin == Some(false);
            let wish =
                StartProcess { argv: Some(argv), env, cwd, timeout_ms, no_input, patient: true, tag, ..StartProcess::default() };
            let made: ProcessInfo = user.post("processes", &wish).await.map_err(wrong)?;
            (made.pid, format!("processes/{}/output?encoding=base64", made.id), false)
        }
    };
    let events = user.events(&output).await?;
    Ok(streams::output(plan, pid, terminal, events))
}

#[derive(Deserialize)]
struct Selected {
    process: Selector,
}

#[derive(Deserialize)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

async fn attach(sandbox: Sandbox, headers: &HeaderMap, body: Body) -> Result<Response> {
    let Selected { process } = connect::message(headers, body).await?;
    // Unlike at a start, the client's limit ends the stream and nothing else.
    let plan = Plan::new(headers, connect::limit(headers)?);
    let found = find(&sandbox, &process, true).await?;
    let path = format!("{}/output?encoding=base64&from={}", found.path(), found.offset);
    let events = found.user.events(&path).await?;
    Ok(streams::output(plan, found.pid, found.terminal, events))
}

/// A program or a terminal of a sandbox.
struct Found<'a> {
    user: User<'a>,
    id: u64,
    pid: u32,
    terminal: bool,
    /// How much it has printed so far.
    offset: u64,
}

impl Found<'_> {
    fn path(&self) -> String {
        format!("{}/{}", if self.terminal { "terminals" } else { "processes" }, self.id)
    }
}

async fn find<'a>(sandbox: &'a Sandbox, wanted: &Selector, ended_too: bool) -> Result<Found<'a>> {
    let fits = |pid: u32, tag: &Option<String>| match (wanted.pid, &wanted.tag) {
        (Some(wanted), _) => pid == wanted,
        (None, Some(wanted)) => tag.as_ref() == Some(wanted),
        (None, None) => false,
    };
    let recent = |ended_ms: Option<u64>| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        ended_ms.is_none_or(|ended| now.saturating_sub(Duration::from_millis(ended)) < REMEMBERED)
    };
    for user in sandbox.users().await? {
        let all: ProcessList = user.get("processes").await?;
        // The newest first: process ids come again.
        let found = all.processes.iter().rev().find(|p| fits(p.pid, &p.tag) && (p.running || ended_too && recent(p.ended_ms)));
        if let Some(process) = found {
            let (id, pid, offset) = (process.id, process.pid, process.output_bytes);
            return Ok(Found { user, id, pid, terminal: false, offset });
        }
        let all: TerminalList = user.get("terminals").await?;
        if let Some(t) = all.terminals.iter().rev().find(|t| fits(t.pid, &t.tag) && (t.running || ended_too)) {
            return Ok(Found { user, id: t.id, pid: t.pid, terminal: true, offset: t.output_bytes });
        }
    }
    let name = match (wanted.pid, &wanted.tag) {
        (Some(pid), _) => format!("process with pid {pid}"),
        (None, Some(tag)) => format!("process with the tag `{}`", tag.escape_default()),
        (None, None) => "process without a pid".into(),
    };
    Err(Fault::new(Code::NotFound, format!("{name} not found")))
}

async fn list(sandbox: &Sandbox) -> Result<Value> {
    let mut processes = Vec::new();
    let mut add = |pid: u32, argv: &[String], env: &BTreeMap<String, String>, cwd: &Option<String>, tag: &Option<String>| {
        let (cmd, args) = argv.split_first().map_or((String::new(), Vec::new()), |(cmd, args)| (cmd.clone(), args.to_vec()));
        let mut config = json!({ "cmd": cmd, "args": args, "envs": env });
        if let Some(cwd) = cwd {
            config["cwd"] = json!(cwd);
        }
        let mut process = json!({ "pid": pid, "config": config });
        if let Some(tag) = tag {
            process["tag"] = json!(tag);
        }
        processes.push(process);
    };
    for user in sandbox.users().await? {
        let all: ProcessList = user.get("processes").await?;
        all.processes.iter().filter(|p| p.running).for_each(|p| add(p.pid, &p.argv, &p.env, &p.cwd, &p.tag));
        let all: TerminalList = user.get("terminals").await?;
        all.terminals.iter().filter(|t| t.running).for_each(|t| add(t.pid, &t.argv, &t.env, &t.cwd, &t.tag));
    }
    Ok(json!({ "processes": processes }))
}

#[derive(Deserialize)]
struct SendInput {
    process: Selector,
    input: Input,
}

/// In base64, as it is handed on.
#[derive(Deserialize)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

async fn send_input(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let SendInput { process, input } = connect::message(headers, body).await?;
    let found = find(sandbox, &process, false).await?;
    write(&found, input).await?;
    Ok(json!({}))
}

async fn write(found: &Found<'_>, input: Input) -> Result<()> {
    let (Some(text), name) = (match found.terminal {
        true => (input.pty.or(input.stdin), "input"),
        false => (input.stdin.or(input.pty), "stdin"),
    }) else {
        return Err(Fault::bad("the call has no input"));
    };
    // Clients may write base64 in the alphabet of addresses too.
    let base64 = Some(text.replace('-', "+").replace('_', "/"));
    let wish = WriteStdin { base64, ..WriteStdin::default() };
    let path = format!("{}/{name}", found.path());
    found.user.tell(Method::POST, &path, &wish).await.map_err(|f| f.when(Code::AlreadyExists, Code::FailedPrecondition))
}

#[derive(Deserialize)]
struct StreamInput {
    start: Option<Selected>,
    data: Option<StreamData>,
}

#[derive(Deserialize)]
struct StreamData {
    input: Option<Input>,
}

async fn stream_input(sandbox: &Sandbox, body: Body) -> Result<()> {
    let mut messages = Envelopes::new(body);
    let mut found = None;
    while let Some(message) = messages.next_as::<StreamInput>().await? {
        if let Some(Selected { process }) = message.start {
            found = Some(find(sandbox, &process, false).await?);
        }
        if let Some(input) = message.data.and_then(|data| data.input) {
            let found = found.as_ref().ok_or_else(|| Fault::bad("the first message of a stream of input names the process"))?;
            write(found, input).await?;
        }
    }
    Ok(())
}

async fn close_stdin(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Selected { process } = connect::message(headers, body).await?;
    let found = find(sandbox, &process, false).await?;
    if found.terminal {
        return Err(Fault::new(Code::FailedPrecondition, "a terminal's input has no end; type Ctrl-D"));
    }
    let wish = WriteStdin { close: true, ..WriteStdin::default() };
    found.user.tell(Method::POST, &format!("{}/stdin", found.path()), &wish).await?;
    Ok(json!({}))
}

#[derive(Deserialize)]
struct Signal {
    process: Selector,
    signal: Value,
}

async fn send_signal(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Signal { process, signal } = connect::message(headers, body).await?;
    let name = match (signal.as_str(), signal.as_u64()) {
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => "KILL",
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => "TERM",
        _ => return Err(Fault::bad("the signal is `SIGNAL_SIGKILL` or `SIGNAL_SIGTERM`")),
    };
    let found = find(sandbox, &process, false).await?;
    let wish = SendSignal { signal: name.into(), tree: true };
    let sent = found.user.tell(Method::POST, &format!("{}/signal", found.path()), &wish).await;
    // It ended in between.
    sent.map_err(|fault| fault.when(Code::AlreadyExists, Code::NotFound))?;
    Ok(json!({}))
}

#[derive(Deserialize)]
struct Update {
    process: Selector,
    pty: Option<Pty>,
}

async fn update(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Update { process, pty } = connect::message(headers, body).await?;
    let found = find(sandbox, &process, false).await?;
    if let Some(PtySize { cols, rows }) = pty.and_then(|pty| pty.size) {
        if !found.terminal {
            return Err(Fault::new(Code::FailedPrecondition, "the process has no terminal"));
        }
        let _: TerminalInfo = found.user.post(&format!("{}/resize", found.path()), &ResizeTerminal { cols, rows }).await?;
    }
    Ok(json!({}))
}
