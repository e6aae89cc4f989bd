//! What goes wrong with templates and images.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("there is no template `{name}`; there are: {known}")]
    Unknown { name: String, known: String },
    /// Known, but its root file system was not built here yet.
    #[error("the template `{name}` is not built yet; `hotdesk template build {name}` builds it")]
    NotBuilt { name: String },
    #[error("{0}")]
    Invalid(String),
    #[error("no room: {0}")]
    Full(String),
    #[error("{0}")]
    Failed(String),
}
