//! The way into a desk: its server's address and the secret that opens it.

mod web;

pub use web::{Hidden, Web};
pub(crate) use web::{is_loopback, tls_config};

use crate::{Error, Result};
use hotdesk_api::activity::Activity;
pub use hotdesk_desk_client::Health;
use hotdesk_desk_client::{Client, Connect, Direct, headers};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

/// A desk tells in milliseconds how it is.
const ANSWER: Duration = Duration::from_secs(5);
/// A desk's own name of its socket, beside the one by which it is reached.
pub(crate) const OWN_NAME: &str = "server.sock";
/// How long a desk that is being saved is waited for. It takes a fraction of a second, and more with gigabytes of memory.
const SAVING: Duration = Duration::from_secs(30);
/// Pauses between two looks at a desk that starts: it takes 150 ms, so a look each few is worth it.
const LOOK: Duration = Duration::from_millis(4);
/// The same for a desk behind a vendor's edge, which counts requests and takes longer anyway.
const FAR_LOOK: Duration = Duration::from_millis(250);
/// Where a running desk's server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Address {
    Unix {
        path: PathBuf,
    },
    Tcp {
        addr: SocketAddr,
    },
    /// Behind a vendor's edge.
    Web(Web),
}

/// An address and what opens it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    pub address: Address,
    pub secret: String,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Door {
    /// Waits until the desk says that it is ready; `alive` says what ended it, if it did.
    pub async fn wait_ready(
        &self,
        limit: Duration,
        stage: impl Fn(&str),
        mut alive: impl AsyncFnMut() -> Option<String>,
    ) -> Result<()> {
        let end = Instant::now() + limit;
        let mut last = String::from("its server does not listen yet");
        loop {
            match self.health().await {
                Ok(health) if health.ready => return Ok(()),
                Ok(health) => {
                    stage(&health.stage);
                    last = health.stage;
                }
                Err(_) => {
                    if let Some(end) = alive().await {
                        return Err(Error::NotReady(end));
                    }
                }
            }
            if Instant::now() > end {
                return Err(Error::NotReady(format!("after {} s it was still at: {last}", limit.as_secs())));
            }
            tokio::time::sleep(if matches!(self.address, Address::Web(_)) { FAR_LOOK } else { LOOK }).await;
        }
    }

    /// Puts on a request to the desk's own server what opens it, and takes off what would not get through.
    pub fn dress(&self, headers: &mut HeaderMap) {
        match &self.address {
            Address::Web(web) => {
                let edge = web.headers.iter().map(|(name, Hidden(value))| (name.as_str(), value.as_str()));
                headers::open_behind_edge(headers, &web.authority(), &self.secret, edge);
            }
            Address::Unix { .. } | Address::Tcp { .. } => headers::open(headers, Some(&self.secret)),
        }
    }

    /// Whether an answer to a request that was [dressed](Self::dress) is not the desk's: its server knows the token, and sends nobody elsewhere.
    pub fn is_stranger(&self, status: StatusCode) -> bool {
        let edge = [StatusCode::FOUND, StatusCode::TEMPORARY_REDIRECT, StatusCode::BAD_GATEWAY];
        status == StatusCode::UNAUTHORIZED || (matches!(self.address, Address::Web(_)) && edge.contains(&status))
    }

    pub async fn health(&self) -> Result<Health> {
        self.asked("/health", self.desk().health().await)
    }

    /// Signs of work.
    pub async fn activity(&self) -> Result<Activity> {
        self.asked("/v1/activity", self.desk().activity().await)
    }

    /// Whether the desk there takes this secret; none if there is no desk to tell.
    pub async fn opens(&self) -> Option<bool> {
        match self.desk().activity().await {
            Ok(_) => Some(true),
            Err(error) => (error.status() == Some(StatusCode::UNAUTHORIZED)).then_some(false),
        }
    }

    /// The desk, asked with a connection for each request.
    fn desk(&self) -> Client<Direct<&Self>> {
        self.client().within(ANSWER)
    }

    fn asked<T>(&self, path: &str, answer: hotdesk_desk_client::Result<T>) -> Result<T> {
        answer.map_err(|e| Error::Failed(format!("the desk did not answer {path}: {e}")))
    }
}

