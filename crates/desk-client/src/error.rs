//! Why a desk did not do what it was asked for.

use bytes::Bytes;
use hotdesk_api::Problem;
use http::StatusCode;
use std::io;
use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Characters of an answer that is not a problem of ours.
const LONGEST_TEXT: usize = 300;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection, so nothing was done.
    #[error("it can't be reached: {0}")]
    Connect(io::Error),
    /// The connection ended before the whole answer was there. What was asked may have been done.
    #[error("it broke off: {0}")]
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// What was asked may still be done.
    #[error("no answer in {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the answer is larger than {} KiB", .0 >> 10)]
    TooLarge(usize),
    /// The budget for answers that are held is spent.
    #[error("too much is being read at once: ask again when other requests are done")]
    OverBudget,
    /// The desk said no.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Somebody on the way to the desk said no: it does not run, or it is not the caller's.
    #[error("{0}")]
    NotForwarded(Box<Refusal>),
    /// The answer is not what the API promises.
    #[error("the answer can't be understood: {0}")]
    Malformed(String),
    #[error("the request can't be written: {0}")]
    InvalidRequest(String),
}

impl Error {
    /// What the desk, or somebody on the way, said instead of doing it.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::NotForwarded(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The status of the desk's own refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    pub(crate) fn broken(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken(cause.into())
    }
}

/// An answer that is a refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", if problem.detail.is_empty() { &problem.title } else { &problem.detail })]
pub struct Refusal {
    pub status: StatusCode,
    /// Its `status` is that of the answer, whatever the text said.
    pub problem: Problem,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, body: &Bytes) -> Self {
        let problem = problem(status, body).unwrap_or_else(|| foreign(status, body));
        Self { status, problem }
    }
}

/// The problem in an answer, if it is one of ours.
pub fn problem(status: StatusCode, body: &[u8]) -> Option<Problem> {
    let problem: Problem = serde_json::from_slice(body).ok()?;
    Some(Problem { status: status.as_u16(), ..problem })
}

/// A refusal that is not one of ours: of a proxy between, or of another server.
pub fn foreign(status: StatusCode, body: &[u8]) -> Problem {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(LONGEST_TEXT).collect();
    let title = format!("the answer was {status}");
    Problem {
        code: if status == StatusCode::NOT_FOUND { "not_found" } else { "foreign" }.into(),
        status: status.as_u16(),
        detail: if text.is_empty() { title.clone() } else { format!("{title}: {text}") },
        title,
        hint: None,
        retry: status.is_server_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_status_of_their_answer() {
        let text = br#"{"code": "invalid", "status": 200, "title": "No", "detail": "not so", "retry": false}"#;
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, &Bytes::from_static(text));
        assert_eq!(
            (refusal.problem.status, refusal.problem.code.as_str(), refusal.to_string().as_str()),
            (400, "invalid", "not so")
        );
    }

    #[test]
    fn what_is_not_ours_is_shown_shortly() {
        let page = Bytes::from("<h1>".repeat(1000));
        let refusal = Refusal::new(StatusCode::BAD_GATEWAY, &page);
        assert_eq!((refusal.problem.code.as_str(), refusal.problem.retry), ("foreign", true));
        assert!(refusal.problem.detail.starts_with("the answer was 502 Bad Gateway: <h1>"));
        assert!(refusal.problem.detail.len() < LONGEST_TEXT + 50);
        assert_eq!(Refusal::new(StatusCode::NOT_FOUND, &Bytes::new()).problem.code, "not_found");
        assert_eq!(foreign(StatusCode::IM_A_TEAPOT, b"\n").detail, "the answer was 418 I'm a teapot");
    }
}
