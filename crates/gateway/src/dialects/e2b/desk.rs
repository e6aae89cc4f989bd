//! The desk behind a sandbox, asked over its own API.

use super::fault::{Code, Fault, Result};
use super::labels::Kept;
use super::token;
use crate::app::App;
use crate::class::Class;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::proxy::{Target, pass};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write;

/// The user that a desk's programs belong to if nobody else is named.
pub(super) const DEFAULT_USER: &str = "user";
/// Lists of files are the largest answers.
const ANSWER_BYTES: usize = 64 << 20;
/// One event of a stream: a piece of output, in base64.
const EVENT_BYTES: usize = 1 << 20;

/// One sandbox, and whoever showed its token.
#[derive(Clone)]
pub(super) struct Sandbox {
    pub(super) app: App,
    /// The desk's id.
    pub(super) desk: String,
    caller: Caller,
}

/// A sandbox as one of its users.
#[derive(Clone)]
pub(super) struct User<'a> {
    sandbox: &'a Sandbox,
    /// None: the desk's own.
    name: Option<String>,
}

impl Sandbox {
    pub(super) fn new(app: App, desk: String, peer: Peer, host: Option<String>) -> Self {
        let caller =
            Caller { who: token::user_of(&desk), secret: Secret::none(), place: Place::Header, peer, host, class: Class::Desk };
        Self { app, desk, caller }
    }

    pub(super) fn caller(&self, class: Class) -> Caller {
        Caller { class, ..self.caller.clone() }
    }

    /// What is kept of it.
    pub(super) async fn kept(&self) -> Result<Kept> {
        let desk = self.app.fleet.desk(&self.caller.who, &self.desk).await.map_err(|_| Fault::gone())?;
        Ok(Kept::of(&desk))
    }

    /// The sandbox as its own user.
    pub(super) fn plain(&self) -> User<'_> {
        User { sandbox: self, name: None }
    }

    /// The sandbox as a user of it, who is looked for.
    pub(super) async fn user(&self, name: Option<&str>) -> Result<User<'_>> {
        let Some(name) = name.filter(|name| !name.is_empty() && *name != DEFAULT_USER) else { return Ok(self.plain()) };
        let path = format!("users/{}", encoded(name));
        match self.plain().get::<Value>(&path).await {
            Ok(_) => Ok(User { sandbox: self, name: Some(name.into()) }),
            Err(fault) if matches!(fault.code, Code::NotFound | Code::InvalidArgument) => {
                Err(Fault::unauthenticated(format!("the sandbox has no user `{}`", name.escape_default())))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Everybody under whom something runs: the desk's own user first.
    pub(super) async fn users(&self) -> Result<Vec<User<'_>>> {
        #[derive(serde::Deserialize)]
        struct Users {
            users: Vec<String>,
        }
        let others: Users = self.plain().get("users").await?;
        let others = others.users.into_iter().map(|name| User { sandbox: self, name: Some(name) });
        Ok(std::iter::once(self.plain()).chain(others).collect())
    }
}

impl User<'_> {
    /// Sends a request to the desk, as it is.
    pub(super) async fn send(&self, path: &str, mut request: Request) -> Response {
        let path = match &self.name {
            None => format!("/v1/{path}"),
            Some(name) => format!("/v1/users/{}/{path}", encoded(name)),
        };
        // Headers for us are none of the desk's business.
        for name in [super::SANDBOX_ID, super::SANDBOX_PORT, super::ACCESS_TOKEN] {
            request.headers_mut().remove(name);
        }
        request.headers_mut().remove(header::AUTHORIZATION);
        let sandbox = self.sandbox;
        pass(&sandbox.app, &sandbox.caller, &sandbox.desk, Target::desk(path), request).await
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.ask(Method::GET, path, Body::empty()).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, value: &impl Serialize) -> Result<T> {
        self.ask(Method::POST, path, json(value)?).await
    }

    /// A call whose answer says nothing.
    pub(super) async fn tell(&self, method: Method, path: &str, value: Option<&(impl Serialize + Sync)>) -> Result<()> {
        let body = value.map_or_else(|| Ok(Body::empty()), json)?;
        answer(self.send(path, request(method, body)).await).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Body) -> Result<T> {
        let text = answer(self.send(path, request(method, body)).await).await?;
        serde_json::from_slice(&text).map_err(|e| Fault::internal(format!("the desk's answer can't be understood: {e}")))
    }

    /// A stream of server-sent events, each of them JSON.
    pub(super) async fn events(&self, path: &str) -> Result<Events> {
        let response = self.send(path, request(Method::GET, Body::empty())).await;
        if !response.status().is_success() {
            return Err(Fault::of(response).await);
        }
        Ok(Events { body: response.into_body(), held: BytesMut::new() })
    }
}

fn request(method: Method, body: Body) -> Request {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    if !request.body().is_end_stream() {
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request
}

fn json(value: &impl Serialize) -> Result<Body> {
    serde_json::to_vec(value).map(Body::from).map_err(|e| Fault::internal(e.to_string()))
}

/// The whole of a good answer.
pub(super) async fn answer(response: Response) -> Result<Bytes> {
    if !response.status().is_success() {
        return Err(Fault::of(response).await);
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
    // Broken off: the desk ended meanwhile.
    body.map(|body| body.to_bytes()).map_err(|_| Fault::gone())
}

/// Server-sent events as they come.
pub(super) struct Events {
    body: Body,
    held: BytesMut,
}

impl Events {
    /// The next event; none at the end. A stream that breaks off is an error.
    pub(super) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.held.windows(2).position(|pair| pair == b"\n\n") {
                let event = self.held.split_to(end + 2);
                if let Some(value) = data(&event) {
                    return Ok(Some(value));
                }
                continue;
            }
            if self.held.len() > EVENT_BYTES {
                return Err(Fault::internal("an event of the desk is too large"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.held.extend_from_slice(&piece);
                    }
                }
                Some(Err(_)) => return Err(Fault::gone()),
                None => return Ok(None),
            }
        }
    }
}

/// The JSON of an event; none of a comment that only keeps the connection alive.
fn data(event: &[u8]) -> Option<Value> {
    let line = event.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"data:"))?;
    serde_json::from_slice(line).ok()
}

/// A text as a part of an address.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn events_are_read_however_they_are_cut() {
        let text = "event: stdout\nid: 3\ndata: {\"a\":1}\n\n: keep alive\n\ndata: {\"b\":2}\n\n";
        for size in [1, 2, 7, 1000] {
            let pieces: Vec<_> =
                text.as_bytes().chunks(size).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
            let mut events = Events { body: Body::from_stream(futures_util::stream::iter(pieces)), held: BytesMut::new() };
            assert_eq!(events.next().await.unwrap(), Some(json!({ "a": 1 })));
            assert_eq!(events.next().await.unwrap(), Some(json!({ "b": 2 })));
            assert_eq!(events.next().await.unwrap(), None);
        }
    }

    #[test]
    fn texts_become_parts_of_addresses() {
        assert_eq!(encoded("/home/user/a b&c=ž"), "%2Fhome%2Fuser%2Fa%20b%26c%3D%C5%BE");
    }
}
