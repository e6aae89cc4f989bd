//! What Google answers when it does not do what was asked, sorted by what to do next.

use super::NAME;
use crate::Error;
use crate::cloud::{self, Kind};
use serde::Deserialize;

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is nothing of that name.
    Gone(String),
    /// There is something of that name already.
    Exists(String),
    /// The account's limit: no other zone of the region helps.
    Quota(String),
    /// The zone has no such machine left: another one may.
    NoRoom(String),
    /// The credentials, or what they may do.
    Refused(String),
    /// No answer, or one that says "later": the same call may work in a while.
    Away(String),
    /// The request can't be right.
    Wrong(String),
}

pub(super) type Outcome<T> = std::result::Result<T, Fault>;

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Gone(why) => Self::NotFound(why),
            Fault::Quota(why) => Self::Full(format!("Google's quota is used up: {why}")),
            Fault::NoRoom(why) => Self::Full(format!("Google has no such machine left: {why}")),
            // Desks stay as they are until somebody gave the rights back.
            Fault::Refused(why) => Self::Unavailable { provider: NAME, reason: format!("Google refuses us: {why}") },
            Fault::Away(why) => Self::Unavailable { provider: NAME, reason: why },
            Fault::Exists(why) | Fault::Wrong(why) => Self::Failed(why),
        }
    }
}

impl From<cloud::Fault> for Fault {
    fn from(fault: cloud::Fault) -> Self {
        let why = fault.message;
        match fault.kind {
            Kind::Quota if has(&why, &NO_ROOM) => Self::NoRoom(why),
            Kind::Quota => Self::Quota(why),
            Kind::Auth => Self::Refused(why),
            Kind::NotFound => Self::Gone(why),
            Kind::Conflict => Self::Exists(why),
            Kind::Slow | Kind::Fault => {
                Self::Away(fault.status.map_or_else(|| why.clone(), |status| format!("status {status}: {why}")))
            }
            Kind::Refused => Self::Wrong(why),
        }
    }
}

/// The error of an operation that failed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    errors: Vec<Reason>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Reason {
    code: String,
    message: String,
}

impl Told {
    pub(super) fn fault(&self, status: u16) -> Fault {
        let texts: Vec<String> = self.errors.iter().map(|e| format!("{} ({})", e.message, e.code)).collect();
        let message = if texts.is_empty() { "no reason was given".into() } else { texts.join("; ") };
        let kind = sort(status, &message).unwrap_or_else(|| cloud::Fault::kind_of(status));
        cloud::Fault { status: Some(status), ..cloud::Fault::new(NAME, kind, message) }.into()
    }
}

// Google's words for its reasons, of answers (`quotaExceeded`) and of operations (`QUOTA_EXCEEDED`). They stand in brackets behind
// the message.
const QUOTA: [&str; 4] = ["(quotaExceeded", "(QUOTA_EXCEEDED", "(QUOTA_LIMIT_EXCEEDED", "(limitExceeded"];
const NO_ROOM: [&str; 3] = ["(ZONE_RESOURCE_POOL_EXHAUSTED", "(STOCKOUT", "(zoneResourcePoolExhausted"];
/// These say "too fast", though some come with the status of a refusal.
const TOO_FAST: [&str; 4] = ["(rateLimitExceeded", "(userRateLimitExceeded", "(RATE_LIMIT_EXCEEDED", "(concurrentOperationLimit"];
/// Something else is being done to the same thing.
const NOT_READY: [&str; 4] =
    ["(resourceNotReady", "(RESOURCE_NOT_READY", "(resourceInUseByAnotherResource", "(RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"];
const EXISTS: [&str; 2] = ["(alreadyExists", "(RESOURCE_ALREADY_EXISTS"];
const GONE: [&str; 2] = ["(notFound", "(RESOURCE_NOT_FOUND"];

fn has(message: &str, words: &[&str]) -> bool {
    words.iter().any(|word| message.contains(word))
}

/// Of which kind a refusal is, by its words. None: its status tells.
pub(super) fn sort(_status: u16, message: &str) -> Option<Kind> {
    let kinds: [(&[&str], Kind); 6] = [
        (&NO_ROOM, Kind::Quota),
        (&TOO_FAST, Kind::Slow),
        (&QUOTA, Kind::Quota),
        (&NOT_READY, Kind::Fault),
        (&EXISTS, Kind::Conflict),
        (&GONE, Kind::NotFound),
    ];
    kinds.iter().find(|(words, _)| has(message, words)).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: u16, code: &str) -> Fault {
        Told { errors: vec![Reason { code: code.into(), message: "because".into() }] }.fault(status)
    }

    #[test]
    fn quotas_are_told_apart_from_faults() {
        assert!(matches!(ended(403, "QUOTA_EXCEEDED"), Fault::Quota(_)));
        assert!(matches!(ended(503, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"), Fault::NoRoom(_)));
        assert!(matches!(ended(403, "rateLimitExceeded"), Fault::Away(_)));
        assert!(matches!(ended(403, "forbidden"), Fault::Refused(_)));
        assert!(matches!(ended(400, "resourceNotReady"), Fault::Away(_)));
        assert!(matches!(ended(400, "invalid"), Fault::Wrong(_)));
        assert!(matches!(ended(409, "RESOURCE_ALREADY_EXISTS"), Fault::Exists(_)));
        assert!(matches!(ended(500, "INTERNAL_ERROR"), Fault::Away(_)));
        assert!(matches!(Error::from(Fault::Quota("x".into())), Error::Full(_)));
        assert!(matches!(Error::from(Fault::Refused("x".into())), Error::Unavailable { .. }));
    }
}
