//! Output of a program as E2B streams it: a start, pieces, an end; a sign of life in between.

use super::connect;
use super::desk::Events;
use super::fault::{Code, Fault};
use super::text;
use axum::http::HeaderMap;
use axum::response::Response;
use hotdesk_api::process::{Exit, OutputEvent};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How often a quiet stream shows that it lives, if the client does not say.
const KEEPALIVE: Duration = Duration::from_secs(90);

/// How long a stream may last, and how it is kept alive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    end: Option<Instant>,
    keepalive: Duration,
}

impl Plan {
    pub(super) fn new(headers: &HeaderMap, limit: Option<Duration>) -> Self {
        let seconds = text(headers, "keepalive-ping-interval").and_then(|text| text.parse::<u64>().ok()).filter(|s| *s > 0);
        let keepalive = seconds.map_or(KEEPALIVE, Duration::from_secs).min(KEEPALIVE);
        Self { end: limit.map(|limit| Instant::now() + limit), keepalive }
    }

    /// Waits for the stream's end, if it has one.
    pub(super) async fn over(self) {
        match self.end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn keepalive(self) -> Duration {
        self.keepalive
    }
}

/// What became of a stream that has to end now.
enum Last {
    Told,
    Fault(Fault),
}

/// The answer that carries a program's output.
pub(super) fn output(plan: Plan, pid: u32, terminal: bool, mut events: Events) -> Response {
    connect::stream(async_stream::try_stream! {
        yield connect::envelope(&json!({ "event": { "start": { "pid": pid } } }));
        let last = loop {
            let next = tokio::select! {
                next = events.next_json() => next,
                () = plan.over() => break Last::Fault(Fault::new(Code::DeadlineExceeded, "the time of the command is over")),
                () = tokio::time::sleep(plan.keepalive()) => {
                    yield connect::envelope(&json!({ "event": { "keepalive": {} } }));
                    continue;
                }
            };
            match next {
                Ok(Some(OutputEvent::Stdout { data, .. })) => {
                    let name = if terminal { "pty" } else { "stdout" };
                    yield connect::envelope(&json!({ "event": { "data": { name: data } } }));
                }
                Ok(Some(OutputEvent::Stderr { data, .. })) => {
                    yield connect::envelope(&json!({ "event": { "data": { "stderr": data } } }));
                }
                Ok(Some(OutputEvent::Exit { exit })) if exit.timed_out => {
                    break Last::Fault(Fault::new(Code::DeadlineExceeded, "the time of the command is over"));
                }
                Ok(Some(OutputEvent::Exit { exit })) => {
                    yield connect::envelope(&json!({ "event": { "end": ended(&exit) } }));
                    break Last::Told;
                }
                Ok(Some(OutputEvent::Lost { .. } | OutputEvent::Problem { .. })) => {}
                // The sandbox ended under the program. The connection breaks off, as it does when a machine dies; a stream that ended
                // in order would be taken for the program's own end.
                Ok(None) | Err(_) => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))?,
            }
        };
        match last {
            Last::Told => yield connect::end(None),
            Last::Fault(fault) => yield connect::end(Some(&fault)),
        }
    })
}

fn ended(exit: &Exit) -> Value {
    let code = exit.exit_code.unwrap_or(-1);
    let status = match &exit.signal {
        Some(signal) => format!("signal: {}", spoken(signal)),
        None => format!("exit status {code}"),
    };
    let mut end = json!({ "exitCode": code, "exited": exit.signal.is_none(), "status": status });
    if code != 0 {
        end["error"] = json!(status);
    }
    end
}

/// Signals as Go's library names them.
fn spoken(signal: &str) -> String {
    match signal {
        "SIGKILL" => "killed".into(),
        "SIGTERM" => "terminated".into(),
        "SIGINT" => "interrupt".into(),
        "SIGHUP" => "hangup".into(),
        "SIGSEGV" => "segmentation fault".into(),
        "SIGABRT" => "aborted".into(),
        other => other.trim_start_matches("SIG").to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_envd_tells_them() {
        let exit = |exit_code, signal: Option<&str>| Exit { exit_code, signal: signal.map(Into::into), timed_out: false };
        assert_eq!(ended(&exit(Some(0), None)), json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }));
        assert_eq!(
            ended(&exit(Some(4), None)),
            json!({ "exitCode": 4, "exited": true, "status": "exit status 4", "error": "exit status 4" })
        );
        assert_eq!(
            ended(&exit(None, Some("SIGKILL"))),
            json!({ "exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed" })
        );
    }
}
