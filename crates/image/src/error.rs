//! What goes wrong with templates and images.

use std::path::PathBuf;

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
    #[error("{what} is in use: {} built on it ({})", count(users.len()), listed(users))]
    InUse { what: String, users: Vec<PathBuf> },
    #[error("no room: {0}")]
    Full(String),
    #[error("{0}")]
    Failed(String),
}

fn count(users: usize) -> String {
    if users == 1 { "one is".into() } else { format!("{users} are") }
}

/// The first few, by where they are written down.
fn listed(users: &[PathBuf]) -> String {
    let shown: Vec<_> = users.iter().take(3).map(|path| path.display().to_string()).collect();
    shown.join(", ") + if users.len() > 3 { ", …" } else { "" }
}
