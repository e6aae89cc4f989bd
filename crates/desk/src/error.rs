//! The one error of this crate: what happened, told so that a client knows what to do next.

use hotdesk_api::Problem;
use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant is one answer to "what should the client do now".
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A part of the desk is down and being healed: ask again soon.
    #[error("{part} is not available: {reason}")]
    Unavailable { part: &'static str, reason: String },
    /// The request can never work as it is.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{what} is larger than the limit of {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("{what} took longer than {} ms", limit.as_millis())]
    Timeout { what: String, limit: Duration },
    /// Something that the desk lacks: a program, an extension of the X server.
    #[error("{what} is not possible here: {reason}")]
    Unsupported { what: String, reason: String, hint: String },
    #[error("{0}")]
    Internal(String),
}

impl Error {
    pub fn display_down(reason: impl ToString) -> Self {
        Self::Unavailable { part: "the display", reason: reason.to_string() }
    }

    pub fn internal(reason: impl ToString) -> Self {
        Self::Internal(reason.to_string())
    }

    /// The answer that a client of `/v1` gets.
    pub fn problem(&self) -> Problem {
        let (code, status, title, retry) = match self {
            Self::Unavailable { .. } => ("unavailable", 503, "A part of the desk is down", true),
            Self::Invalid(_) => ("invalid", 400, "The request can't be understood", false),
            Self::NotFound(_) => ("not_found", 404, "There is no such thing", false),
            Self::Denied(_) => ("denied", 403, "Not allowed", false),
            Self::Conflict(_) => ("conflict", 409, "Not possible in this state", false),
            Self::TooLarge { .. } => ("too_large", 413, "Too large", false),
            Self::Timeout { .. } => ("timeout", 504, "It took too long", true),
            Self::Unsupported { .. } => ("unsupported", 501, "Not possible on this desk", false),
            Self::Internal(_) => ("internal", 500, "hotdesk failed", false),
        };
        let hint = match self {
            Self::Unavailable { .. } => Some("ask again in a second; `/health` tells what is being healed".to_owned()),
            Self::Unsupported { hint, .. } => Some(hint.clone()),
            _ => None,
        };
        Problem { code: code.into(), status, title: title.into(), detail: self.to_string(), hint, retry }
    }
}

impl From<x11rb::errors::ConnectionError> for Error {
    fn from(e: x11rb::errors::ConnectionError) -> Self {
        Self::display_down(e)
    }
}

impl From<x11rb::errors::ReplyError> for Error {
    fn from(e: x11rb::errors::ReplyError) -> Self {
        match e {
            x11rb::errors::ReplyError::ConnectionError(e) => e.into(),
            x11rb::errors::ReplyError::X11Error(e) => {
                Self::Internal(format!("the X server refused a request: {:?}", e.error_kind))
            }
        }
    }
}

impl From<x11rb::errors::ReplyOrIdError> for Error {
    fn from(e: x11rb::errors::ReplyOrIdError) -> Self {
        Self::display_down(e)
    }
}
