//! What a request asks for: read once from its address and headers, and the same for every layer that it passes.
//!
//! The dialect that it is written in says so ([`crate::dialects`]); limits, admission, metrics and the audit log go by it, and never by
//! the address.

use crate::dialects::Dialect;
use std::ops::Deref;

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `/health`, `/ready`, `/metrics`, the description.
    Probe,
    /// To the fleet.
    Control,
    /// A picture of a desk.
    Screenshot,
    /// Something is done on a desk.
    Action,
    /// Anything else of a desk.
    Desk,
    /// A port of a desk.
    Port,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Control => "control",
            Self::Screenshot => "screenshot",
            Self::Action => "action",
            Self::Desk => "desk",
            Self::Port => "port",
        }
    }

    /// Whether a desk answers.
    pub(crate) fn is_passed_on(self) -> bool {
        matches!(self, Self::Screenshot | Self::Action | Self::Desk | Self::Port)
    }
}

/// Which right a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// None: it is for everybody.
    Open,
    /// None for programs of this machine, where the settings say so; else a key.
    Machine,
    /// A key, or a session of the dashboard.
    Key,
    /// A key, or what the dialect takes in its place.
    KeyOrGuest,
    /// What the dialect takes. No key is looked for: what looks like one is for a program in the desk.
    Guest,
}

/// What a dialect says about a request that is written in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) class: Class,
    /// As the request names it.
    pub(crate) desk: Option<String>,
    pub(crate) right: Right,
    /// Its answers are shown under a host name that nothing else of ours has.
    pub(crate) own_origin: bool,
    /// What it does is written to the audit log where it is done, one by one.
    pub(crate) audited_within: bool,
}

impl Claim {
    /// Of a request that needs a key.
    pub(crate) fn new(class: Class, desk: Option<&str>) -> Self {
        Self { class, desk: desk.map(str::to_owned), right: Right::Key, own_origin: false, audited_within: false }
    }

    pub(crate) fn right(self, right: Right) -> Self {
        Self { right, ..self }
    }
}

/// A request's way: the dialect, and what that says.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) dialect: &'static dyn Dialect,
    pub(crate) claim: Claim,
}

impl Deref for Route {
    type Target = Claim;

    fn deref(&self) -> &Claim {
        &self.claim
    }
}
