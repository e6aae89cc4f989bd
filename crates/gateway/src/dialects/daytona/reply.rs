//! Errors in the form that Daytona's SDKs read: the class that they raise depends on status, `code` and `source`.

use crate::refusal::{self, Refusal};
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use serde_json::json;

pub(crate) type Reply<T = Response> = Result<T, Failure>;

/// Longer than any problem of ours.
const PROBLEM_BYTES: usize = 64 << 10;

/// Who complains; SDKs raise finer classes for what the inside of a sandbox says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Api,
    Daemon,
}

/// What went wrong.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
    code: Option<&'static str>,
    source: Source,
    retry_after: Option<u64>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None, source: Source::Api, retry_after: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    pub(crate) fn no_sandbox(id: &str) -> Self {
        Self::not_found(format!("Sandbox with ID or name {id} not found"))
    }

    /// Of the inside of a sandbox, with a word that makes the class finer.
    pub(crate) fn daemon(mut self, code: &'static str) -> Self {
        self.source = Source::Daemon;
        self.code = Some(code);
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The same under another status.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// What the SDK gets as JSON, also inside of other answers.
    pub(crate) fn body(&self, path: &str) -> serde_json::Value {
        let mut body = json!({
            "statusCode": self.status.as_u16(),
            "message": self.message,
            "error": self.status.canonical_reason().unwrap_or("Error"),
            "path": path,
            "timestamp": jiff::Timestamp::now().to_string(),
            "source": match self.source { Source::Api => "DAYTONA_API", Source::Daemon => "DAYTONA_DAEMON" },
        });
        if let Some(code) = self.code {
            body["code"] = code.into();
        }
        body
    }

    fn of_problem(problem: &Problem, retry_after: Option<u64>) -> Self {
        let status = match problem.code.as_str() {
            // Of a server of repositories. The desk does not say 401, which is about its own token.
            "credentials_refused" => StatusCode::UNAUTHORIZED,
            _ => StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let message = match &problem.hint {
            // Hints name routes of our own API; those about keys hold here too.
            Some(hint) if problem.status == 401 => format!("{}: {}; {hint}", problem.title, problem.detail),
            _ => problem.detail.clone(),
        };
        Self { retry_after, ..Self::new(status, message) }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::of_problem(&refusal.problem, refusal.retry_after.map(|after| after.as_secs().max(1)))
    }
}

impl From<hotdesk_fleet::Error> for Failure {
    fn from(error: hotdesk_fleet::Error) -> Self {
        match error {
            hotdesk_fleet::Error::NotFound { what: "desk", id } => Self::no_sandbox(&id),
            error => Refusal::from(error).into(),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::of_problem(&problem, None)
    }
}

/// The answer as it is sent.
pub(crate) fn finish(path: &str, answer: Reply) -> Response {
    answer.unwrap_or_else(|failure| {
        let path = crate::credentials::redacted(path);
        let mut response = (failure.status, Json(failure.body(&path))).into_response();
        if let Some(after) = failure.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after));
        }
        if failure.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    })
}

/// A refusal that the entrance or the router made, in the form of this dialect.
pub(crate) async fn reshape(path: &str, response: Response) -> Response {
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == refusal::CONTENT_TYPE);
    if !is_problem || response.extensions().get::<crate::entrance::PassedOn>().is_some() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, PROBLEM_BYTES).await.unwrap_or_default();
    let Ok(problem) = serde_json::from_slice::<Problem>(&text) else { return Response::from_parts(parts, Body::from(text)) };
    let body = Failure::from(problem).body(&crate::credentials::redacted(path)).to_string();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// What most calls answer.
pub(crate) fn ok(value: impl serde::Serialize) -> Reply {
    Ok(Json(value).into_response())
}

pub(crate) fn empty(status: StatusCode) -> Reply {
    Ok(status.into_response())
}
