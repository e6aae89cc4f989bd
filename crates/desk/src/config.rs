//! Settings: what a desk is asked to be.
//!
//! Settings come in layers. The higher one wins, setting by setting:
//!
//! 1. a flag (`--size 1280x800`),
//! 2. `HOTDESK_*` in the environment (`HOTDESK_SIZE=1280x800`),
//! 3. the variables that OpenManus' images know (`RESOLUTION=1280x800x24`, …),
//! 4. a TOML file (`size = "1280x800"`),
//! 5. the default.
//!
//! Each layer is a [`Settings`] with holes; [`Settings::resolve`] fills them and checks what can
//! only be checked as a whole, such as "no password, yet open to the network".

mod layer;
mod value;

pub use layer::{BrowserSettings, Settings};
pub use value::{
    AttachTarget, DisplayChoice, ListenAddress, LogFormat, ScreenSize, Secret, ValueError, VncAddress, WindowManagerChoice,
    XServerChoice,
};

use crate::server::listen::Address;
use crate::server::token::Token;
use hotdesk_api::action::Size;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The settings of one desk, complete and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the HTTP server listens.
    pub listen: Vec<Address>,
    /// Whether everybody who reaches the server may use the desk.
    pub open: bool,
    /// What requests have to carry; made at the start if an address needs it.
    pub token: Option<Token>,
    /// Names besides `localhost` that the desk goes by on loopback.
    pub names: Vec<String>,
    /// Sites whose pages may use the desk on loopback: `https://board.example`.
    pub origins: Vec<String>,
    /// Which display is made.
    pub display: DisplayChoice,
    /// A display that exists already, to be used instead of making one.
    pub attach: Option<AttachTarget>,
    /// Size of the display that is made.
    pub size: Size,
    /// Where the VNC server listens, if anywhere.
    pub vnc: Option<SocketAddr>,
    pub vnc_password: Option<Secret>,
    pub x_server: XServerChoice,
    pub window_manager: WindowManagerChoice,
    /// Home and working directory of programs; that of the user if none is named.
    pub home: Option<PathBuf>,
    /// Shell commands that are started with the session.
    pub start: Vec<String>,
    /// A shell command that is run with each start, in a shell of its own.
    pub entrypoint: Option<String>,
    pub browser: Browser,
    /// Added to the environment of programs.
    pub env: BTreeMap<String, String>,
    pub log_format: LogFormat,
}

/// The browser that some desks keep open (`CHROME_PERSISTENT_SESSION`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Browser {
    /// Start it with the session and keep its profile.
    pub persistent: bool,
    pub debugging_host: String,
    pub debugging_port: u16,
    /// Whether it may report usage to its maker.
    pub telemetry: bool,
}

impl Default for Browser {
    fn default() -> Self {
        Self { persistent: false, debugging_host: "127.0.0.1".into(), debugging_port: 9222, telemetry: false }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 5000)).into()],
            open: false,
            token: None,
            names: Vec::new(),
            origins: Vec::new(),
            display: DisplayChoice::default(),
            attach: None,
            size: Size { width: 1920, height: 1080 },
            vnc: None,
            vnc_password: None,
            x_server: XServerChoice::default(),
            window_manager: WindowManagerChoice::default(),
            home: None,
            start: Vec::new(),
            entrypoint: None,
            browser: Browser::default(),
            env: BTreeMap::new(),
            log_format: LogFormat::default(),
        }
    }
}

/// Settings that can't be used, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    pub message: String,
    pub hint: Option<String>,
}

impl ConfigError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }
}

impl Config {
    /// Checks what no single setting can tell by itself.
    fn check(self) -> Result<Self, ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::new("`listen` is empty", "name an address, such as 127.0.0.1:5000"));
        }
        if let Some(vnc) = self.vnc
            && !vnc.ip().to_canonical().is_loopback()
            && self.vnc_password.is_none()
            && !self.open
        {
            return Err(ConfigError::new(
                format!("VNC on {vnc} would let everybody on the network see and drive this desk"),
                "set a password in VNC_PASSWORD, or say `--open` if the network is trusted",
            ));
        }
        if let Some(vnc) = self.vnc
            && vnc.port() != 0
            && self.listen.contains(&Address::Tcp(vnc))
        {
            return Err(ConfigError::new(
                format!("`listen` and `vnc` both name {vnc}"),
                "give them different ports; VNC usually has 5900",
            ));
        }
        if self.attach.is_some() && !matches!(self.display, DisplayChoice::Unnamed) {
            return Err(ConfigError::new("`attach` uses a display that exists and `display` makes one", "name one of the two"));
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(ConfigError::new(
                format!("`env` holds the name {name:?}"),
                "names are not empty and have no `=` in them",
            ));
        }
        if let Some((name, _)) = self.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(ConfigError::new(format!("the value of `{name}` in `env` holds a zero byte"), "remove it"));
        }
        if self.start.iter().any(|command| command.trim().is_empty() || command.contains('\0')) {
            return Err(ConfigError::new("`start` holds an empty command or one with a zero byte", "write a shell command"));
        }
        Ok(self)
    }
}
