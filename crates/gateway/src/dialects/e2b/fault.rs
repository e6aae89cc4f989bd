//! Refusals in E2B's words: `{"code": 404, "message": "…"}` on the control plane and for files, `{"code": "not_found", …}` for calls
//! by Connect.

use crate::refusal::Refusal;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_desk_client::Error;
use serde_json::json;

pub(super) type Result<T, E = Fault> = std::result::Result<T, E>;

/// Says whether a client should ask again by itself.
const SHOULD_RETRY: &str = "should-retry";

/// What went wrong, as Connect sorts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
    /// The sandbox does not run. Clients know that by its text.
    Gone,
}

impl Code {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable | Self::Gone => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Gone => StatusCode::BAD_GATEWAY,
        }
    }

    fn of(status: u16) -> Self {
        match status {
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::NotFound,
            409 => Self::AlreadyExists,
            429 | 507 => Self::ResourceExhausted,
            400..=499 => Self::InvalidArgument,
            501 => Self::Unimplemented,
            502 | 503 => Self::Unavailable,
            504 => Self::DeadlineExceeded,
            _ => Self::Internal,
        }
    }
}

/// What went wrong, and the words for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) message: String,
    /// Of the desk's own answer, where it has one that says more than the code.
    status: Option<StatusCode>,
}

impl Fault {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    pub(super) fn gone() -> Self {
        Self::new(Code::Gone, "The sandbox was not found: it does not run (any more)")
    }

    pub(super) fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(Code::Unauthenticated, message)
    }

    /// The same with another code, where a call has its own meaning for an answer of the desk.
    pub(super) fn when(mut self, code: Code, instead: Code) -> Self {
        if self.code == code {
            self.code = instead;
            self.status = None;
        }
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// For the control plane, files and everything that is not Connect.
    pub(super) fn into_response_of_data(self) -> Response {
        let status = match self.status {
            Some(status) if status.is_client_error() || status == StatusCode::INSUFFICIENT_STORAGE => status,
            _ => self.status(),
        };
        plain(status, &self.message)
    }

    /// For calls by Connect. What is no answer of the sandbox itself has the form of E2B's edge.
    pub(super) fn into_response_of_connect(self) -> Response {
        if self.code == Code::Gone {
            return plain(self.status(), &self.message);
        }
        (self.status(), Json(json!({ "code": self.code.word(), "message": self.message }))).into_response()
    }
}

/// Why a desk did not do what was asked.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => {
                Self { code: Code::of(refusal.status.as_u16()), status: Some(refusal.status), message: refusal.problem.detail }
            }
            Error::OverBudget => Self::new(Code::ResourceExhausted, error.to_string()),
            Error::InvalidRequest(_) => Self::bad(error.to_string()),
            Error::Malformed(_) => Self::internal(error.to_string()),
            // There is no way to the desk, or it ended meanwhile.
            Error::NotForwarded(_) | Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::TooLarge(_) => {
                tracing::debug!(%error, "a sandbox can't be reached");
                Self::gone()
            }
        }
    }
}

/// `{"code": 404, "message": "…"}`
pub(super) fn plain(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "code": status.as_u16(), "message": message }))).into_response()
}

/// A refusal of ours in E2B's form.
pub(crate) fn refused(refusal: Refusal) -> Response {
    let status = refusal.status();
    let mut message = refusal.problem.detail.clone();
    if let Some(hint) = refusal.problem.hint.as_deref().filter(|_| status != StatusCode::UNAUTHORIZED) {
        message = format!("{message}; {hint}");
    }
    let retry = refusal.problem.retry;
    let after = refusal.into_response().headers().get(header::RETRY_AFTER).cloned();
    let mut response = plain(status, &message);
    if let Some(after) = after {
        response.headers_mut().insert(header::RETRY_AFTER, after);
    }
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static(if retry { "true" } else { "false" }));
    }
    response
}

/// An answer without a body.
pub(super) fn done() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn faults_have_the_forms_that_clients_know() {
        let body = async |response: Response| {
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()
        };
        let gone = Fault::gone().into_response_of_connect();
        assert_eq!(gone.status(), 502);
        assert!(body(gone).await["message"].as_str().unwrap().contains("was not found"));
        let missing = Fault::new(Code::NotFound, "no").into_response_of_connect();
        assert_eq!((missing.status().as_u16(), body(missing).await), (404, json!({ "code": "not_found", "message": "no" })));
        let refusal = refused(Refusal::unauthorized("wrong key"));
        assert_eq!((refusal.status().as_u16(), body(refusal).await), (401, json!({ "code": 401, "message": "wrong key" })));
        let busy = refused(Refusal::unavailable("later"));
        assert_eq!(busy.headers()[SHOULD_RETRY], "true");
    }
}
