//! What a request may cost before its route has seen it.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use std::time::Duration;

/// The largest JSON body: input for a program, or an image for the clipboard, in base64.
/// Routes that stream (files, archives) have no limit but the disk.
pub const JSON_BODY: usize = 16 << 20;

/// Connections at a time. Each costs some 20 KiB and a file descriptor, of which a process has 1024 by default.
pub const CONNECTIONS: usize = 512;

/// How long a client may take for a request's head, and how long a connection may idle between requests.
pub const HEAD_TIME: Duration = Duration::from_secs(60);

/// A request's head: addresses hold paths of files, but no more.
pub const HEAD_BYTES: usize = 64 << 10;
pub const HEADERS: usize = 100;

/// How long a client may leave an answer unread before it is given up.
pub const WRITE_TIME: Duration = Duration::from_secs(60);

/// How much of a refused body is read and thrown away.
const DISCARD_BYTES: u64 = 1 << 30;

/// The middleware: a request whose body stops coming is answered 408 and its connection closed.
pub async fn body_keeps_coming(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let (body, fate) = hotdesk_serve::paced(body);
    let response = next.run(Request::from_parts(parts, body)).await;
    fate.settle(response, DISCARD_BYTES)
}
