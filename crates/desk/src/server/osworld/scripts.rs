//! Scripts: `/run_python` and `/run_bash_script`.

use super::Engines;
use super::answer::{Answer, Refusal, json};
use super::body::Fields;
use super::command::{Ran, failure_text, label, natively, to_its_end};
use super::python;
use crate::error::Error;
use crate::place::Place;
use crate::process::{Command, Failure, OnLeave, OnTimeout, find_program};
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where Python scripts are put; their path is in their tracebacks.
const SCRIPTS: &str = "/tmp";
/// What runs them.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];
/// How long a Python script may take.
const PYTHON_LIMIT: Duration = Duration::from_secs(30);
/// How long a Bash script may take at most, whatever the client asks for: a day.
const LONGEST_SCRIPT: f64 = 86400.0;

pub(super) async fn run_python(State(desk): State<Engines>, fields: Fields) -> Answer {
    let Some(code) = fields.text("code")? else {
        return Err(Refusal::Json(StatusCode::BAD_REQUEST, json!({"status": "error", "message": "Code not supplied!"})));
    };
    let code = code.to_owned();
    to_its_end(async move {
        // A script finds its modules beside itself first.
        let ran = match natively(&desk, &code, Path::new(SCRIPTS), &PYTHONS, PYTHON_LIMIT).await {
            Ok(Some(ran)) => ran,
            Ok(None) => interpret(&desk, code).await?,
            Err(Error::Timeout { .. }) => return Err(python_too_slow()),
            Err(e) => return Err(e.into()),
        };
        Ok(label(ran.engine, json(&python_answer(&ran))))
    })
    .await
}

/// Runs a program with the real interpreter.
async fn interpret(desk: &Engines, code: String) -> Result<Ran, Refusal> {
    let python = PYTHONS.into_iter().find(|name| find_program(&desk.place, name).is_some());
    let Some(python) = python else {
        let why = "This desk has no Python: neither /usr/bin/python3 nor a python3 on the PATH. Install python3, or send a program that \
                   uses nothing but pyautogui, time and print.";
        return Err(python_failed(why));
    };
    let path = PathBuf::from(format!("{SCRIPTS}/python_exec_{:032x}.py", rand::random::<u128>()));
    let script = Script::write(path, code.into_bytes(), 0o644).await.map_err(|e| python_failed(&e))?;
    let mut command = Command::new([python, &script.name()]).limit(PYTHON_LIMIT);
    command.on_timeout = OnTimeout::KillChild;
    command.on_leave = OnLeave::Keep;
    match desk.processes.run(command).await {
        Ok(output) => Ok(Ran::process(output, "python")),
        Err(Failure::TimedOut { .. }) => Err(python_too_slow()),
        Err(failure) => Err(python_failed(&failure_text(failure))),
    }
}

fn python_answer(ran: &Ran) -> Value {
    let mut error = ran.stderr.clone();
    if error.is_empty() && ran.code != 0 {
        error = format!("Process exited with code {}", ran.code);
    }
    let message = match (ran.stdout.is_empty(), error.is_empty()) {
        (_, true) => ran.stdout.clone(),
        (true, false) => error.clone(),
        (false, false) => format!("{}\n{error}", ran.stdout),
    };
    let status = if ran.code == 0 { "success" } else { "error" };
    json!({"status": status, "message": message, "need_more": false, "output": ran.stdout, "error": error, "return_code": ran.code})
}

fn python_failed(why: &str) -> Refusal {
    let value = json!({"status": "error", "message": format!("Execution error: {why}"), "error": why, "need_more": false, "output": null});
    Refusal::Json(StatusCode::INTERNAL_SERVER_ERROR, value)
}

fn python_too_slow() -> Refusal {
    let value = json!({
        "status": "error", "message": "Execution timeout: Code took too long to execute",
        "error": "TimeoutExpired", "need_more": false, "output": null,
    });
    Refusal::Json(StatusCode::INTERNAL_SERVER_ERROR, value)
}

pub(super) async fn run_bash_script(State(desk): State<Engines>, fields: Fields) -> Answer {
    let Some(script) = fields.text("script")? else {
        return Err(bash_failed(StatusCode::BAD_REQUEST, "Script not supplied!"));
    };
    let timeout = if fields.get("timeout").is_null() { 100.into() } else { fields.number("timeout", 100)? };
    let working_dir = match fields.text("working_dir")? {
        None => None,
        Some(dir) => {
            let dir = python::expand_user(&desk.place, dir);
            if !tokio::fs::metadata(desk.place.home.join(&dir)).await.is_ok_and(|m| m.is_dir()) {
                return Err(bash_failed(StatusCode::BAD_REQUEST, &format!("Working directory does not exist: {dir}")));
            }
            Some(PathBuf::from(dir))
        }
    };
    let script = if script.contains("#!/bin/bash") { script.to_owned() } else { format!("#!/bin/bash\n\n{script}") };
    to_its_end(async move {
        let path = temporary_directory(&desk.place).join(format!("tmp{:016x}.sh", rand::random::<u64>()));
        let server_error = |why: &str| bash_failed(StatusCode::INTERNAL_SERVER_ERROR, why);
        let script = Script::write(path, script.into_bytes(), 0o755).await.map_err(|e| server_error(&e))?;
        let shell = if find_program(&desk.place, "/bin/bash").is_some() { "/bin/bash" } else { "sh" };
        let limit = timeout.as_f64().unwrap_or(0.0).clamp(0.0, LONGEST_SCRIPT);
        let mut command = Command::new([shell, &script.name()]).limit(Duration::from_secs_f64(limit));
        command.cwd = working_dir;
        command.merge_stderr = true;
        command.on_timeout = OnTimeout::KillChild;
        command.on_leave = OnLeave::Keep;
        match desk.processes.run(command).await {
            Ok(output) => {
                let ran = Ran::process(output, "process");
                let status = if ran.code == 0 { "success" } else { "error" };
                // What was merged is in the output; what is left in `stderr` is our own note.
                let all = ran.stdout.clone() + &ran.stderr;
                Ok(label(ran.engine, json(&json!({"status": status, "output": all, "error": "", "returncode": ran.code}))))
            }
            Err(Failure::TimedOut { .. }) => {
                Err(server_error(&format!("Script execution timed out after {} seconds", python::number(&timeout))))
            }
            Err(failure) => Err(server_error(&format!("Failed to execute script: {}", failure_text(failure)))),
        }
    })
    .await
}

fn bash_failed(status: StatusCode, why: &str) -> Refusal {
    Refusal::Json(status, json!({"status": "error", "output": why, "error": "", "returncode": -1}))
}

/// Where programs of the desk keep what is temporary.
pub(super) fn temporary_directory(place: &Place) -> PathBuf {
    let named = place.env.get("TMPDIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    named.unwrap_or_else(|| "/tmp".into())
}

/// A file that is there as long as this value.
struct Script(PathBuf);

impl Script {
    async fn write(path: PathBuf, text: Vec<u8>, mode: u32) -> Result<Self, String> {
        let written = tokio::task::spawn_blocking(move || {
            let script = Self(path);
            script.fill(&text, mode).map(|()| script)
        });
        written.await.map_err(|e| e.to_string())?
    }

    fn fill(&self, text: &[u8], mode: u32) -> Result<(), String> {
        let write = |path: &Path| {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text)?;
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
        };
        write(&self.0).map_err(|e| python::io_error(&e, &self.name()))
    }

    fn name(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // The script may have removed itself.
        let _ = std::fs::remove_file(&self.0);
    }
}
