//! Where the gateway listens: TCP or a Unix socket.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How long a connection may be quiet before the other side is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// `127.0.0.1:7700`, `localhost:7700`, `[::1]:7700`, `:7700` (every address) or `unix:/run/hotdesk/api.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// From where a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// None: a Unix socket.
    pub address: Option<SocketAddr>,
    /// Whether the listener is one of loopback, which browsers of this machine reach.
    pub machine: bool,
    pub tls: bool,
}

impl Peer {
    /// The client's network address, without what it can change freely: a port, the lower half of IPv6.
    pub fn network(&self) -> IpAddr {
        match self.address.map(|a| a.ip().to_canonical()) {
            Some(IpAddr::V6(ip)) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
            Some(ip) => ip,
            None => IpAddr::from([127, 0, 0, 1]),
        }
    }

    /// Whether the client is a program of this machine.
    pub fn is_local(&self) -> bool {
        self.address.is_none_or(|a| a.ip().to_canonical().is_loopback())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{}", address.ip().to_canonical()),
            None => f.write_str("unix"),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(Error::Settings("`unix:` needs the path of a socket: `unix:/run/hotdesk/api.sock`".into()));
            }
            return Ok(Self::Unix(path.into()));
        }
        let full = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None if text.starts_with(':') => format!("0.0.0.0{text}"),
            None => text.to_owned(),
        };
        full.parse().map(Self::Tcp).map_err(|_| {
            Error::Settings(format!(
                "`{text}` is not an address to listen on: write `127.0.0.1:7700`, `[::1]:7700`, `:7700` or `unix:PATH`"
            ))
        })
    }
}

impl TryFrom<String> for Address {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
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

/// A socket that takes connections.
pub(crate) struct Listener {
    address: Address,
    socket: Socket,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub(crate) async fn bind(address: &Address) -> Result<Self> {
        let failed = |e: std::io::Error| {
            let hint = match e.kind() {
                std::io::ErrorKind::AddrInUse => "something listens there already: choose another with `--listen`",
                std::io::ErrorKind::PermissionDenied => "ports below 1024 need root: choose another with `--listen`",
                std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
                _ => "choose another with `--listen`",
            };
            Error::Listen { address: address.clone(), reason: e.to_string(), hint }
        };
        match address {
            Address::Tcp(wanted) => {
                let socket = TcpListener::bind(wanted).await.map_err(failed)?;
                let address = Address::Tcp(socket.local_addr().map_err(failed)?);
                Ok(Self { address, socket: Socket::Tcp(socket) })
            }
            Address::Unix(path) => {
                remove_dead_socket(path).map_err(failed)?;
                let socket = UnixListener::bind(path).map_err(failed)?;
                // Keys are needed here too; the file only keeps other users from knocking.
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
                Ok(Self { address: address.clone(), socket: Socket::Unix(socket) })
            }
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether it can be reached from this machine only.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self.address, Address::Tcp(address) if address.ip().to_canonical().is_loopback())
    }

    pub(crate) async fn accept(&self) -> std::io::Result<(Stream, Option<SocketAddr>)> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, from) = socket.accept().await?;
                // An answer is one write; waiting to fill a packet would add up to 40 ms to it.
                stream.set_nodelay(true)?;
                // A live view may be quiet for hours; who vanished without a word is found out.
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                rustix::net::sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE)?;
                rustix::net::sockopt::set_tcp_keepintvl(&stream, KEEP_ALIVE / 4)?;
                Ok((Stream::Tcp(stream), Some(from)))
            }
            Socket::Unix(socket) => Ok((Stream::Unix(socket.accept().await?.0), None)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket that nobody listens on is what a killed gateway leaves; anything else stays.
fn remove_dead_socket(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(std::io::ErrorKind::AddrInUse.into()),
            Err(_) => std::fs::remove_file(path),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("127.0.0.1:7700", "127.0.0.1:7700"),
            ("localhost:7700", "127.0.0.1:7700"),
            (":7700", "0.0.0.0:7700"),
            ("[::1]:7700", "[::1]:7700"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), written);
        }
        for text in ["", "unix:", "7700", "127.0.0.1", "127.0.0.1:70000", "example.com:80", "localhost:"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn neighbours_in_ipv6_are_one_network() {
        let peer = |text: &str| Peer { address: Some(text.parse().unwrap()), machine: false, tls: false };
        assert_eq!(peer("[2001:db8::1]:1").network(), peer("[2001:db8::2]:2").network());
        assert_ne!(peer("[2001:db8:0:1::1]:1").network(), peer("[2001:db8::1]:1").network());
        assert_eq!(peer("[::ffff:10.0.0.1]:1").network(), peer("10.0.0.1:9").network());
        assert!(peer("[::ffff:127.0.0.1]:1").is_local() && !peer("10.0.0.1:9").is_local());
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let address = Address::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        // A program that another test starts at this moment has it too, until it is that program.
        while std::os::unix::net::UnixStream::connect(&path).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let live = Listener::bind(&address).await.unwrap();
        assert!(Listener::bind(&address).await.is_err());
        drop(live);
        assert!(!path.exists());
    }
}
