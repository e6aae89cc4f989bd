//! Where the desk's programs live: the display, the home directory and the environment that
//! every one of them inherits. All of it is known before anything is started.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
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

    /// A new connection and the number of the screen. Each engine has its own.
    pub fn connect(&self) -> Result<(RustConnection, usize)> {
        let path = format!("/tmp/.X11-unix/X{}", self.number);
        let stream = UnixStream::connect(&path).map_err(|e| Error::display_down(format!("{path}: {e}")))?;
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
