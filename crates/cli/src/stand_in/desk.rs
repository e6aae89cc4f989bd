//! The desk, asked over the socket for its programs. Blocking, one connection for each question: this process asks one or two.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The desk answers in milliseconds; typing a long text takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const SOCKET: &str = "HOTDESK_DESK_SOCKET";
const DISPLAY: &str = "HOTDESK_DESK_DISPLAY";

/// What the desk said instead of doing it.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) detail: String,
}

/// The number of the display that the desk has.
pub(super) fn display() -> Option<u16> {
    std::env::var(DISPLAY).ok()?.trim_start_matches(':').parse().ok()
}

fn socket() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(SOCKET).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    // After `sudo` the environment is gone; a desk has one user with a session.
    let sessions = std::fs::read_dir("/run/user").ok()?.flatten().map(|entry| entry.path().join("hotdesk.sock"));
    sessions.into_iter().find(|path| path.exists())
}

/// Asks, and gives the body of a good answer. None: there is no desk to ask.
pub(super) fn ask(method: &str, path: &str, body: Option<&Value>) -> Option<Result<Vec<u8>, Refused>> {
    let stream = UnixStream::connect(socket()?).ok()?;
    let answer = exchange(stream, method, path, body);
    Some(answer.unwrap_or_else(|e| Err(Refused { status: 503, detail: format!("the desk does not answer: {e}") })))
}

/// The same, for answers in JSON.
pub(super) fn json<T: DeserializeOwned>(method: &str, path: &str, body: Option<&Value>) -> Option<Result<T, Refused>> {
    let answer = ask(method, path, body)?;
    Some(answer.and_then(|body| {
        serde_json::from_slice(&body)
            .map_err(|e| Refused { status: 500, detail: format!("the desk's answer can't be read: {e}") })
    }))
}

fn exchange(mut stream: UnixStream, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Result<Vec<u8>, Refused>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: desk\r\nconnection: close\r\nx-hotdesk-entrance: xdotool\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(parse(&answer))
}

fn parse(answer: &[u8]) -> Result<Vec<u8>, Refused> {
    let broken = || Refused { status: 500, detail: "the desk's answer is not whole".into() };
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status: u16 = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    let body = answer[end + 4..].to_vec();
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let problem: Option<Value> = serde_json::from_slice(&body).ok();
    let detail = problem.and_then(|problem| problem.get("detail")?.as_str().map(str::to_owned));
    Err(Refused { status, detail: detail.unwrap_or_else(|| format!("the desk answered {status}")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap(), b"{}");
        let refused = parse(b"HTTP/1.1 404 Not Found\r\n\r\n{\"detail\": \"no such window\"}").unwrap_err();
        assert_eq!((refused.status, refused.detail.as_str()), (404, "no such window"));
        assert!(parse(b"HTTP/1.1 200").is_err());
    }
}
