//! The desk, asked over the socket for its programs. Blocking, one connection for each question: this process asks one or two.

use hotdesk_desk::place::numbers;
use hotdesk_desk_client::blocking::{self, Socket};
use hotdesk_desk_client::{Client, Direct, Error, Result};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The desk answers in milliseconds; typing a long text takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// A picture of a large screen.
const LARGEST_ANSWER: usize = 256 << 20;
/// In the directory of its session.
const SOCKET: &str = "hotdesk.sock";

/// The number of the display that the desk has.
pub(super) fn display() -> Option<u16> {
    number(&ask(async |desk| desk.info().await)?.ok()?.display)
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

/// Asks for one thing. None: there is no desk to ask.
pub(super) fn ask<T>(question: impl AsyncFnOnce(Client<Direct<Socket>>) -> Result<T>) -> Option<Result<T>> {
    let stream = UnixStream::connect(socket()?).ok()?;
    Some(blocking::ask(stream, None, async |desk| {
        question(desk.entrance("xdotool").within(PATIENCE).at_most(LARGEST_ANSWER)).await
    }))
}

/// What people are told when the desk did not do it.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::Refused(refusal) => refusal.to_string(),
        error => format!("the desk does not answer: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn displays_are_read() {
        assert_eq!([":99", ":99.0", "far:1", "", ":"].map(number), [Some(99), Some(99), None, None, None]);
    }

    #[test]
    fn refusals_are_told_in_the_desks_words() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let body = r#"{"code": "not_found", "status": 404, "title": "No", "detail": "no such window", "retry": false}"#;
        let answer = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let desk = std::thread::spawn(move || {
            other.read_exact(&mut [0; 20]).unwrap();
            other.write_all(answer.as_bytes()).unwrap();
            other
        });
        let refused = blocking::ask(own, None, async |desk| desk.get::<u8>("/v1/windows/1").await).unwrap_err();
        desk.join().unwrap();
        assert_eq!(reason(&refused), "no such window");
        assert_eq!(reason(&Error::Timeout(PATIENCE)), "the desk does not answer: no answer in 120 s");
    }
}
