//! Calls to the desk behind a sandbox, through the same door as everybody's.

use super::Call;
use super::reply::{Failure, Reply};
use crate::buffers::{Buffered, Unread};
use crate::entrance::PassedOn;
use crate::proxy::{Target, pass};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use hotdesk_api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An answer of the desk that is read as a whole: output of programs is the largest.
const LARGEST_ANSWER: usize = 256 << 20;
/// Of one that is a refusal.
const LARGEST_PROBLEM: usize = 64 << 10;

/// By which the desk's traces tell where an action came in.
const ENTRANCE: HeaderName = HeaderName::from_static("x-hotdesk-entrance");

/// A desk, for one request of a client.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) app: crate::app::App,
    pub(crate) caller: crate::entrance::Caller,
    /// As the client named it.
    pub(crate) id: String,
}

impl Desk {
    pub(crate) fn of(call: &Call, id: &str) -> Self {
        Self { app: call.app.clone(), caller: call.caller.clone(), id: id.to_owned() }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Reply<T> {
        self.json(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Reply<T> {
        self.json(Method::POST, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply<()> {
        self.json::<Value>(Method::DELETE, path, &Value::Null).await.map(drop)
    }

    /// A call whose body and answer are JSON; `null` is no body, and no answer is `null`.
    pub(crate) async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Reply<T> {
        let body = serde_json::to_vec(body).map_err(crate::refusal::Refusal::internal)?;
        let body = if body == b"null" { Body::empty() } else { Body::from(body) };
        let answer = self.bytes(method, path, body).await?;
        let text: &[u8] = if answer.bytes.is_empty() { b"null" } else { &answer.bytes };
        serde_json::from_slice(text)
            .map_err(|e| crate::refusal::Refusal::internal(format!("the desk's answer to {path} is odd: {e}")).into())
    }

    pub(crate) async fn bytes(&self, method: Method, path: &str, body: Body) -> Reply<Buffered> {
        let response = self.call(method, path, body).await?;
        let read = self.app.buffers.read(&self.caller.who.key, response.into_body(), LARGEST_ANSWER).await;
        read.map_err(|e| {
            let status = if matches!(e, Unread::Full) { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::BAD_GATEWAY };
            Failure::new(status, format!("the sandbox's answer can't be read: {e}"))
        })
    }

    /// The answer as it comes, if it is a good one.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Body) -> Reply<Response> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(ENTRANCE, HeaderValue::from_static("daytona"));
        let response = pass(&self.app, &self.caller, &self.id, Target::desk(path), request).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let from_desk = response.extensions().get::<PassedOn>().is_some();
        let status = response.status();
        let text = axum::body::to_bytes(response.into_body(), LARGEST_PROBLEM).await.unwrap_or_default();
        let problem = serde_json::from_slice::<Problem>(&text).unwrap_or_else(|_| Problem {
            code: "odd".into(),
            status: status.as_u16(),
            title: String::new(),
            detail: String::from_utf8_lossy(&text).into_owned(),
            hint: None,
            retry: false,
        });
        Err(match problem.code.as_str() {
            // By these words SDKs and their users know that the sandbox has to be started first.
            "not_running" => Failure::bad_request(format!("bad request: {}. Is the Sandbox started?", problem.detail)),
            "not_found" if !from_desk => Failure::no_sandbox(&self.id),
            _ => Failure::from(problem),
        })
    }
}

/// A part of an address.
pub(crate) fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
