//! Commands that run to their end, and what the sandbox uses.

use super::super::Call;
use super::super::access;
use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, ok};
use axum::http::{Method, StatusCode};
use hotdesk_api::port::PortList;
use hotdesk_api::process::{ChangeVariables, RunProcess, RunResult};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// A command without a limit of the client's may take as long as the desk lets one: a day.
const LONGEST_S: f64 = 24.0 * 3600.0;
/// The most that the desk keeps of a command's output.
const OUTPUT: u64 = 16 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Execute {
    command: String,
    cwd: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<f64>,
}

pub(crate) async fn execute(mut call: Call, desk: &Desk) -> Reply {
    let wanted: Execute = call.json().await?;
    if wanted.command.trim().is_empty() {
        return Err(Failure::bad_request("bad request: command is required"));
    }
    let run = RunProcess { shell: Some(wanted.command), cwd: wanted.cwd.filter(|cwd| !cwd.is_empty()), ..RunProcess::default() };
    let result = run_in(desk, run, wanted.envs, wanted.timeout).await?;
    ok(json!({"exitCode": exit_code(&result), "result": result.stdout}))
}

/// Changes the environment of all that is started from now on.
pub(crate) async fn change_variables(mut call: Call, desk: &Desk) -> Reply {
    let change: ChangeVariables = call.json().await?;
    desk.json::<serde_json::Value>(Method::PATCH, "/v1/variables", &change).await?;
    ok(json!({"message": "the environment is changed"}))
}

/// Runs a program; both of its streams are one.
pub(crate) async fn run_in(
    desk: &Desk,
    run: RunProcess,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<f64>,
) -> Reply<RunResult> {
    let seconds = timeout.filter(|seconds| *seconds > 0.0).unwrap_or(LONGEST_S).min(LONGEST_S);
    let run = RunProcess {
        env: envs.unwrap_or_default().into_iter().map(|(name, value)| (name, Some(value))).collect(),
        timeout_ms: Some((seconds * 1000.0) as u64),
        output_limit: Some(OUTPUT),
        merge_stderr: true,
        ..run
    };
    let result: RunResult = desk.post("/v1/processes/run", &run).await?;
    if result.exit.timed_out {
        let message = format!("request timeout: command execution timeout: it took longer than {seconds} s and was ended");
        return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, message).daemon("PROCESS_EXECUTION_TIMEOUT"));
    }
    Ok(result)
}

/// A program that a signal ended has none; shells tell it so.
pub(crate) fn exit_code(result: &RunResult) -> i32 {
    result.exit.exit_code.unwrap_or(-1)
}

pub(crate) async fn metrics(desk: &Desk) -> Reply {
    let usage = desk.app.fleet.usage(&desk.caller.who, &desk.id).await?;
    let shown = desk.app.fleet.desk(&desk.caller.who, &desk.id).await?;
    let (cpus, mib) = (shown.resources.cpus, 1024 * 1024);
    let begun: Option<jiff::Timestamp> = shown.changed_at.parse().ok();
    let seconds = begun.map_or(1.0, |begun| jiff::Timestamp::now().duration_since(begun).as_secs_f64()).max(1.0);
    ok(json!({
        "cpuCount": cpus.ceil() as u64,
        "cpuUsedPct": (usage.cpu_s / seconds / f64::from(cpus.max(0.1)) * 100.0).clamp(0.0, 100.0),
        "diskTotal": shown.resources.disk_mib * mib,
        "diskUsed": usage.disk_bytes,
        "memTotal": shown.resources.memory_mib * mib,
        "memUsed": usage.memory_bytes,
        "memCache": 0,
        "timestamp": jiff::Timestamp::now().to_string(),
    }))
}

/// Ports that something listens on.
pub(crate) async fn ports(desk: &Desk) -> Reply {
    let list: PortList = desk.get("/v1/ports").await?;
    let ports: BTreeSet<u16> = list.ports.iter().map(|one| one.port).collect();
    ok(json!({"ports": ports}))
}

pub(crate) async fn port_in_use(call: &Call, desk: &Desk, port: &str) -> Reply {
    let port = access::port(port)?;
    ok(json!({"isInUse": crate::proxy::listens(&call.app, &call.caller, &desk.id, port).await}))
}
