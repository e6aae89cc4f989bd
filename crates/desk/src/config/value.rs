//! The values of settings, each with its own way to be written and its own limits.

use crate::server::listen::Address;
use hotdesk_api::action::Size;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// A value that can't be read, told as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub String);

/// Lets a value be written in TOML as it is on the command line.
macro_rules! deserialize_from_str {
    ($($name:ty),+) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

deserialize_from_str!(
    ScreenSize,
    DisplayChoice,
    AttachTarget,
    ListenAddress,
    VncAddress,
    XServerChoice,
    WindowManagerChoice,
    Secret,
    LogFormat
);

/// The size of a screen: `1920x1080`, or with a depth as OpenManus writes it: `1920x1080x24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenSize(pub Size);

impl ScreenSize {
    /// Smaller screens hold no window that anybody could use.
    pub const MIN_SIDE: u32 = 64;
    /// X coordinates are 16 bits with a sign; beyond half of that programs begin to misbehave.
    pub const MAX_SIDE: u32 = 16_384;
    /// 64 megapixels are 256 MiB of frame buffer, and our capture needs as much again.
    pub const MAX_PIXELS: u64 = 64 * 1024 * 1024;

    pub fn new(width: u32, height: u32) -> Result<Self, ValueError> {
        let sides = Self::MIN_SIDE..=Self::MAX_SIDE;
        if !sides.contains(&width) || !sides.contains(&height) {
            return Err(ValueError(format!(
                "{width}x{height} is out of range: each side is {} to {} pixels",
                Self::MIN_SIDE,
                Self::MAX_SIDE
            )));
        }
        if u64::from(width) * u64::from(height) > Self::MAX_PIXELS {
            return Err(ValueError(format!("{width}x{height} has more than {} pixels", Self::MAX_PIXELS)));
        }
        Ok(Self(Size { width, height }))
    }
}

impl FromStr for ScreenSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = || ValueError(format!("`{text}` is not a size; write it like 1920x1080"));
        let parts: Vec<&str> = text.trim().split(['x', 'X', '×', '*']).map(str::trim).collect();
        let number = |text: &str| -> Result<u32, ValueError> {
            // `parse` would take a sign.
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(bad());
            }
            text.parse().map_err(|_| bad())
        };
        match parts.as_slice() {
            [width, height] => Self::new(number(width)?, number(height)?),
            // The depth is always 24: nothing that is drawn today expects another one.
            [width, height, depth] => match number(depth)? {
                16 | 24 | 32 => Self::new(number(width)?, number(height)?),
                depth => Err(ValueError(format!("`{text}` asks for a depth of {depth} bits; 24 is the one that works"))),
            },
            _ => Err(bad()),
        }
    }
}

/// The largest number of a display; X counts TCP ports from 6000 on and stops where they end.
const LAST_DISPLAY: u16 = 59_535;

/// Reads `:99`, `99` or `:99.0`.
fn display_number(text: &str) -> Option<u16> {
    let text = text.trim();
    let text = text.strip_prefix("unix").unwrap_or(text);
    let text = text.strip_prefix(':').unwrap_or(text);
    let text = text.strip_suffix(".0").unwrap_or(text);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| *number <= LAST_DISPLAY)
}

/// Which display a desk makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DisplayChoice {
    /// Nobody said: `:99`, or the next free one if that is taken.
    #[default]
    Unnamed,
    /// Any free one.
    Auto,
    /// This one and no other.
    Number(u16),
}

impl FromStr for DisplayChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        display_number(text)
            .map(Self::Number)
            .ok_or_else(|| ValueError(format!("`{text}` is not a display; write it like :99, or `auto` for a free one")))
    }
}

/// A display that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachTarget(pub u16);

impl FromStr for AttachTarget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.trim().split_once(':').is_some_and(|(host, _)| !host.is_empty() && host != "unix") {
            return Err(ValueError(format!("`{text}` is a display of another machine; only local ones like :0 can be attached")));
        }
        display_number(text).map(Self).ok_or_else(|| ValueError(format!("`{text}` is not a display; write it like :0")))
    }
}

/// An address of the HTTP server, or a port alone for loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress(pub Address);

impl FromStr for ListenAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Ok(port) = text.trim().parse::<u16>() {
            return Ok(Self(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()));
        }
        text.trim().parse().map(Self).map_err(|e: hotdesk_serve::NoAddress| ValueError(e.to_string()))
    }
}

