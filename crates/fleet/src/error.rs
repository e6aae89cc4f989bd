//! What the fleet refuses and what fails, told so that a client knows what to do next.

use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(String),
    #[error("there is no {what} {id}")]
    NotFound { what: &'static str, id: String },
    #[error("{0}")]
    Denied(String),
    /// Not possible in the state that the desk is in.
    #[error("{0}")]
    Conflict(String),
    /// A limit is reached: desks, CPU, memory, disk. May help later.
    #[error("{reason}")]
    Limit { reason: String, retry_after: Duration },
    /// The money is spent; nothing helps until the budget is raised or a new day begins.
    #[error("{0}")]
    Budget(String),
    #[error("{what} took longer than {} s", limit.as_secs())]
    Timeout { what: String, limit: Duration },
    #[error("the store failed: {0}")]
    Store(String),
    #[error(transparent)]
    Provider(#[from] hotdesk_provider::Error),
}
