//! Where the gateway listens: TCP or a Unix socket.

use crate::error::{Error, Result};
pub use hotdesk_serve::Address;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How long a connection may be quiet before the other side is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

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
                // Keys are needed here too; its file only keeps other users from knocking.
                let socket = hotdesk_serve::bind_unix(path).map_err(failed)?;
                Ok(Self { address: address.clone(), socket: Socket::Unix(socket) })
            }
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_ipv6_are_one_network() {
        let peer = |text: &str| Peer { address: Some(text.parse().unwrap()), machine: false, tls: false };
        assert_eq!(peer("[2001:db8::1]:1").network(), peer("[2001:db8::2]:2").network());
        assert_ne!(peer("[2001:db8:0:1::1]:1").network(), peer("[2001:db8::1]:1").network());
        assert_eq!(peer("[::ffff:10.0.0.1]:1").network(), peer("10.0.0.1:9").network());
        assert!(peer("[::ffff:127.0.0.1]:1").is_local() && !peer("10.0.0.1:9").is_local());
    }
}
