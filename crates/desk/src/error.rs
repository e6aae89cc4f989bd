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
    /// The request carries no token, or a wrong one.
    #[error("{0}")]
    Unauthorized(String),
    /// A server elsewhere does not take the credentials that it was given, or was given none.
    #[error("{0}")]
    CredentialsRefused(String),
    /// As many of them as are allowed exist: end some, then ask again.
    #[error("there are already {limit} {what}, which is the limit")]
    TooMany { what: &'static str, limit: usize },
    /// The disk, or the quota of the user, is full.
    #[error("{0}")]
    Full(String),
    /// A person drives, so nobody else acts until they give the desk back.
    #[error("{who} is driving this desk and gives it back after {} s without input; nothing was done", crate::lease::whole_seconds(*returns_in))]
    PersonDrives { who: String, returns_in: Duration },
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

    /// What the operating system said about a file, as an answer: `what` says what was tried with it.
    pub fn file(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let text = format!("{what}: {}", plain(error));
        match error.kind() {
            Kind::NotFound => Self::NotFound(text),
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Self::Denied(text),
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full(text),
            Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::AlreadyExists
            | Kind::DirectoryNotEmpty
            | Kind::CrossesDevices
            | Kind::ResourceBusy
            | Kind::ExecutableFileBusy => Self::Conflict(text),
            Kind::InvalidInput | Kind::InvalidFilename | Kind::InvalidData => Self::Invalid(text),
            // Too many links on the way; the kind for it is not stable yet.
            _ if error.raw_os_error() == Some(40) => Self::Invalid(text),
            _ => Self::Internal(text),
        }
    }

    /// Seconds after which asking again may help, where that is known.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::PersonDrives { returns_in, .. } => Some(crate::lease::whole_seconds(*returns_in).max(1)),
            Self::Unavailable { .. } | Self::TooMany { .. } => Some(1),
            _ => None,
        }
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
            Self::Unauthorized(_) => ("unauthorized", 401, "A token is needed", false),
            // Not 401: that is about the desk's own token.
            Self::CredentialsRefused(_) => ("credentials_refused", 403, "The credentials were refused", false),
            Self::TooMany { .. } => ("too_many", 429, "The limit is reached", true),
            Self::Full(_) => ("full", 507, "The disk is full", false),
            Self::PersonDrives { .. } => ("person_is_driving", 423, "A person is driving", true),
            Self::Internal(_) => ("internal", 500, "hotdesk failed", false),
        };
        let hint = match self {
            Self::Unavailable { .. } => Some("ask again in a second; `/health` tells what is being healed".to_owned()),
            Self::Unsupported { hint, .. } => Some(hint.clone()),
            Self::Unauthorized(_) => {
                Some("send `Authorization: Bearer TOKEN`; the desk says in its log where the token is kept".to_owned())
            }
            Self::CredentialsRefused(_) => Some("give `credentials` that this server takes".to_owned()),
            Self::TooMany { what, .. } => Some(format!("end {what} that are not needed, then ask again")),
            Self::PersonDrives { .. } => Some(
                "look on, and act again once `/v1/lease` says that the agent drives; `hotdesk lease give` gives the desk back"
                    .to_owned(),
            ),
            Self::Full(_) => Some("delete files of the desk, or give it a larger disk".to_owned()),
            _ => None,
        };
        Problem { code: code.into(), status, title: title.into(), detail: self.to_string(), hint, retry }
    }
}

/// The operating system's words without its number: `No such file or directory`.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_error_tells_the_client_what_to_do() {
        for (number, status) in [
            (nix::libc::ENOENT, 404),
            (nix::libc::EACCES, 403),
            (nix::libc::EPERM, 403),
            (nix::libc::EROFS, 403),
            (nix::libc::ENOSPC, 507),
            (nix::libc::EDQUOT, 507),
            (nix::libc::EISDIR, 409),
            (nix::libc::ENOTDIR, 409),
            (nix::libc::EEXIST, 409),
            (nix::libc::ENOTEMPTY, 409),
            (nix::libc::ENAMETOOLONG, 400),
            (nix::libc::ELOOP, 400),
            (nix::libc::EIO, 500),
        ] {
            let error = std::io::Error::from_raw_os_error(number);
            let problem = Error::file("reading /x", &error).problem();
            assert_eq!(problem.status, status, "{error}");
            assert!(!problem.detail.contains("os error"), "{}", problem.detail);
        }
    }
}
