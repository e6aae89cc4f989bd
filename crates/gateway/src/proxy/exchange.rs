//! One request to a desk and its answer.

use super::pool::{NoWay, Pool, Sender, Way};
use super::{Passage, cdp, closed, headers};
use crate::entrance::PassedOn;
use crate::refusal::{Refusal, Result};
use crate::route::Class;
use crate::{guest, metrics};
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// A desk is busy while a request takes longer than that.
const LONG: Duration = Duration::from_secs(2);
/// How long a kept connection may take to be free: its last answer is over, it only has to notice.
const FREE: Duration = Duration::from_millis(50);
/// Lists of a browser's pages.
const LARGEST_LIST: usize = 8 << 20;

/// Work on a desk under a caller's right; see [`Passage::works`].
pub(super) type Work = AbortOnDropHandle<String>;

pub(super) async fn run(passage: Passage, request: Request) -> Result<Response> {
    let started = Instant::now();
    let mut work = passage.works("request", LONG);
    let way = passage.way();
    let request = passage.outgoing(request)?;
    let (answer, sender) = tokio::select! {
        sent = send(&passage, &way, request) => sent?,
        reason = &mut work => {
            let reason = reason.unwrap_or_default();
            return Err(Refusal::denied(format!("{reason}, and the desk has not answered yet; what was asked may have been done")));
        }
    };
    finish(passage, answer, Some((way, sender)), work, started).await
}

impl Passage {
    pub(super) fn way(&self) -> Way {
        Way { address: self.door.address.clone(), port: self.target.port }
    }

    /// The client's request as the desk gets it.
    pub(super) fn outgoing(&self, request: Request) -> Result<Request> {
        let (mut parts, body) = request.into_parts();
        headers::to_desk(&mut parts.headers, self);
        if cdp::applies(&self.target) {
            // It is read here, so it has to come as it is.
            parts.headers.remove(header::ACCEPT_ENCODING);
        }
        let uri = self.target.path.parse().map_err(|_| Refusal::invalid("the address can't be passed on"))?;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = parts.headers;
        Ok(request)
    }

    /// Says that the desk is busy, from `after` on, until the handle is dropped. Ends, with the reason, when the right is over by which
    /// the caller was let in.
    pub(super) fn works(&self, why: &'static str, after: Duration) -> Work {
        let (app, caller, desk) = (self.app.clone(), self.caller.clone(), self.desk.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // It may have been named by its name.
            let _busy = app.fleet.desk(&caller.who, &desk).await.ok().map(|desk| app.fleet.busy(&desk.id, why));
            guest::right_ends(&app, &caller).await
        }))
    }

    /// What a client is told when there is no way to the desk.
    pub(super) async fn no_way(&self, reason: NoWay) -> Refusal {
        match reason {
            NoWay::Port(reason) => {
                Refusal::unavailable(reason).hint("start the program that listens there, or wait until it does")
            }
            NoWay::Desk(error) => {
                tracing::debug!(%error, "a desk can't be reached");
                closed(&self.app, &self.caller, &self.desk).await.unwrap_or_else(|| {
                    Refusal::unavailable(format!("the desk {} does not answer: {error}", self.desk))
                        .hint("it is looked after; ask again in a moment")
                })
            }
        }
    }

    /// What a client is told when a desk broke off before it answered.
    async fn lost(&self, error: hyper::Error, reading: bool) -> Refusal {
        tracing::debug!(%error, "a desk broke off");
        if reading {
            return match closed(&self.app, &self.caller, &self.desk).await {
                Some(refusal) => refusal,
                None => Refusal::unavailable(format!("the desk {} broke off before it answered: {error}", self.desk)),
            };
        }
        let detail = format!("the desk {} broke off before it answered: {error}; what was asked may have been done", self.desk);
        Refusal::bad_gateway(detail).hint("look at the desk before you send it again")
    }
}

