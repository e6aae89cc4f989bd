//! What a desk can be asked for, whichever way the request takes.

use crate::body::{Budget, Buffered, read};
use crate::headers::ENTRANCE;
use crate::{Direct, Error, Events, Refusal, Result};
use bytes::Bytes;
use hotdesk_api::activity::Activity;
use hotdesk_api::freeze::{Frozen, Thaw};
use hotdesk_api::health::Info;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use hyper::body::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is asked of a desk is small, as a rule.
const LARGEST: usize = 1 << 20;
/// A refusal is some sentences.
const LARGEST_REFUSAL: usize = 64 << 10;
/// They come with their status.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// The way to one desk.
pub trait Transport: Sync {
    /// The body of a request.
    type Sent: From<Bytes> + Send;
    /// The body of an answer.
    type Received: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin + Send;
    /// For answers that are held.
    type Budget: Budget + Send;

    /// Sends a request and gives the head of its answer, whatever its status.
    fn exchange(&self, request: Request<Self::Sent>) -> impl Future<Output = Result<Response<Self::Received>>> + Send;

    /// Whether the desk itself gave this answer.
    fn is_from_desk(&self, _: &Response<Self::Received>) -> bool {
        true
    }

    fn budget(&self) -> Self::Budget;
}

/// A desk, to be asked.
#[derive(Debug, Clone)]
pub struct Client<T> {
    transport: T,
    entrance: Option<&'static str>,
    limit: Option<Duration>,
    largest: usize,
}

/// The short form of `/health`, which needs no secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Health {
    pub ready: bool,
    #[serde(default)]
    pub stage: String,
}

impl<T> Client<T> {
    pub fn new(transport: T) -> Self {
        Self { transport, entrance: None, limit: None, largest: LARGEST }
    }

    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The name by which the desk's traces tell where an action came in.
    pub fn entrance(self, name: &'static str) -> Self {
        Self { entrance: Some(name), ..self }
    }

    /// Waits at most so long for an answer; without a word for as long as it takes.
    pub fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Reads answers of at most so many bytes, in place of 1 MiB.
    pub fn at_most(self, bytes: usize) -> Self {
        Self { largest: bytes, ..self }
    }
}

impl<T: Transport> Client<T> {
    /// How far the desk is.
    pub async fn health(&self) -> Result<Health> {
        // A desk that is not ready answers with 503, and with its stage.
        let whole =
            self.limited(async { self.read(self.exchange_json(Method::GET, "/health", Bytes::new()).await?).await }).await?;
        parse(&whole.bytes)
    }

    /// Signs of work.
    pub async fn activity(&self) -> Result<Activity> {
        self.get("/v1/activity").await
    }

    /// What the desk is, and what it can do.
    pub async fn info(&self) -> Result<Info> {
        self.get("/v1/info").await
    }

    /// Makes the copy of a desk another desk.
    pub async fn thaw(&self, thaw: &Thaw) -> Result<()> {
        self.tell(Method::POST, "/v1/thaw", thaw).await
    }

    /// Runs a program in OSWorld's words, which every server of a guest knows.
    pub async fn execute<V: DeserializeOwned>(&self, command: &impl Serialize) -> Result<V> {
        self.post("/execute", command).await
    }

    pub async fn get<V: DeserializeOwned>(&self, path: &str) -> Result<V> {
        self.json(Method::GET, path, &()).await
    }

    pub async fn post<V: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<V> {
        self.json(Method::POST, path, body).await
    }

    /// A call whose body and answer are JSON; `null` is no body, and no answer is `null`.
    pub async fn json<V: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Result<V> {
        let whole = self.send_json(method, path, body).await?;
        parse(if whole.bytes.is_empty() { b"null" } else { &whole.bytes })
    }

    /// The same, where the answer does not matter as long as it is a good one.
    pub async fn tell(&self, method: Method, path: &str, body: &impl Serialize) -> Result<()> {
        self.send_json(method, path, body).await.map(drop)
    }

