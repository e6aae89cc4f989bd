//! What goes wrong at a provider, told so that the fleet knows what to do next.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// This provider can't do that here; asking again can't help.
    #[error("{what} is not possible with {provider}: {reason}")]
    Unsupported { provider: &'static str, what: String, reason: String },
    /// The request names something that does not exist: a template, a snapshot, a desk.
    #[error("{0}")]
    NotFound(String),
    /// The provider itself is away (a daemon is down, an API does not answer): ask again later.
    #[error("{provider} is not available: {reason}")]
    Unavailable { provider: &'static str, reason: String },
    /// No room: disk, memory, quota.
    #[error("no room: {0}")]
    Full(String),
    #[error("the desk did not become ready: {0}")]
    NotReady(String),
    #[error("{0}")]
    Failed(String),
}
