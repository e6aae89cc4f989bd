//! Where the desk's programs live: the display, the home directory and the environment that
//! every one of them inherits. All of it is known before anything is started.

mod claim;
mod environment;
pub mod numbers;
pub mod xauthority;

pub use claim::Claim;
pub(crate) use environment::change_variables;

use crate::config::Config;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use x11rb::rust_connection::{DefaultStream, RustConnection};

/// An X display on this machine and the cookie that opens it.
#[derive(Debug, Clone)]
pub struct Display {
    /// The number after the colon.
    pub number: u16,
    /// MIT-MAGIC-COOKIE-1, if the server wants one.
    pub cookie: Option<[u8; 16]>,
}

impl Display {
    /// `:99`
    pub fn name(&self) -> String {
        format!(":{}", self.number)
    }

    /// The socket of the X server.
    pub fn socket(&self) -> PathBuf {
        numbers::socket(self.number)
    }

    /// A new connection and the number of the screen. Each engine has its own.
    pub fn connect(&self) -> Result<(RustConnection, usize)> {
        let path = self.socket();
        let stream = UnixStream::connect(&path)
            // Where the file system is not shared, or the socket file was swept away, X is still there by this name.
            .or_else(|e| {
                let address = SocketAddr::from_abstract_name(path.as_os_str().as_bytes());
                address.and_then(|address| UnixStream::connect_addr(&address)).map_err(|_| e)
            })
            .map_err(|e| Error::display_down(format!("{}: {e}", path.display())))?;
        let (stream, _) = DefaultStream::from_unix_stream(stream).map_err(Error::display_down)?;
        let (name, data) = match &self.cookie {
            Some(c) => (b"MIT-MAGIC-COOKIE-1".to_vec(), c.to_vec()),
            None => (Vec::new(), Vec::new()),
        };
        let connection = RustConnection::connect_to_stream_with_auth_info(stream, 0, name, data).map_err(Error::display_down)?;
        Ok((connection, 0))
    }
}

/// What every program of the desk inherits.
#[derive(Debug, Clone)]
pub struct Place {
    pub display: Display,
    /// The working directory of programs and of relative paths.
    pub home: PathBuf,
    /// `XDG_RUNTIME_DIR`: sockets of the session.
    pub runtime_dir: PathBuf,
    /// Address of the D-Bus session.
    pub bus: String,
    /// The whole environment of programs: `DISPLAY`, `HOME`, `PATH`, …
    pub env: BTreeMap<String, String>,
}

impl Place {
    /// Decides on the place of a desk and claims what must not be shared: the number of the
    /// display and the directory of the sockets. The claim ends when it is dropped.
    pub fn claim(config: &Config) -> Result<(Self, Claim)> {
        claim::claim(config)
    }

    /// The environment of a program that is started now.
    pub(crate) fn environment_now(&self) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        environment::apply_changes(&mut env);
        env
    }

    /// Looks a program up as the desk's programs would find it.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        find_program(name, self.env.get("PATH").map_or(environment::DEFAULT_PATH, String::as_str))
    }
}

/// Looks a program up in a list of directories, as `execvp` does.
pub fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let executable = |candidate: PathBuf| {
        let file = std::fs::metadata(&candidate).is_ok_and(|m| m.is_file());
        (file && rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok()).then_some(candidate)
    };
    if name.contains('/') {
        return executable(PathBuf::from(name));
    }
    std::env::split_paths(OsStr::new(path)).filter(|folder| folder.is_absolute()).find_map(|folder| executable(folder.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(find_program("sh", "/nowhere:/bin"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("/bin/sh", ""), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("sh", ""), None);
        assert_eq!(find_program("passwd", "/etc"), None, "a file that can't be run is no program");
        assert_eq!(find_program("", "/bin"), None);
    }
}