    async fn send_json(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Buffered<T::Budget>> {
        let body = written(body)?;
        self.limited(async { self.read(self.check_status(self.exchange_json(method, path, body).await?).await?).await }).await
    }

    /// The whole of a good answer to a request whose body is no JSON.
    pub async fn bytes(&self, method: Method, path: &str, body: T::Sent) -> Result<Buffered<T::Budget>> {
        self.limited(async { self.read(self.check_status(self.exchange(request(method, path, body)?).await?).await?).await })
            .await
    }

    /// A good answer as it comes. The time limit is for its beginning.
    pub async fn stream(&self, method: Method, path: &str, body: T::Sent) -> Result<Response<T::Received>> {
        self.limited(async { self.check_status(self.exchange(request(method, path, body)?).await?).await }).await
    }

    /// Events as they come.
    pub async fn events(&self, path: &str) -> Result<Events<T::Received>> {
        Ok(Events::new(self.stream(Method::GET, path, Bytes::new().into()).await?.into_body()))
    }

    /// Events of what is asked for in JSON.
    pub async fn post_events(&self, path: &str, body: &impl Serialize) -> Result<Events<T::Received>> {
        let body = written(body)?;
        let exchange = async { self.check_status(self.exchange_json(Method::POST, path, body).await?).await };
        let begun = self.limited(exchange).await?;
        Ok(Events::new(begun.into_body()))
    }

    /// An answer as it comes, whatever its status; the request may have headers of its own.
    pub async fn exchange(&self, mut request: Request<T::Sent>) -> Result<Response<T::Received>> {
        if let Some(entrance) = self.entrance {
            request.headers_mut().insert(ENTRANCE, HeaderValue::from_static(entrance));
        }
        self.transport.exchange(request).await
    }

    /// An answer, if it is a good one.
    pub async fn check_status(&self, response: Response<T::Received>) -> Result<Response<T::Received>> {
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    /// What an answer that is no good one says.
    pub async fn refusal(&self, response: Response<T::Received>) -> Error {
        let (status, desks) = (response.status(), self.transport.is_from_desk(&response));
        let text = tokio::time::timeout(REFUSAL_LIMIT, read(response.into_body(), LARGEST_REFUSAL, ())).await;
        let text = text.ok().and_then(Result::ok).map(|whole| whole.bytes).unwrap_or_default();
        let refusal = Box::new(Refusal::new(status, &text));
        if desks { Error::Refused(refusal) } else { Error::NotForwarded(refusal) }
    }

    /// The whole of an answer, whatever its status.
    pub async fn read(&self, response: Response<T::Received>) -> Result<Buffered<T::Budget>> {
        read(response.into_body(), self.largest, self.transport.budget()).await
    }

    /// The answer to JSON, or to no body at all, as it comes and whatever its status.
    pub async fn exchange_json(&self, method: Method, path: &str, body: Bytes) -> Result<Response<T::Received>> {
        let is_json = !body.is_empty();
        let mut request = request(method, path, body.into())?;
        if is_json {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.exchange(request).await
    }

    async fn limited<V>(&self, work: impl Future<Output = Result<V>>) -> Result<V> {
        match self.limit {
            Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Err(Error::Timeout(limit))),
            None => work.await,
        }
    }
}

impl<C: crate::Connect> Client<Direct<C>> {
    /// Ends all connections with the desk. When this returns, none is open, not even the one that asked.
    pub async fn freeze(&self) -> Result<Frozen> {
        self.limited(async {
            let answer = self.check_status(self.exchange_json(Method::POST, "/v1/freeze", Bytes::new()).await?).await?;
            parse(&answer.into_body().until_closed(self.largest).await?)
        })
        .await
    }
}

fn request<B>(method: Method, path: &str, body: B) -> Result<Request<B>> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|e| Error::InvalidRequest(format!("its address: {e}")))?;
    Ok(request)
}

fn written(body: &impl Serialize) -> Result<Bytes> {
    let text = serde_json::to_vec(body).map_err(|e| Error::InvalidRequest(e.to_string()))?;
    Ok(if text == b"null" { Bytes::new() } else { text.into() })
}

fn parse<V: DeserializeOwned>(text: &[u8]) -> Result<V> {
    serde_json::from_slice(text).map_err(|e| Error::Malformed(e.to_string()))
}
