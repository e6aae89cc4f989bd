//! Words with a desk's server, from the helper, which has one thread and waits for everything.
//!
//! The server's socket has two names. One is the server's own, by which it is restored. The other is a link to it, the door:
//! who reaches the desk does so by this one. While a desk is saved the door is away, and callers find nothing instead of
//! a server that does not answer.

use hotdesk_api::freeze::Thaw;
use hotdesk_desk_client::blocking;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The server's own name of its socket, in the desk's directory `run`.
pub(crate) const SOCKET: &str = crate::door::OWN_NAME;
/// By which everybody reaches it.
pub(crate) const DOOR: &str = "desk.sock";
/// Answers come at once; requests of others get half a second to end before.
const LIMIT: Duration = Duration::from_secs(10);
/// A server that was just restored on a busy machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
/// Of an answer that says no.
const LONGEST_REASON: usize = 500;

/// Ends all connections with the desk. When this returns, none is open.
pub(crate) fn freeze(run: &Path, token: &str) -> io::Result<()> {
    told(blocking::ask(connect(run)?, Some(token), async |desk| desk.within(LIMIT).freeze().await.map(drop)))
}

/// Makes the copy of a desk another desk.
pub(crate) fn thaw(run: &Path, token: &str, thaw: &Thaw) -> io::Result<()> {
    told(blocking::ask(connect(run)?, Some(token), async |desk| desk.within(LIMIT).thaw(thaw).await))
}

/// Lets callers in. A door that is there, whosever, is replaced.
pub(crate) fn open_door(run: &Path) -> io::Result<()> {
    let new = run.join("new.sock");
    let _ = std::fs::remove_file(&new);
    std::fs::hard_link(run.join(SOCKET), &new)?;
    let opened = std::fs::rename(&new, run.join(DOOR));
    // Two names of one file are not renamed.
    let _ = std::fs::remove_file(&new);
    opened
}

/// Removes what an earlier life left.
pub(crate) fn remove_door(run: &Path) {
    for name in [DOOR, SOCKET] {
        let _ = std::fs::remove_file(run.join(name));
    }
}

/// What the desk wrote may be long.
fn told(answer: hotdesk_desk_client::Result<()>) -> io::Result<()> {
    answer.map_err(|e| io::Error::other(e.to_string().chars().take(LONGEST_REASON).collect::<String>()))
}

fn connect(run: &Path) -> io::Result<UnixStream> {
    let path = run.join(SOCKET);
    let connect = || crate::door::open_socket(&path).and_then(|socket| UnixStream::connect(crate::door::by_number(&socket)));
    let end = Instant::now() + CONNECT_LIMIT;
    loop {
        match connect() {
            Err(e) if Instant::now() < end && matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound) => {
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}
