//! The desk behind a sandbox, asked over its own API.

use super::fault::{Code, Fault, Result};
use super::labels::{Pairs, old_environment};
use crate::app::App;
use crate::buffers::{Buffered, Unread};
use crate::entrance::Caller;
use crate::lines::Lines;
use crate::proxy::{Target, pass};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write;

/// The user that a desk's programs belong to if nobody else is named.
pub(super) const DEFAULT_USER: &str = "user";
/// Lists of files are the largest answers.
const ANSWER_BYTES: usize = 64 << 20;

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
    /// The sandbox that a guest was let into.
    pub(super) fn of(app: App, caller: Caller) -> Self {
        let desk = caller.guest.as_ref().map(|guest| guest.desk().to_owned()).unwrap_or_default();
        Self { app, desk, caller }
    }

    /// What its commands have in their environment.
    pub(super) async fn environment(&self) -> Result<Pairs> {
        let (fleet, who) = (&self.app.fleet, &self.caller.who);
        let mut all = fleet.environment(who, &self.desk).map_err(|_| Fault::gone())?;
        all.extend(old_environment(&fleet.desk(who, &self.desk).await.map_err(|_| Fault::gone())?));
        Ok(all)
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
        self.answer(self.send(path, request(method, body)).await).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Body) -> Result<T> {
        let text = self.answer(self.send(path, request(method, body)).await).await?;
        serde_json::from_slice(&text.bytes).map_err(|e| Fault::internal(format!("the desk's answer can't be understood: {e}")))
    }

    /// The whole of a good answer.
    pub(super) async fn answer(&self, response: Response) -> Result<Buffered> {
        if !response.status().is_success() {
            return Err(Fault::of(response).await);
        }
        let sandbox = self.sandbox;
        let read = sandbox.app.buffers.read(&sandbox.caller.who.key, response.into_body(), ANSWER_BYTES).await;
        read.map_err(|e| match e {
            // The desk ended meanwhile.
            Unread::Broken(_) | Unread::TooLarge(_) => Fault::gone(),
            Unread::Full => Fault::new(Code::ResourceExhausted, e.to_string()),
        })
    }

    /// A stream of server-sent events, each of them JSON.
    pub(super) async fn events(&self, path: &str) -> Result<Events> {
        let response = self.send(path, request(Method::GET, Body::empty())).await;
        if !response.status().is_success() {
            return Err(Fault::of(response).await);
        }
        Ok(Events { body: response.into_body(), lines: Lines::ending(b"\n\n") })
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

/// Server-sent events as they come.
pub(super) struct Events {
    body: Body,
    lines: Lines,
}

impl Events {
    /// The next event; none at the end. A stream that breaks off is an error.
    pub(super) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            while let Some(event) = self.lines.next().map_err(|_| Fault::internal("an event of the desk is too large"))? {
                if let Some(value) = data(&event) {
                    return Ok(Some(value));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.lines.push(&piece);
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
    use bytes::Bytes;
    use serde_json::json;

    #[tokio::test]
    async fn events_are_read_however_they_are_cut() {
        let text = "event: stdout\nid: 3\ndata: {\"a\":1}\n\n: keep alive\n\ndata: {\"b\":2}\n\n";
        for size in [1, 2, 7, 1000] {
            let pieces: Vec<_> =
                text.as_bytes().chunks(size).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
            let mut events =
                Events { body: Body::from_stream(futures_util::stream::iter(pieces)), lines: Lines::ending(b"\n\n") };
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
