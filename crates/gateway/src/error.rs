//! Why a gateway can't be started.

use crate::listen::Address;
use std::path::PathBuf;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Settings(String),
    #[error("can't listen on {address}: {reason}; {hint}")]
    Listen { address: Address, reason: String, hint: &'static str },
    #[error("can't use the certificate or key in {}: {reason}", file.display())]
    Tls { file: PathBuf, reason: String },
}

impl From<hotdesk_serve::NoAddress> for Error {
    fn from(error: hotdesk_serve::NoAddress) -> Self {
        Self::Settings(error.to_string())
    }
}
