//! Which generation of the SDK asks. Everything that depends on it is a method here.

use axum::http::{HeaderMap, header};

const HEADER: &str = "x-daytona-sdk-version";
/// In browsers, which send no headers on a WebSocket.
const PROTOCOL: &str = "X-Daytona-SDK-Version~";
const SPLIT: &str = "x-daytona-split-output";

/// The release of the client; none if it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    release: Option<(u32, u32)>,
    /// A client without a release that wants streams apart.
    split: bool,
}

/// How the output of a session's command is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Both streams as one text.
    Combined,
    /// One text in which marks tell where each stream begins.
    Framed,
    /// JSON with both.
    Json,
}

impl Version {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let header = headers.get(HEADER).and_then(|v| v.to_str().ok());
        let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
        let mut offered = offered.flat_map(|list| list.split(',')).filter_map(|word| word.trim().strip_prefix(PROTOCOL));
        let split = headers.get(SPLIT).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"true"));
        Self { release: header.or_else(|| offered.next()).and_then(read), split }
    }

    fn before(self, minor: u32) -> bool {
        self.release.is_some_and(|release| release < (0, minor))
    }

    /// `GET /sandbox` is a plain list.
    pub(crate) fn lists_plainly(self) -> bool {
        self.before(180)
    }

    pub(crate) fn output(self) -> Output {
        match self.release {
            None if self.split => Output::Json,
            None => Output::Combined,
            Some(_) if self.before(27) => Output::Combined,
            Some(_) if self.before(167) => Output::Framed,
            Some(_) => Output::Json,
        }
    }
}

fn read(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &'static str) -> Version {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, text.parse().unwrap());
        Version::of(&headers)
    }

    #[test]
    fn generations_are_told_apart() {
        for (text, plain, output) in [
            ("0.21.8", true, Output::Combined),
            ("0.27.0", true, Output::Framed),
            ("0.166.9", true, Output::Framed),
            ("0.167.0", true, Output::Json),
            ("0.180.0", false, Output::Json),
            ("v0.226.1", false, Output::Json),
            ("2.0.0a3", false, Output::Json),
            ("nonsense", false, Output::Combined),
        ] {
            assert_eq!((version(text).lists_plainly(), version(text).output()), (plain, output), "{text}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(Version::of(&headers).output(), Output::Combined);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, "X-Daytona-SDK-Version~0.130.0, other".parse().unwrap());
        assert_eq!(Version::of(&headers).output(), Output::Framed);
    }
}