/// An address of the VNC server, written in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VncAddress(pub SocketAddr);

impl FromStr for VncAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.parse::<ListenAddress>()?.0 {
            Address::Tcp(address) => Ok(Self(address)),
            Address::Unix(_) => Err(ValueError("VNC listens on TCP only; write it like 127.0.0.1:5900".into())),
        }
    }
}

/// Which X server is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum XServerChoice {
    /// Xvfb, or Xtigervnc where that is what is installed.
    #[default]
    Auto,
    Xvfb,
    /// Can be resized to any size while it runs.
    Xtigervnc,
}

impl FromStr for XServerChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "xvfb" => Ok(Self::Xvfb),
            "xtigervnc" | "xvnc" => Ok(Self::Xtigervnc),
            _ => Err(ValueError(format!("`{text}` is not an X server that is known here: auto, Xvfb or Xtigervnc"))),
        }
    }
}

/// Which window manager is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WindowManagerChoice {
    /// openbox, or another one that is installed.
    #[default]
    Auto,
    /// This command, split into words as a shell does.
    Command(Vec<String>),
    /// None at all.
    None,
}

impl FromStr for WindowManagerChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            command => match shlex::split(command) {
                Some(words) if words.first().is_some_and(|word| !word.is_empty()) => Ok(Self::Command(words)),
                _ => Err(ValueError(format!("`{text}` is not a command; write it like openbox, or `none`"))),
            },
        }
    }
}

/// How the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.trim() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(ValueError(format!("`{text}` is not a log format: text or json"))),
        }
    }
}

/// Something that must never be printed: a token, a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for handing it on.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl FromStr for Secret {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // A header can't carry control characters, so such a token could never be shown.
        match text.trim() {
            "" => Err(ValueError("a secret can't be empty".into())),
            text if text.chars().any(char::is_control) => Err(ValueError("a secret can't hold control characters".into())),
            text => Ok(Self(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<(u32, u32), ValueError> {
        text.parse::<ScreenSize>().map(|size| (size.0.width, size.0.height))
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1920x1080", (1920, 1080)),
            ("1024x768x24", (1024, 768)),
            (" 1024 X 768 x 16 ", (1024, 768)),
            ("800×600", (800, 600)),
            ("64x64", (64, 64)),
            ("16384x4096", (16384, 4096)),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in
            ["", "x", "1920", "1920x", "-1x5", "+640x480", "1e3x700", "63x64", "64x16385", "16384x16384", "640x480x8", "1x2x3x4"]
        {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size("99999999999999999999x1").is_err());
    }

    #[test]
    fn displays() {
        for (text, expected) in [
            (":99", DisplayChoice::Number(99)),
            ("99", DisplayChoice::Number(99)),
            (":0.0", DisplayChoice::Number(0)),
            ("auto", DisplayChoice::Auto),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", ":", "host:0", ":0.1", ":60000", ":-1", ":9999999"] {
            assert!(text.parse::<DisplayChoice>().is_err(), "{text}");
        }
        assert_eq!("unix:1".parse(), Ok(AttachTarget(1)));
        assert!("host:1".parse::<AttachTarget>().unwrap_err().0.contains("another machine"));
    }

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("127.0.0.1:5000", "127.0.0.1:5000"),
            ("5000", "127.0.0.1:5000"),
            (":5900", "0.0.0.0:5900"),
            (" localhost:7 ", "127.0.0.1:7"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(text.parse::<VncAddress>().unwrap().0.to_string(), expected, "{text}");
        }
        assert!("unix:/a".parse::<ListenAddress>().is_ok());
        assert!("unix:/a".parse::<VncAddress>().is_err());
        for text in ["", "no such host:1", "1.2.3.4", "70000"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret: Secret = " hunter2\n".parse().unwrap();
        assert_eq!(secret.reveal(), "hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
    }

    #[test]
    fn window_managers() {
        assert_eq!("auto".parse(), Ok(WindowManagerChoice::Auto));
        assert_eq!("none".parse(), Ok(WindowManagerChoice::None));
        assert_eq!(
            "openbox --config-file 'my rc.xml'".parse(),
            Ok(WindowManagerChoice::Command(vec!["openbox".into(), "--config-file".into(), "my rc.xml".into()]))
        );
        assert!("'open".parse::<WindowManagerChoice>().is_err());
        assert!("".parse::<WindowManagerChoice>().is_err());
    }
}
