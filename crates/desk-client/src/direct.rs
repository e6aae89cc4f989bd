//! Connections to a desk's server: one for each request, one that leads on to a port, and those that others keep.

use crate::body::read;
use crate::{Client, Error, Refusal, Result, Transport};
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

/// What a desk says about a port that it can't reach.
const LARGEST_REFUSAL: usize = 64 << 10;

/// Somebody who can connect to a desk's server, and knows what opens it.
pub trait Connect: Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Puts on a request what opens the desk: see [`crate::headers`].
    fn open(&self, headers: &mut HeaderMap);

    /// A client that makes a connection for each request.
    fn client(&self) -> Client<Direct<&Self>> {
        Client::new(Direct(self))
    }
}

impl<C: Connect> Connect for &C {
    type Stream = C::Stream;

    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send {
        C::connect(self)
    }

    fn open(&self, headers: &mut HeaderMap) {
        C::open(self, headers);
    }
}

/// A connection for each request.
#[derive(Debug, Clone)]
pub struct Direct<C>(pub C);

impl<C: Connect> Transport for Direct<C> {
    type Sent = Full<Bytes>;
    type Received = Received;
    type Budget = ();

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Received>> {
        self.0.open(request.headers_mut());
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let stream = self.0.connect().await.map_err(Error::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Error::broken)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            let stream = connection.without_shutdown().await.map_err(io::Error::other)?.io;
            // The server closes, not we: whoever waits for that knows that nothing of this connection is left there.
            tokio::io::copy(&mut stream.into_inner().take(LARGEST_REFUSAL as u64), &mut tokio::io::sink()).await
        }));
        let answer = sender.send_request(request).await.map_err(Error::broken)?;
        Ok(answer.map(|body| Received { body, connection }))
    }

    fn budget(&self) {}
}

/// The body of an answer. The connection is closed with it.
#[derive(Debug)]
pub struct Received {
    body: Incoming,
    connection: AbortOnDropHandle<io::Result<u64>>,
}

impl Received {
    /// The whole of it, when the server has closed the connection.
    pub(crate) async fn until_closed(self, largest: usize) -> Result<Bytes> {
        let bytes = read(self.body, largest, ()).await?.bytes;
        self.connection.await.map_err(Error::broken)?.map_err(Error::broken)?;
        Ok(bytes)
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection for whoever keeps it, or passes requests of others on. `held` is dropped when it ends.
pub async fn handshake<S, B>(stream: S, held: impl Send + 'static) -> hyper::Result<SendRequest<B>>
where
    S: Read + Write + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(async move {
        // Ends when either side has enough; whoever has a request on it is told.
        let _ = connection.with_upgrades().await;
        drop(held);
    });
    Ok(sender)
}

/// Leads a connection to a desk's server on to a port of its loopback.
pub async fn enter_port<S>(stream: S, port: u16, open: impl FnOnce(&mut HeaderMap)) -> Result<Upgraded>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut sender = handshake(TokioIo::new(stream), ()).await.map_err(Error::broken)?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = format!("/v1/ports/{port}").parse().map_err(Error::broken)?;
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    request.headers_mut().insert(UPGRADE, HeaderValue::from_static("tcp"));
    open(request.headers_mut());
    let answer = sender.send_request(request).await.map_err(Error::broken)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let text = read(answer.into_body(), LARGEST_REFUSAL, ()).await.map(|whole| whole.bytes).unwrap_or_default();
        return Err(Error::Refused(Box::new(Refusal::new(status, &text))));
    }
    hyper::upgrade::on(answer).await.map_err(Error::broken)
}
