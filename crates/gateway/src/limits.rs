//! What a connection and a request may cost before anything is known about them.

use crate::refusal::Refusal;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

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

/// A body has to bring `PACE_BYTES` in each `PACE_TIME`: slower than any network that works, and
/// independent of how large the body is.
const PACE_TIME: Duration = Duration::from_secs(30);
const PACE_BYTES: usize = 1024;

/// How many connections this process can hold: one that is passed on needs two files, and desks, store and logs some.
pub(crate) fn connections(wanted: usize) -> usize {
    const OTHER_FILES: u64 = 256;
    const SHARE: u64 = 3;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = files.saturating_sub(OTHER_FILES) / SHARE;
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(64)
}

/// How much of a refused body is read and thrown away.
const DISCARD_BYTES: u64 = 64 << 20;

/// Whether a body says that it is too large, so that nobody has to wait for it.
pub(crate) fn announces_more(body: &Body, limit: usize) -> bool {
    usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit)
}

/// What became of a body.
#[derive(Clone, Default)]
pub(crate) struct Fate(Arc<FateInner>);

#[derive(Default)]
struct FateInner {
    stalled: AtomicBool,
    /// What nobody wanted to read.
    unread: Mutex<Option<Body>>,
}

impl Fate {
    /// The answer to a request whose body stopped coming, in place of what was made of the part.
    pub(crate) fn settle(&self, response: Response) -> Response {
        if let Some(rest) = self.0.unread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tokio::spawn(discard(rest));
        }
        if !self.0.stalled.load(Ordering::Relaxed) {
            return response;
        }
        let detail = format!("fewer than {PACE_BYTES} bytes of the body came in {} s", PACE_TIME.as_secs());
        let mut response = Refusal::new(StatusCode::REQUEST_TIMEOUT, "stalled", "The request stopped coming", detail)
            .hint("send the whole body without a pause")
            .into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// The body, made to fail when it comes too slowly while somebody waits for it.
pub(crate) fn paced(body: Body) -> (Body, Fate) {
    let fate = Fate::default();
    if body.is_end_stream() {
        return (body, fate);
    }
    (Body::new(Paced { body, waiting: None, came: 0, done: false, fate: fate.clone() }), fate)
}

/// Takes the rest of a body that was refused: a client that is still sending when the connection is closed gets an error
/// from its own system, and never sees our answer.
async fn discard(rest: Body) {
    let mut rest = Paced { body: rest, waiting: None, came: 0, done: false, fate: Fate::default() };
    let mut left = DISCARD_BYTES;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
        left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        if left == 0 {
            break;
        }
    }
    // Not handed back once more.
    rest.done = true;
}

struct Paced {
    body: Body,
    /// Runs while somebody waits; time that a slow desk takes is not the client's fault.
    waiting: Option<Pin<Box<Sleep>>>,
    came: usize,
    done: bool,
    fate: Fate,
}

impl Drop for Paced {
    fn drop(&mut self) {
        if !self.done && !self.body.is_end_stream() {
            let rest = std::mem::take(&mut self.body);
            *self.fate.0.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
        }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.done |= !matches!(frame, Some(Ok(_)));
                this.came += frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref().map(Bytes::len)).unwrap_or(0);
                if this.came >= PACE_BYTES {
                    this.came = 0;
                    this.waiting = None;
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(PACE_TIME)));
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.done = true;
                this.fate.0.stalled.store(true, Ordering::Relaxed);
                Poll::Ready(Some(Err(axum::Error::new("the next part of the body did not come"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    async fn upload(pieces: u64, pause: Duration, size: usize) -> (Option<usize>, bool) {
        let body = stream::unfold(0, move |n| async move {
            tokio::time::sleep(pause).await;
            (n < pieces).then(|| (Ok::<_, std::io::Error>(Bytes::from(vec![0; size])), n + 1))
        });
        let (body, fate) = paced(Body::from_stream(body));
        let came = axum::body::to_bytes(body, usize::MAX).await.ok().map(|bytes| bytes.len());
        (came, fate.settle(Response::default()).status() == StatusCode::REQUEST_TIMEOUT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_may_take_hours_if_it_moves() {
        assert_eq!(upload(500, Duration::from_secs(29), 1024).await, (Some(512_000), false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_drips_is_given_up() {
        assert_eq!(upload(2, Duration::from_secs(31), 1024).await, (None, true));
        assert_eq!(upload(1000, Duration::from_secs(5), 1).await, (None, true));
    }
}