async fn send(passage: &Passage, way: &Way, mut request: Request) -> Result<(hyper::Response<Incoming>, Sender)> {
    let reading = (request.method() == Method::GET || request.method() == Method::HEAD) && request.body().is_end_stream();
    if let Some(mut sender) = passage.app.pool.take(way)
        && matches!(tokio::time::timeout(FREE, sender.ready()).await, Ok(Ok(())))
    {
        let copy = reading.then(|| copy(&request));
        match sender.try_send_request(request).await {
            Ok(answer) => return Ok((answer, sender)),
            Err(mut error) => match (error.take_message(), copy) {
                // Nothing of it left this process.
                (Some(back), _) => request = back,
                // The connection was dead, or the desk died with it; reading twice does no harm.
                (None, Some(copy)) => request = copy,
                (None, None) => return Err(passage.lost(error.into_error(), reading).await),
            },
        }
        metrics::retried();
    }
    let mut sender = match passage.app.pool.connect(&passage.door, way).await {
        Ok(sender) => sender,
        Err(reason) => return Err(passage.no_way(reason).await),
    };
    match sender.send_request(request).await {
        Ok(answer) => Ok((answer, sender)),
        Err(error) => Err(passage.lost(error, reading).await),
    }
}

/// A request without a body, once more.
fn copy(request: &Request) -> Request {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Hands the answer to the client; with `connection`, that is kept for the next request afterwards.
pub(super) async fn finish(
    passage: Passage,
    answer: hyper::Response<Incoming>,
    connection: Option<(Way, Sender)>,
    work: Work,
    started: Instant,
) -> Result<Response> {
    // A desk's own server knows the token that it was sent. Whoever refuses it is another one, at an address that was given away while
    // its host was down; where ours is now, the next look at the provider tells.
    if passage.door.is_stranger(answer.status()) && passage.target.port.is_none() {
        return Err(Refusal::unavailable(format!("the desk {} is not where it was; it is being looked for", passage.desk)));
    }
    let (mut parts, body) = answer.into_parts();
    headers::from_desk(&mut parts.headers, &passage);
    let mut body = Passing {
        body,
        back: connection.map(|(way, sender)| (passage.app.pool.clone(), way, sender)),
        class: passage.caller.class,
        status: parts.status,
        started,
        work: Some(work),
    };
    body.settle();
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    answer.extensions_mut().insert(PassedOn);
    if cdp::applies(&passage.target) && cdp::is_json(answer.headers()) {
        let text = Limited::new(body, LARGEST_LIST).collect().await;
        let text = text.map_err(|e| Refusal::bad_gateway(format!("the browser's list did not come whole: {e}")))?.to_bytes();
        let port = passage.target.port.unwrap_or_default();
        let text = cdp::Base::of(&passage, port).rewrite(&text).map_or(text, Bytes::from);
        answer.headers_mut().remove(header::CONTENT_LENGTH);
        *answer.body_mut() = Body::from(text);
    } else {
        *answer.body_mut() = Body::new(body);
    }
    Ok(answer)
}

/// The body of an answer. When it was read to its end, the connection is free again; when the client leaves before, the
/// connection is closed, by which the desk learns of it.
struct Passing {
    body: Incoming,
    back: Option<(Arc<Pool>, Way, Sender)>,
    class: Class,
    status: StatusCode,
    started: Instant,
    /// None when it is over.
    work: Option<Work>,
}

impl Passing {
    fn settle(&mut self) {
        if self.body.is_end_stream()
            && let Some((pool, way, sender)) = self.back.take()
        {
            pool.give(way, sender);
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        metrics::desk_answered(self.class, self.status.as_u16(), self.started.elapsed());
    }
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        // An answer may last as long as a tunnel.
        if let Some(work) = &mut self.work
            && let Poll::Ready(reason) = Pin::new(work).poll(cx)
        {
            (self.work, self.back) = (None, None);
            let over = io::Error::new(io::ErrorKind::ConnectionReset, reason.unwrap_or_default());
            return Poll::Ready(Some(Err(over.into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            // An end without a known length.
            None => {
                if let Some((pool, way, sender)) = self.back.take() {
                    pool.give(way, sender);
                }
            }
            Some(Ok(_)) => self.settle(),
            Some(Err(_)) => self.back = None,
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
