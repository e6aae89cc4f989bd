//! The desk, asked over the socket for its programs. Blocking, one connection for each question: this process asks one or two.

use hotdesk_api::health::Info;
use hotdesk_desk::place::numbers;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The desk answers in milliseconds; typing a long text takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// In the directory of its session.
const SOCKET: &str = "hotdesk.sock";

/// What the desk said instead of doing it.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) detail: String,
}

/// The number of the display that the desk has.
pub(super) fn display() -> Option<u16> {
    number(&json::<Info>("GET", "/v1/info", None)?.ok()?.display)
}

/// Whether `DISPLAY` means the desk's: some other server's is for the real program.
pub(super) fn is_meant() -> bool {
    let Ok(told) = std::env::var("DISPLAY") else { return true };
    let Some(told) = number(&told) else { return told.is_empty() };
    // A display that a client wanted leads to the desk's by a link.
    numbers::socket(told).is_symlink() || display().is_none_or(|own| own == told)
}

/// `:99`, `:99.0`
fn number(display: &str) -> Option<u16> {
    display.strip_prefix(':')?.split('.').next()?.parse().ok()
}

fn socket() -> Option<PathBuf> {
    // Told to programs of other users than the session's.
    let told = std::env::var_os("HOTDESK_DESK_SOCKET").map(PathBuf::from);
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join(SOCKET));
    // After `sudo` the environment is gone; a desk has one user with a session.
    let sessions = std::fs::read_dir("/run/user").into_iter().flatten().flatten().map(|entry| entry.path().join(SOCKET));
    told.into_iter().chain(own).chain(sessions).find(|path| path.exists())
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
    fn displays_are_read() {
        assert_eq!([":99", ":99.0", "far:1", "", ":"].map(number), [Some(99), Some(99), None, None, None]);
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap(), b"{}");
        let refused = parse(b"HTTP/1.1 404 Not Found\r\n\r\n{\"detail\": \"no such window\"}").unwrap_err();
        assert_eq!((refused.status, refused.detail.as_str()), (404, "no such window"));
        assert!(parse(b"HTTP/1.1 200").is_err());
    }
}
