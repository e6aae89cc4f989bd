//! What goes wrong, told so that a caller knows what to do next.

use hotdesk_api::Problem;
use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It is not known where the fleet is, or what opens it.
    #[error("{message}")]
    NoFleet { message: String, hint: String },
    /// A setting can't be used.
    #[error("{message}")]
    Settings { message: String, hint: String },
    /// Nobody answers there. Nothing was done.
    #[error("the fleet at {url} can't be reached: {reason}")]
    Unreachable { url: String, reason: String },
    /// The connection ended before the answer was there. What was asked for may have been done.
    #[error("the connection to the fleet broke: {0}")]
    Broken(String),
    /// The answer did not come in time. What was asked for may still be done.
    #[error("no answer in {} s", .0.as_secs())]
    Late(Duration),
    /// The fleet or the desk said no.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The answer is not what the API promises.
    #[error("the answer can't be understood: {0}")]
    Strange(String),
    /// Something on this machine: a file that can't be read or written.
    #[error("{0}")]
    Local(String),
}

/// A `Problem` of the API, and how long to wait before asking again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", if problem.detail.is_empty() { &problem.title } else { &problem.detail })]
pub struct Refusal {
    pub problem: Problem,
    /// Of the header `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// The word for programs, if the fleet gave one: `not_found`, `limit`, …
    pub fn code(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.problem.code.as_str())
    }

    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.problem.status)
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::NoFleet { hint, .. } | Self::Settings { hint, .. } => Some(hint),
            Self::Refused(refusal) => refusal.problem.hint.as_deref(),
            _ => None,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(|refusal| refusal.retry_after)
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }
}

/// The whole chain of causes: the outermost words alone say little ("error sending request").
pub(crate) fn reason(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
