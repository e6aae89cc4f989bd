//! Every error in one form (RFC 9457), also those that axum makes: a wrong method, an unknown path.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::Problem;
use std::time::Duration;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// Longer than anything that axum says.
const TEXT_LIMIT: usize = 16 << 10;
/// When waiting helps and nobody knows how long.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// A problem, and how long to wait before asking again.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) problem: Box<Problem>,
    pub(crate) retry_after: Option<Duration>,
    /// Where the thing is that the problem is about.
    pub(crate) location: Option<String>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &str, title: &str, detail: impl Into<String>) -> Self {
        let problem = Problem {
            code: code.into(),
            status: status.as_u16(),
            title: title.into(),
            detail: detail.into(),
            hint: None,
            retry: false,
        };
        Self { problem: Box::new(problem), retry_after: None, location: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.problem.hint = Some(hint.into());
        self
    }

    /// Says that asking again can help.
    pub(crate) fn retry(mut self, after: Duration) -> Self {
        self.problem.retry = true;
        self.retry_after = Some(after);
        self
    }

    pub(crate) fn location(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", "The request can't be understood", detail)
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "A good key is needed", detail).hint(
            "send `Authorization: Bearer KEY`; the first key is in `admin.key` of the fleet's data directory, `hotdesk key new` makes more",
        )
    }

    pub(crate) fn denied(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "denied", "Not allowed", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "There is no such thing", detail)
    }

    pub(crate) fn too_many(detail: impl Into<String>, wait: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", "The limit is reached", detail).retry(wait)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Not available now", detail).retry(RETRY)
    }

    pub(crate) fn bad_gateway(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "bad_gateway", "The desk failed", detail)
    }

    pub(crate) fn internal(detail: impl std::fmt::Display) -> Self {
        tracing::error!(error = %detail, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "hotdesk failed",
            "an error in hotdesk ended this request; its log has the details",
        )
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self.problem).unwrap_or_default();
        let mut response = (self.status(), [(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response();
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            // Rounded up: who comes a moment too early is refused again.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if let Some(location) = self.location.and_then(|l| HeaderValue::try_from(l).ok()) {
            headers.insert(header::LOCATION, location);
        }
        if self.problem.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A problem that another part of ours has told already.
impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let retry_after = problem.retry.then_some(RETRY);
        Self { problem: Box::new(problem), retry_after, location: None }
    }
}

impl From<hotdesk_fleet::Error> for Refusal {
    fn from(error: hotdesk_fleet::Error) -> Self {
        use hotdesk_fleet::Error as E;
        let text = error.to_string();
        match error {
            E::Invalid(_) => Self::invalid(text),
            E::NotFound { .. } => Self::not_found(text),
            E::Denied(_) => Self::denied(text),
            E::Conflict(_) => Self::new(StatusCode::CONFLICT, "conflict", "Not possible in this state", text),
            E::Limit { retry_after, .. } => {
                Self::too_many(text, retry_after).hint("delete desks that are not needed, or wait: `queue_s` waits for a place")
            }
            E::Budget(_) => Self::new(StatusCode::PAYMENT_REQUIRED, "budget", "The budget is spent", text)
                .hint("raise the budget with `PUT /v1/budgets`, or wait for a new day"),
            E::Timeout { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "It took too long", text).retry(RETRY),
            E::Store(_) => {
                tracing::error!(error = %text, "the store failed");
                Self::unavailable(text)
            }
            E::Provider(inner) => Self::from(inner),
        }
    }
}

impl From<hotdesk_provider::Error> for Refusal {
    fn from(error: hotdesk_provider::Error) -> Self {
        use hotdesk_provider::Error as E;
        let text = error.to_string();
        match error {
            E::Unsupported { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unsupported", "Not possible here", text)
                .hint("`hotdesk doctor` tells what works here and what would fix the rest"),
            E::NotFound(_) => Self::not_found(text),
            E::Unavailable { .. } => Self::unavailable(text),
            E::Full(_) => Self::unavailable(text).retry(Duration::from_secs(30)),
            E::NotReady(_) | E::Failed(_) => Self::bad_gateway(text),
        }
    }
}

impl From<hotdesk_image::Error> for Refusal {
    fn from(error: hotdesk_image::Error) -> Self {
        use hotdesk_image::Error as E;
        let text = error.to_string();
        match error {
            E::Unknown { .. } => Self::not_found(text),
            E::NotBuilt { .. } => Self::new(StatusCode::CONFLICT, "not_built", "The template is not built yet", text),
            E::InUse { .. } => Self::new(StatusCode::CONFLICT, "in_use", "The template is in use", text),
            E::Invalid(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_template", "The template is not right", text),
            E::Full(_) => Self::unavailable(text).retry(Duration::from_secs(30)),
            E::Failed(_) => Self::new(StatusCode::BAD_GATEWAY, "build_failed", "The build failed", text),
        }
    }
}

/// The answer to a path that does not exist.
pub(crate) async fn no_such_path(request: Request) -> Refusal {
    Refusal::not_found(format!("there is no `{}`", request.uri().path().escape_default()))
        .hint("`/v1/openapi.json` lists what there is")
}

/// An error of axum's, which is only text, becomes a problem; its headers (`Allow`) stay.
pub(crate) async fn from_text(method: &Method, path: &str, response: Response) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || !is_text(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, TEXT_LIMIT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let text = if text.is_empty() { format!("{method} {}: {status}", path.escape_default()) } else { text };
    let refusal = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            let allowed = parts.headers.get(header::ALLOW).and_then(|v| v.to_str().ok()).unwrap_or("another method");
            Refusal::new(status, "method_not_allowed", "This method is not offered here", text).hint(format!("use {allowed}"))
        }
        _ if status.is_client_error() => Refusal::invalid(text).hint("see `/v1/openapi.json`"),
        _ => Refusal::internal(text),
    };
    parts.status = refusal.status();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(serde_json::to_string(&refusal.problem).unwrap_or_default()))
}

fn is_text(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_fleet_says_becomes_a_status() {
        use hotdesk_fleet::Error as E;
        use hotdesk_provider::Error as P;
        let limit = E::Limit { reason: "100 of 100 desks".into(), retry_after: Duration::from_millis(1500) };
        let unsupported = P::Unsupported { provider: "local", what: "x".into(), reason: "y".into() };
        for (error, status, retry) in [
            (E::Invalid("x".into()), 400, false),
            (E::NotFound { what: "desk", id: "d".into() }, 404, false),
            (E::Denied("x".into()), 403, false),
            (E::Conflict("x".into()), 409, false),
            (limit.clone(), 429, true),
            (E::Budget("x".into()), 402, false),
            (E::Store("x".into()), 503, true),
            (E::Provider(unsupported), 422, false),
            (E::Provider(P::Full("disk".into())), 503, true),
            (E::Provider(P::Failed("x".into())), 502, false),
        ] {
            let refusal = Refusal::from(error);
            assert_eq!((refusal.problem.status, refusal.problem.retry), (status, retry), "{refusal:?}");
        }
        let response = Refusal::from(limit).into_response();
        assert_eq!(response.headers()["retry-after"], "2", "rounded up");
        assert_eq!(response.headers()["content-type"], CONTENT_TYPE);
    }
}
