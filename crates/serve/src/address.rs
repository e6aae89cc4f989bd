//! Where a server listens: TCP or a Unix socket.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// `127.0.0.1:7700`, `localhost:7700`, `[::1]:7700`, `:7700` (every address) or `unix:/run/hotdesk/api.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    #[error("`{0}` is not an address to listen on: write `127.0.0.1:PORT`, `[::1]:PORT`, `:PORT` or `unix:PATH`")]
    Unreadable(String),
    #[error("`unix:` needs the path of a socket: `unix:/run/hotdesk.sock`")]
    NoPath,
}

impl Address {
    /// Whether only programs of this machine reach it, those in its browsers included.
    pub fn is_loopback(&self) -> bool {
        matches!(self, Self::Tcp(address) if address.ip().to_canonical().is_loopback())
    }

    /// As people open it.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) => self.to_string(),
        }
    }
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        match text.strip_prefix("unix:") {
            Some("") => return Err(NoAddress::NoPath),
            Some(path) => return Ok(Self::Unix(path.into())),
            None => {}
        }
        let full = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None if text.starts_with(':') => format!("0.0.0.0{text}"),
            None => text.to_owned(),
        };
        full.parse().map(Self::Tcp).map_err(|_| NoAddress::Unreadable(text.into()))
    }
}

impl TryFrom<String> for Address {
    type Error = NoAddress;

    fn try_from(text: String) -> Result<Self, NoAddress> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written, url, loopback) in [
            ("127.0.0.1:7700", "127.0.0.1:7700", "http://127.0.0.1:7700", true),
            ("127.8.8.8:1", "127.8.8.8:1", "http://127.8.8.8:1", true),
            ("localhost:7700", "127.0.0.1:7700", "http://127.0.0.1:7700", true),
            ("[::1]:7700", "[::1]:7700", "http://[::1]:7700", true),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", "http://[::ffff:127.0.0.1]:1", true),
            (":7700", "0.0.0.0:7700", "http://0.0.0.0:7700", false),
            ("[::]:7700", "[::]:7700", "http://[::]:7700", false),
            ("10.0.0.1:7700", "10.0.0.1:7700", "http://10.0.0.1:7700", false),
            ("unix:/run/x", "unix:/run/x", "unix:/run/x", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.url().as_str()), (written, url), "{text}");
            assert_eq!(address.is_loopback(), loopback, "{text}");
            assert_eq!(serde_json::from_str::<Address>(&serde_json::to_string(&address).unwrap()).unwrap(), address);
        }
        for text in ["", "unix:", "7700", "127.0.0.1", "127.0.0.1:70000", "example.com:80", "localhost:"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
