//! What a connection and a request may cost before anything is known about them.

use axum::body::{Body, HttpBody};
use std::time::Duration;

/// The largest body of a request to the fleet itself: environment and labels of a desk. What is passed on to a desk
/// is streamed, and has the desk's limits.
pub(crate) const JSON_BODY: usize = 1 << 20;

/// How long a client may take for a request's head, and how long a connection may idle between requests.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(75);
/// How long a client may take to agree on a cipher.
pub(crate) const TLS_TIME: Duration = Duration::from_secs(10);
/// A request's head: addresses hold paths of files, but no more.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
pub(crate) const HEADERS: usize = 100;
/// How long a client may leave an answer unread before it is given up.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(60);
/// Requests at a time on one HTTP/2 connection.
pub(crate) const STREAMS: u32 = 128;

/// How many connections this process can hold: one that is passed on needs two files, and desks, store and logs some.
pub(crate) fn connections(wanted: usize) -> usize {
    const OTHER_FILES: u64 = 256;
    const SHARE: u64 = 3;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = files.saturating_sub(OTHER_FILES) / SHARE;
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(64)
}

/// How much of a refused body is read and thrown away.
pub(crate) const DISCARD_BYTES: u64 = 64 << 20;

/// Whether a body says that it is too large, so that nobody has to wait for it.
pub(crate) fn announces_more(body: &Body, limit: usize) -> bool {
    usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit)
}
