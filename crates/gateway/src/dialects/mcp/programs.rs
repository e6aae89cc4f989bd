//! Programs of a desk: run to their end, or started to stay.

use super::Server;
use super::text::{LONGEST_TEXT, cut};
use super::tools::{Outcome, says};
use crate::dialects::native::{Ask, problem};
use hotdesk_api::process::{ProcessInfo, RunProcess, RunResult, StartProcess};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write;
use std::time::Duration;

const USUAL_SECONDS: u64 = 45;
const LONGEST_SECONDS: u64 = 600;
/// Bytes of output that are kept: what is shown of it, in the widest characters.
const OUTPUT: u64 = 4 * LONGEST_TEXT as u64;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// A script for sh.
    command: String,
    /// Where it runs; the home directory if left out.
    #[serde(default)]
    directory: Option<String>,
    /// What it reads from its standard input.
    #[serde(default)]
    input: Option<String>,
    /// Seconds after which it is ended; 45 if left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 600))]
    seconds: Option<u64>,
    /// Start it and do not wait: for programs with windows, and servers.
    #[serde(default)]
    background: bool,
}

pub(super) async fn run(server: Server, what: Run) -> Outcome {
    let desk = server.meant(what.desk.clone()).await?;
    if what.background { start(server, &desk, what).await } else { finish(server, &desk, what).await }
}

async fn start(server: Server, desk: &str, what: Run) -> Outcome {
    if what.input.is_some() || what.seconds.is_some() {
        return Err(problem(400, "invalid", "`input` and `seconds` are not for programs in the background"));
    }
    let start = StartProcess { shell: Some(what.command), cwd: what.directory, ..StartProcess::default() };
    let info: ProcessInfo = server.native.value(Ask::post(&["v1", "desks", desk, "processes"]).json(&start)).await?;
    says(format!("it was started, with the process id {}; look shows its window once it is there", info.pid))
}

async fn finish(server: Server, desk: &str, what: Run) -> Outcome {
    let seconds = what.seconds.unwrap_or(USUAL_SECONDS);
    if seconds == 0 || seconds > LONGEST_SECONDS {
        return Err(problem(400, "invalid", format!("`seconds` is {seconds}, but must be from 1 to {LONGEST_SECONDS}")));
    }
    let run = RunProcess {
        shell: Some(what.command),
        cwd: what.directory,
        stdin: what.input,
        timeout_ms: Some(seconds * 1000),
        output_limit: Some(OUTPUT),
        ..RunProcess::default()
    };
    let ask = Ask::post(&["v1", "desks", desk, "processes", "run"]).json(&run).waiting(Duration::from_secs(seconds));
    let done: RunResult = server.native.value(ask).await?;
    says(told(&done, seconds))
}

fn told(done: &RunResult, seconds: u64) -> String {
    let mut text = match (done.exit.timed_out, done.exit.exit_code, &done.exit.signal) {
        (true, ..) => format!("it was ended after {seconds} s; `background` is for what should stay"),
        (_, Some(code), _) => format!("exit code {code}"),
        (_, _, Some(signal)) => format!("ended by {signal}"),
        _ => "ended".to_owned(),
    };
    for (name, stream) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
        if !stream.is_empty() {
            let _ = write!(text, "\n{name}:\n{}", cut(stream, LONGEST_TEXT));
        }
    }
    if done.truncated {
        text.push_str("\n[… it printed more than was kept …]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::process::{Encoding, Exit};

    #[test]
    fn what_a_program_left_is_told() {
        let mut done = RunResult {
            stdout: "hi\n".into(),
            stderr: String::new(),
            encoding: Encoding::Text,
            exit: Exit { exit_code: Some(3), signal: None, timed_out: false },
            truncated: false,
            duration_ms: 1,
        };
        assert_eq!(told(&done, 45), "exit code 3\nstdout:\nhi\n");
        done.exit = Exit { exit_code: None, signal: Some("SIGKILL".into()), timed_out: true };
        done.stdout = "x".repeat(100_000);
        let text = told(&done, 45);
        assert!(text.starts_with("it was ended after 45 s") && text.len() < 31_000, "{}", text.len());
    }
}
