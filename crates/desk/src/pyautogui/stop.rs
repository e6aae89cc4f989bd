//! Why a program stops before its end.

use crate::error::Error;

pub(super) type Outcome<T> = Result<T, Stop>;

#[derive(Debug, Clone)]
pub(super) enum Stop {
    /// We can't do it exactly as Python would. Rehearsals find this out, before anything is done.
    Refuse(&'static str),
    /// An exception that nothing catches: its class as tracebacks print it, and its words.
    Raise(&'static str, String),
    /// `sys.exit(…)`: the status, and what goes to stderr.
    Exit(i32, String),
    /// The time is up.
    Late,
    /// The display failed.
    Display(Error),
    /// Somebody else drives now.
    Taken(Error),
}

/// The answer to everything outside the subset.
pub(super) fn refuse<T>(reason: &'static str) -> Outcome<T> {
    Err(Stop::Refuse(reason))
}

pub(super) fn raise<T>(class: &'static str, words: impl Into<String>) -> Outcome<T> {
    Err(Stop::Raise(class, words.into()))
}