impl Connect for Door {
    type Stream = Stream;

    async fn connect(&self) -> io::Result<Stream> {
        self.address.connect().await
    }

    fn open(&self, headers: &mut HeaderMap) {
        self.dress(headers);
    }
}

impl Address {
    pub async fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix { path } => connect_unix(path).await.map(Stream::Unix),
            Self::Tcp { addr } => {
                let stream = TcpStream::connect(addr).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Self::Web(web) => web.connect().await.map(|connection| match connection {
                web::Connection::Plain(stream) => Stream::Tcp(stream),
                web::Connection::Secure(stream) => Stream::Tls(stream),
            }),
        }
    }
}

/// Connects to a socket of a desk, and to nothing else: where a desk may write its directory, it could have put a link
/// to a socket of the host there. This way a path may also be longer than a system's address.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let is_saved = || std::fs::symlink_metadata(path.with_file_name(OWN_NAME)).is_ok();
    let end = Instant::now() + SAVING;
    let socket = loop {
        match open_socket(path) {
            // While a desk is saved with its memory, its socket has lost this name and kept its own.
            Err(e) if e.kind() == io::ErrorKind::NotFound && is_saved() && Instant::now() < end => {
                tokio::time::sleep(LOOK).await;
            }
            socket => break socket?,
        }
    };
    UnixStream::connect(by_number(&socket)).await
}

/// A socket by its path, never by way of a link, and nothing but a socket.
pub(crate) fn open_socket(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{FileType, Mode, OFlags};
    let socket = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other(format!("{} is not a socket", path.display())));
    }
    Ok(socket)
}

/// A path to what a descriptor of ours is open on.
pub(crate) fn by_number(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// A connection to a desk.
#[derive(Debug)]
pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_read(cx, buffer),
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buffer),
            Self::Tls(s) => Pin::new(s).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_write(cx, data),
            Self::Tcp(s) => Pin::new(s).poll_write(cx, data),
            Self::Tls(s) => Pin::new(s).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
            Self::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_dressed_for_their_way() {
        let door = |address| Door { address, secret: "s".into() };
        let dressed = |door: &Door| {
            let mut headers = HeaderMap::new();
            door.dress(&mut headers);
            headers
        };
        let local = door(Address::Tcp { addr: ([127, 0, 0, 1], 1).into() });
        assert_eq!(dressed(&local)["authorization"], "Bearer s");
        let web = Web::of("https://5000-a.example", None, [("X-Edge".into(), "e".into())]).unwrap();
        let far = door(Address::Web(web));
        let headers = dressed(&far);
        assert_eq!((&headers["host"], &headers["x-edge"]), (&"5000-a.example".parse().unwrap(), &"e".parse().unwrap()));
        assert_eq!((&headers["x-hotdesk-token"], headers.len()), (&"s".parse().unwrap(), 3));
        assert!(far.is_stranger(StatusCode::TEMPORARY_REDIRECT) && !local.is_stranger(StatusCode::BAD_GATEWAY));
    }

    #[test]
    fn addresses_are_written_and_read() {
        let web = Web::of("https://5000-a.example", None, [("x-edge".into(), "e".into())]).unwrap();
        let tcp = Address::Tcp { addr: ([127, 0, 0, 1], 1).into() };
        for address in [Address::Web(web), tcp] {
            let text = serde_json::to_string(&address).unwrap();
            assert_eq!(serde_json::from_str::<Address>(&text).unwrap(), address, "{text}");
        }
    }

    #[tokio::test]
    async fn only_a_socket_is_a_desk() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let listener = tokio::net::UnixListener::bind(folder.path().join("s")).unwrap();
        std::fs::rename(folder.path().join("s"), deep.join("s")).unwrap();
        let connect = async |path: PathBuf| Address::Unix { path }.connect().await;
        connect(deep.join("s")).await.expect("a long path is no trouble");
        listener.accept().await.unwrap();
        std::os::unix::fs::symlink(deep.join("s"), folder.path().join("link")).unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(connect(folder.path().join("link")).await.is_err(), "a link is not followed");
        assert!(connect(folder.path().join("file")).await.is_err());
        assert!(connect(folder.path().join("nothing")).await.is_err());
    }
}
