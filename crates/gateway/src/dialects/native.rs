//! The native API as dialects that are built on it see it: asked in this process, or over the network.
//!
//! The same tools serve `/mcp` of a fleet and `hotdesk mcp` on somebody's laptop. Both ask the native API; only the way there
//! differs, and that is [`Api`].

use crate::app::App;
use crate::entrance::{self, Caller};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hotdesk_api::Problem;
use hotdesk_desk_client::address::address;
use hotdesk_desk_client::{body, foreign};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any answer takes that nothing is waited for.
const ANSWER: Duration = Duration::from_secs(60);
/// The largest answer that is read: the tree of a large document, a picture of a large screen.
pub const LARGEST_ANSWER: usize = 64 << 20;

/// Somebody who answers the native API.
pub trait Api: Send + Sync + 'static {
    /// The answer, whatever its status; a problem if there is none.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Result<Answer, Problem>>;

    /// What people put before paths to reach it: `http://127.0.0.1:7700`. None if they can't.
    fn address(&self) -> Option<String>;
}

/// A request of the native API.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: Method,
    /// Not encoded.
    pub path: Vec<String>,
    /// Not encoded.
    pub query: Vec<(String, String)>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
    /// How long the answer may take.
    pub limit: Duration,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Ask {
    pub(crate) fn new(method: Method, path: &[&str]) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Self { method, path, query: Vec::new(), headers: Vec::new(), body: Bytes::new(), limit: ANSWER }
    }

    pub(crate) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: &[&str]) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.query.push((name.into(), value.to_string()));
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        // Types of ours always become JSON.
        self.body = serde_json::to_vec(body).unwrap_or_default().into();
        self.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// Lets the other side wait so long before it answers.
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.limit = wait + ANSWER;
        self
    }

    fn uri(&self) -> Result<Uri, Problem> {
        address(&self.path, &self.query)
            .parse()
            .map_err(|_| problem(400, "invalid", "the address can't be written: a name in it is too long"))
    }
}

/// A short problem of ours.
pub(crate) fn problem(status: u16, code: &str, detail: impl Into<String>) -> Problem {
    let detail = detail.into();
    Problem { code: code.into(), status, title: detail.clone(), detail, hint: None, retry: false }
}

/// Asks, and reads the answers as values.
#[derive(Clone)]
pub(crate) struct Native(Arc<dyn Api>);

impl Native {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        Self(api)
    }

    pub(crate) fn address(&self) -> Option<String> {
        self.0.address()
    }

    /// A good answer, or the problem.
    pub(crate) async fn answer(&self, ask: Ask) -> Result<Answer, Problem> {
        // Dots would climb out of the path, and an empty part would name something else; nothing of ours has such a name.
        if ask.path.iter().any(|part| matches!(part.as_str(), "" | "." | "..")) {
            return Err(problem(404, "not_found", "there is nothing of this name"));
        }
        let answer = self.0.ask(ask).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let told = hotdesk_desk_client::problem(answer.status, &answer.body);
        Err(told.unwrap_or_else(|| foreign(answer.status, &answer.body)))
    }

    pub(crate) async fn value<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, Problem> {
        let answer = self.answer(ask).await?;
        serde_json::from_slice(&answer.body).map_err(|e| problem(502, "strange", format!("the answer can't be understood: {e}")))
    }
}

/// The API of this process, as a caller who was let in may use it; noted in the audit log.
pub(crate) struct Inside {
    pub(crate) app: App,
    pub(crate) router: Router,
    pub(crate) caller: Caller,
}

impl Api for Inside {
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Result<Answer, Problem>> {
        async move {
            let limit = ask.limit;
            let request = self.request(ask)?;
            let work = async {
                let response = entrance::within(&self.app, self.router.clone(), &self.caller, request).await;
                let (parts, body) = response.into_parts();
                let body = body::read(body, LARGEST_ANSWER, self.app.buffers.share(&self.caller.who.key)).await;
                let body = body.map_err(|e| problem(502, "bad_gateway", format!("the answer can't be read: {e}")))?;
                Ok(Answer { status: parts.status, headers: parts.headers, body: body.bytes.clone() })
            };
            let late =
                || problem(504, "timeout", format!("no answer in {} s; what was asked for may still be done", limit.as_secs()));
            tokio::time::timeout(limit, work).await.map_err(|_| late())?
        }
        .boxed()
    }

    fn address(&self) -> Option<String> {
        Some(crate::vm::base_without_key(&self.app, &self.caller))
    }
}

impl Inside {
    fn request(&self, ask: Ask) -> Result<Request, Problem> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = ask.uri()?;
        *request.method_mut() = ask.method;
        request.headers_mut().extend(ask.headers);
        if let Some(host) = self.caller.host.as_deref().and_then(|host| HeaderValue::from_str(host).ok()) {
            request.headers_mut().insert(header::HOST, host);
        }
        if !ask.body.is_empty() {
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(ask.body.len()));
            *request.body_mut() = Body::from(ask.body);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names_in_addresses() {
        let ask = Ask::get(&["v1", "desks", "a/b?c d", "files"]).query("path", "/tmp/ä&b=c");
        assert_eq!(ask.uri().unwrap(), "/v1/desks/a%2Fb%3Fc%20d/files?path=%2Ftmp%2F%C3%A4%26b%3Dc");
    }
}
