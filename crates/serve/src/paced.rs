//! Bodies that stop coming, and bodies that nobody wants to read.

use axum::body::{Body, HttpBody};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hotdesk_api::Problem;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// A body has to bring `PACE_BYTES` in each `PACE_TIME`: slower than any network that works, and
/// independent of how large the body is.
const PACE_TIME: Duration = Duration::from_secs(30);
const PACE_BYTES: usize = 1024;

/// The body, made to fail when it comes too slowly while somebody waits for it.
pub fn paced(body: Body) -> (Body, Fate) {
    let fate = Fate::default();
    if body.is_end_stream() {
        return (body, fate);
    }
    (Body::new(Paced::new(body, fate.clone())), fate)
}

/// What becomes of a body.
#[derive(Clone, Default)]
pub struct Fate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stalled: AtomicBool,
    /// What nobody wanted to read.
    unread: Mutex<Option<Body>>,
}

impl Fate {
    /// The answer to the request: another one if its body stopped coming. What was not read of the body is thrown away, up to so many
    /// bytes: a client that is still sending when the connection is closed gets an error from its own system, and never sees an answer.
    pub fn settle(&self, response: Response, discard: u64) -> Response {
        if let Some(rest) = self.unread().take() {
            tokio::spawn(throw_away(rest, discard));
        }
        if !self.0.stalled.load(Ordering::Relaxed) {
            return response;
        }
        let problem = Problem {
            code: "stalled".into(),
            status: StatusCode::REQUEST_TIMEOUT.as_u16(),
            title: "The request stopped coming".into(),
            detail: format!("fewer than {PACE_BYTES} bytes of the body came in {} s", PACE_TIME.as_secs()),
            hint: Some("send the whole body without a pause".into()),
            retry: true,
        };
        let headers = [(header::CONTENT_TYPE, "application/problem+json"), (header::CONNECTION, "close")];
        (StatusCode::REQUEST_TIMEOUT, headers, serde_json::to_string(&problem).unwrap_or_default()).into_response()
    }

    fn unread(&self) -> std::sync::MutexGuard<'_, Option<Body>> {
        self.0.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn throw_away(rest: Body, mut left: u64) {
    let mut rest = Paced::new(rest, Fate::default());
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
    /// Runs while somebody waits; time that the reader takes is not the client's fault.
    waiting: Option<Pin<Box<Sleep>>>,
    came: usize,
    done: bool,
    fate: Fate,
}

impl Paced {
    fn new(body: Body, fate: Fate) -> Self {
        Self { body, waiting: None, came: 0, done: false, fate }
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        if !self.done && !self.body.is_end_stream() {
            let rest = std::mem::take(&mut self.body);
            *self.fate.unread() = Some(rest);
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
    use std::sync::atomic::AtomicU64;

    /// So many pieces of such a size, with a pause before each; counts those that were taken.
    fn pieces(count: u64, pause: Duration, size: usize) -> (Body, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        let counter = taken.clone();
        let body = stream::unfold(0, move |n| {
            let counter = counter.clone();
            async move {
                tokio::time::sleep(pause).await;
                (n < count).then(|| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    (Ok::<_, std::io::Error>(Bytes::from(vec![0; size])), n + 1)
                })
            }
        });
        (Body::from_stream(body), taken)
    }

    async fn upload(count: u64, pause: Duration, size: usize) -> (Option<usize>, StatusCode) {
        let (body, fate) = paced(pieces(count, pause, size).0);
        let came = axum::body::to_bytes(body, usize::MAX).await.ok().map(|bytes| bytes.len());
        (came, fate.settle(Response::default(), 0).status())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_may_take_hours_if_it_moves() {
        assert_eq!(upload(500, Duration::from_secs(29), 1024).await, (Some(512_000), StatusCode::OK));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_drips_is_given_up() {
        assert_eq!(upload(2, Duration::from_secs(31), 1024).await, (None, StatusCode::REQUEST_TIMEOUT));
        assert_eq!(upload(1000, Duration::from_secs(5), 1).await, (None, StatusCode::REQUEST_TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_read_is_thrown_away_up_to_a_limit() {
        for (limit, taken) in [(u64::MAX, 100), (5 << 10, 5)] {
            let (body, count) = pieces(100, Duration::from_secs(1), 1 << 10);
            let (body, fate) = paced(body);
            drop(body);
            assert_eq!(fate.settle(Response::default(), limit).status(), StatusCode::OK);
            tokio::time::sleep(Duration::from_secs(200)).await;
            assert_eq!(count.load(Ordering::Relaxed), taken);
        }
    }
}
