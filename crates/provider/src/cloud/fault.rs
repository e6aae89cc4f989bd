//! What a vendor refused, sorted by what can be done about it.

use crate::Error;
use std::time::Duration;

/// Of which kind a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The account has no more of something: it is full, nothing is broken.
    Quota,
    /// The key is missing, wrong, or may not do that: somebody must look at the settings.
    Auth,
    NotFound,
    /// It exists already, or something else is being done with it.
    Conflict,
    /// The request can't be met as it is; asking again can't help.
    Refused,
    /// Too many requests; asking again later helps.
    Slow,
    /// The vendor failed or can't be reached. Whether it did what was asked is not known.
    Fault,
}

/// A refusal of a vendor, or silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub provider: &'static str,
    pub kind: Kind,
    pub status: Option<u16>,
    /// In the vendor's words.
    pub message: String,
    /// How long the vendor wants not to be asked.
    pub retry_after: Option<Duration>,
    /// Nothing of the request has reached the vendor.
    pub unsent: bool,
}

impl Fault {
    pub fn new(provider: &'static str, kind: Kind, message: impl Into<String>) -> Self {
        Self { provider, kind, status: None, message: message.into(), retry_after: None, unsent: false }
    }

    /// Whether the same request may succeed later.
    pub fn passes(&self) -> bool {
        matches!(self.kind, Kind::Slow | Kind::Fault)
    }

    /// The kind that an HTTP status alone stands for.
    pub fn kind_of(status: u16) -> Kind {
        match status {
            401 | 403 => Kind::Auth,
            404 | 410 => Kind::NotFound,
            409 | 423 => Kind::Conflict,
            402 => Kind::Quota,
            429 => Kind::Slow,
            408 | 425 | 500.. => Kind::Fault,
            _ => Kind::Refused,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => write!(f, "{} answered {status}: {}", self.provider, self.message),
            None => write!(f, "{}", self.message),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let (provider, text) = (fault.provider, fault.to_string());
        match fault.kind {
            Kind::Quota => Self::Full(text),
            Kind::NotFound => Self::NotFound(text),
            // The desks stay as they are until somebody has put the key right.
            Kind::Auth => Self::Unavailable { provider, reason: format!("its key is not taken ({text})") },
            Kind::Slow | Kind::Fault => Self::Unavailable { provider, reason: text },
            Kind::Conflict | Kind::Refused => Self::Failed(text),
        }
    }
}

/// What is not there is already as it should be.
pub(crate) fn gone_is_good<T>(result: Result<T, Fault>) -> Result<(), Fault> {
    match result {
        Err(fault) if fault.kind != Kind::NotFound => Err(fault),
        _ => Ok(()),
    }
}

/// Likewise for a look.
pub(crate) fn gone_is_none<T>(result: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.kind == Kind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_is_no_failure_and_a_wrong_key_is_not_for_desks_to_bear() {
        let of = |kind| Error::from(Fault::new("daytona", kind, "why"));
        assert!(matches!(of(Kind::Quota), Error::Full(_)));
        assert!(matches!(of(Kind::Auth), Error::Unavailable { .. }));
        assert!(matches!(of(Kind::Fault), Error::Unavailable { .. }));
        assert!(matches!(of(Kind::Slow), Error::Unavailable { .. }));
        assert!(matches!(of(Kind::NotFound), Error::NotFound(_)));
        assert!(matches!(of(Kind::Refused), Error::Failed(_)));
        let kinds = [(401, Kind::Auth), (404, Kind::NotFound), (409, Kind::Conflict), (422, Kind::Refused)];
        for (status, kind) in kinds.into_iter().chain([(429, Kind::Slow), (500, Kind::Fault), (503, Kind::Fault)]) {
            assert_eq!(Fault::kind_of(status), kind, "{status}");
        }
    }
}
