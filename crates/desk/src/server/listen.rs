//! Where a server listens: TCP or a Unix socket.

use crate::error::{Error, Result};
pub use hotdesk_serve::Address;
use std::os::fd::FromRawFd;
use std::path::Path;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// From where a listener can be reached, which decides how requests are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// By programs of the desk itself, who may do all that anyway.
    Desk,
    /// By whoever may open the socket's file.
    File,
    /// By every program of this machine, web pages in its browsers included.
    Machine,
    /// By the network.
    Network,
}

impl From<&Address> for Reach {
    fn from(address: &Address) -> Self {
        match address {
            Address::Unix(_) => Self::File,
            Address::Tcp(_) if address.is_loopback() => Self::Machine,
            Address::Tcp(_) => Self::Network,
        }
    }
}

/// A socket that takes connections.
pub struct Listener {
    address: Address,
    socket: Socket,
    reach: Reach,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub async fn bind(address: &Address) -> Result<Self> {
        let failed = |e: std::io::Error| {
            let hint = match e.kind() {
                std::io::ErrorKind::AddrInUse => "; something listens there already: choose another with `--listen`",
                std::io::ErrorKind::PermissionDenied => "; ports below 1024 need root: choose another with `--listen`",
                _ => "",
            };
            Error::Conflict(format!("can't listen on {address}: {e}{hint}"))
        };
        match address {
            Address::Tcp(wanted) => {
                let socket = TcpListener::bind(wanted).await.map_err(failed)?;
                let address = Address::Tcp(socket.local_addr().map_err(failed)?);
                Ok(Self { reach: (&address).into(), address, socket: Socket::Tcp(socket) })
            }
            Address::Unix(path) => {
                if let Some(socket) = handed_over(path) {
                    let socket = UnixListener::from_std(socket).map_err(failed)?;
                    return Ok(Self { address: address.clone(), socket: Socket::Unix(socket), reach: Reach::File });
                }
                // Its file is the only guard of this address.
                let socket = hotdesk_serve::bind_unix(path).map_err(failed)?;
                Ok(Self { address: address.clone(), socket: Socket::Unix(socket), reach: Reach::File })
            }
        }
    }

    /// A socket for the programs of the desk: whoever may open its file needs no token.
    pub async fn bind_for_programs(path: &Path) -> Result<Self> {
        let mut listener = Self::bind(&Address::Unix(path.into())).await?;
        listener.reach = Reach::Desk;
        Ok(listener)
    }

    /// A socket that somebody else has opened.
    pub fn given(socket: std::os::unix::net::UnixListener) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let path = socket.local_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();
        Ok(Self { address: Address::Unix(path), socket: Socket::Unix(UnixListener::from_std(socket)?), reach: Reach::Desk })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    pub(super) async fn accept(&self) -> std::io::Result<Stream> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                // An answer is one write; waiting to fill a packet would add up to 40 ms to it.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Socket::Unix(socket) => Ok(Stream::Unix(socket.accept().await?.0)),
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

/// A socket for this path that whoever started us opened for us, as `systemd` does: `LISTEN_FDS` of them, from number 3 on.
/// So a server can have a socket in a directory where it may not make one.
fn handed_over(path: &Path) -> Option<std::os::unix::net::UnixListener> {
    const FIRST: i32 = 3;
    // More than anybody hands over; the variable comes from outside.
    const MOST: i32 = 64;
    let number = |name: &str| std::env::var(name).ok()?.parse::<i32>().ok();
    // Meant for us, or for the process above, of which we are the second half.
    let (own, above) = (nix::unistd::getpid().as_raw(), nix::unistd::getppid().as_raw());
    number("LISTEN_PID").filter(|pid| [own, above].contains(pid))?;
    let count = number("LISTEN_FDS")?.clamp(0, MOST);
    let found = (FIRST..FIRST + count).find(|fd| {
        // SAFETY: only looked at; a number that is not open answers an error.
        let name = rustix::net::getsockname(unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) });
        let name = name.ok().and_then(|name| rustix::net::SocketAddrUnix::try_from(name).ok());
        name.is_some_and(|name| name.path_bytes() == Some(path.as_os_str().as_encoded_bytes()))
    })?;
    // SAFETY: it was opened for us under this number, and nothing else here uses it.
    let socket = std::os::unix::net::UnixListener::from(unsafe { std::os::fd::OwnedFd::from_raw_fd(found) });
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        for (text, reach) in [
            ("127.0.0.1:5000", Reach::Machine),
            ("127.8.8.8:1", Reach::Machine),
            ("localhost:5000", Reach::Machine),
            ("[::1]:5000", Reach::Machine),
            ("[::ffff:127.0.0.1]:5000", Reach::Machine),
            ("0.0.0.0:5000", Reach::Network),
            (":5000", Reach::Network),
            ("[::]:5000", Reach::Network),
            ("10.0.0.1:5000", Reach::Network),
            ("unix:/tmp/x", Reach::File),
        ] {
            assert_eq!(Reach::from(&text.parse::<Address>().unwrap()), reach, "{text}");
        }
    }

    #[tokio::test]
    async fn a_socket_goes_with_its_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address = Address::Unix(path.clone());
        let live = Listener::bind(&address).await.unwrap();
        assert!(Listener::bind(&address).await.is_err());
        drop(live);
        assert!(!path.exists());
    }

    /// Sockets that are handed over have fixed numbers, so this needs a process of its own.
    #[test]
    fn a_socket_that_is_handed_over_is_used() {
        const PATH: &str = "HOTDESK_TEST_HANDED_OVER";
        if let Some(path) = std::env::var_os(PATH) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            return runtime.block_on(async {
                let listener = Listener::bind(&Address::Unix(path.into())).await.unwrap();
                listener.accept().await.unwrap();
            });
        }
        use std::os::fd::AsRawFd;
        use std::os::unix::process::CommandExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // Nobody can make another one here, root included, and none is needed.
        let (number, name) = (socket.as_raw_fd(), "server::listen::tests::a_socket_that_is_handed_over_is_used");
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name]).env(PATH, &path).env("LISTEN_FDS", "1");
        // SAFETY: one system call. The number may be the right one already, and then only the mark to close it has to go.
        unsafe {
            command.pre_exec(move || match number {
                3 if nix::libc::fcntl(3, nix::libc::F_SETFD, 0) == 0 => Ok(()),
                _ if number != 3 && nix::libc::dup2(number, 3) == 3 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        // It is meant for the process above, which is this one.
        command.env("LISTEN_PID", std::process::id().to_string());
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        let mut child = command.spawn().unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap()), inode);
        assert!(child.wait().unwrap().success());
    }
}
