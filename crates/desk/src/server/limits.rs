//! What a request may cost before its route has seen it.

use crate::error::Error;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

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

/// A body has to bring `PACE_BYTES` in each `PACE_TIME`: slower than any network that works, and
/// independent of how large the body is.
const PACE_TIME: Duration = Duration::from_secs(30);
const PACE_BYTES: usize = 1024;

/// How much of a refused body is read and thrown away.
const DISCARD_BYTES: u64 = 1 << 30;

/// The middleware: a request whose body stops coming is answered 408 and its connection closed.
pub async fn body_keeps_coming(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let fate = Arc::new(Fate::default());
    let request = request.map(|body| Body::new(Paced::new(body, fate.clone(), PACE_TIME)));
    let response = next.run(request).await;
    if let Some(rest) = fate.unread() {
        tokio::spawn(discard(rest));
    }
    if !fate.stalled.load(Ordering::Relaxed) {
        return response;
    }
    let mut response = super::problems::response(&hotdesk_api::Problem {
        code: "stalled".into(),
        status: StatusCode::REQUEST_TIMEOUT.as_u16(),
        title: "The request stopped coming".into(),
        detail: format!("fewer than {PACE_BYTES} bytes of the body came in {} s", PACE_TIME.as_secs()),
        hint: Some("send the whole body without a pause".into()),
        retry: true,
    });
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}

/// What became of a body.
#[derive(Default)]
struct Fate {
    stalled: AtomicBool,
    /// What the route did not want to read.
    unread: Mutex<Option<Body>>,
}

impl Fate {
    fn unread(&self) -> Option<Body> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Takes the rest of a body that was refused: a client that is still sending when the connection is closed gets an error
/// from its own system, and never sees our answer.
async fn discard(rest: Body) {
    let mut rest = Paced::new(rest, Arc::default(), PACE_TIME);
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

/// A body that fails when it comes too slowly while somebody waits for it.
struct Paced {
    body: Body,
    time: Duration,
    /// Runs while somebody waits; time that a slow disk takes is not the client's fault.
    waiting: Option<Pin<Box<Sleep>>>,
    came: usize,
    done: bool,
    fate: Arc<Fate>,
}

impl Paced {
    fn new(body: Body, fate: Arc<Fate>, time: Duration) -> Self {
        Self { body, time, waiting: None, came: 0, done: false, fate }
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        if !self.done && !self.body.is_end_stream() {
            let rest = std::mem::take(&mut self.body);
            *self.fate.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
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
                let time = this.time;
                let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + time)));
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.done = true;
                this.fate.stalled.store(true, Ordering::Relaxed);
                let error = Error::Timeout { what: "the next part of the body".into(), limit: time };
                Poll::Ready(Some(Err(axum::Error::new(error))))
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
    use axum::{Router, middleware, routing};
    use futures_util::stream;
    use tower::ServiceExt;

    async fn upload(pieces: u64, pause: Duration, size: usize) -> (StatusCode, String) {
        let app = Router::new()
            .route("/", routing::put(|body: Bytes| async move { body.len().to_string() }))
            .layer(middleware::from_fn(body_keeps_coming));
        let body = stream::unfold(0, move |n| async move {
            tokio::time::sleep(pause).await;
            (n < pieces).then(|| (Ok::<_, std::io::Error>(Bytes::from(vec![0; size])), n + 1))
        });
        let request = Request::put("/").body(Body::from_stream(body)).unwrap();
        let response = app.oneshot(request).await.unwrap();
        let status = response.status();
        let text = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8_lossy(&text).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_may_take_hours_if_it_moves() {
        let (status, size) = upload(500, Duration::from_secs(29), 1024).await;
        assert_eq!((status, size.as_str()), (StatusCode::OK, "512000"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_drips_is_given_up() {
        assert_eq!(upload(2, Duration::from_secs(31), 1024).await.0, StatusCode::REQUEST_TIMEOUT);
        let (status, text) = upload(1000, Duration::from_secs(5), 1).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert!(text.contains("stalled"), "{text}");
    }
}
