//! Where in a desk a request goes.

use crate::refusal::{Refusal, Result};

/// What only whoever keeps a desk may ask of it: it would lose its callers, and we the desk.
const KEEPERS: [&str; 2] = ["/v1/freeze", "/v1/thaw"];

/// Where OSWorld's server listens in its own machines.
const OSWORLD_PORT: &str = "5000";

/// A place in a desk, with the rest of the address as the client wrote it (nothing decoded, so nothing can change its meaning).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// None: the desk's own server.
    pub(crate) port: Option<u16>,
    /// Path and query.
    pub(crate) path: String,
    /// Under which the client reaches the port, where that is not the address of our own API.
    pub(crate) base: Option<String>,
}

impl Target {
    /// A path of the desk's own server.
    pub(crate) fn desk(path: impl Into<String>) -> Self {
        Self { port: None, path: path.into(), base: None }
    }

    /// The desk and the place that an address of ours names.
    pub(crate) fn read(path: &str, query: Option<&str>) -> Result<(String, Self)> {
        let nowhere = || Refusal::not_found("this address names no desk");
        let (desk, port, path) = if let Some(rest) = path.strip_prefix("/v1/desks/") {
            let (desk, rest) = rest.split_once('/').ok_or_else(nowhere)?;
            match rest.strip_prefix("ports/").and_then(|rest| rest.split_once('/')) {
                Some((port, path)) => (desk, Some(port), format!("/{path}")),
                None => (desk, None, format!("/v1/{rest}")),
            }
        } else {
            let rest = path.strip_prefix("/osworld/").ok_or_else(nowhere)?;
            let (desk, rest) = rest.split_once('/').unwrap_or((rest, ""));
            let (desk, port) = numbered(desk);
            (desk, port, format!("/{rest}"))
        };
        let port = port.map(|port| match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
            _ => Err(Refusal::invalid(format!("`{}` is no port: they go from 1 to 65535", port.escape_default()))),
        });
        if port.is_none() && is_keepers(&path) {
            return Err(Refusal::not_found(
                "a desk is saved by `POST /v1/desks/{id}/snapshot`, and copied by `POST /v1/desks/{id}/fork`",
            ));
        }
        let path = match query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        Ok((decoded(desk)?, Self { port: port.transpose()?, path, base: None }))
    }
}

/// OSWorld's client writes `http://{vm_ip}:{port}/…`, whatever its `vm_ip` is: with a path there, the port ends up behind the desk.
/// The port of OSWorld's own server is that of the desk's.
pub(crate) fn numbered(desk: &str) -> (&str, Option<&str>) {
    match desk.rsplit_once(':') {
        Some((desk, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (desk, Some(port).filter(|port| *port != OSWORLD_PORT))
        }
        _ => (desk, None),
    }
}

/// Whether a path of the desk's own server is for its keeper alone.
pub(crate) fn is_keepers(path: &str) -> bool {
    KEEPERS.contains(&path)
}

/// A desk's name as the fleet knows it.
pub(crate) fn decoded(text: &str) -> Result<String> {
    let wrong = || Refusal::not_found(format!("there is no desk `{}`", text.escape_default()));
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16)).ok_or_else(wrong);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).map_err(|_| wrong())?);
    }
    let name = String::from_utf8(bytes).map_err(|_| wrong())?;
    if name.contains('\0') { Err(wrong()) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_keepers_is_not_passed_on() {
        for path in ["/v1/desks/d-1/freeze", "/v1/desks/d-1/thaw", "/osworld/d-1/v1/freeze", "/osworld/d-1/v1/thaw"] {
            assert!(Target::read(path, Some("a=b")).is_err(), "{path}");
        }
        assert!(Target::read("/v1/desks/d-1/ports/80/v1/freeze", None).is_ok());
    }

    #[test]
    fn addresses_lead_into_desks() {
        for (path, query, desk, port, inner) in [
            ("/v1/desks/d-1/screenshot", None, "d-1", None, "/v1/screenshot"),
            ("/v1/desks/d-1/files/content", Some("path=%2Ftmp%2Fa"), "d-1", None, "/v1/files/content?path=%2Ftmp%2Fa"),
            ("/v1/desks/my%20desk/screen", None, "my desk", None, "/v1/screen"),
            ("/v1/desks/d-1/ports/9222", None, "d-1", None, "/v1/ports/9222"),
            ("/v1/desks/d-1/ports/9222/", None, "d-1", Some(9222), "/"),
            ("/v1/desks/d-1/ports/9222/json/list", Some("a"), "d-1", Some(9222), "/json/list?a"),
            ("/v1/desks/d-1/ports/80/a%2Fb/../c", None, "d-1", Some(80), "/a%2Fb/../c"),
            ("/osworld/d-1", None, "d-1", None, "/"),
            ("/osworld/d-1/", None, "d-1", None, "/"),
            ("/osworld/d-1/setup/launch", None, "d-1", None, "/setup/launch"),
            ("/osworld/d-1:5000/screenshot", None, "d-1", None, "/screenshot"),
            ("/osworld/d-1:9222/json/version", Some("a"), "d-1", Some(9222), "/json/version?a"),
        ] {
            assert_eq!(
                Target::read(path, query).unwrap(),
                (desk.into(), Target { port, path: inner.into(), base: None }),
                "{path}"
            );
        }
        for path in [
            "/osworld/d-1:70000/x",
            "/v1/desks/d-1/ports/0/",
            "/v1/desks/d-1/ports/70000/",
            "/v1/desks/d-1/ports/+80/",
            "/v1/desks/d-1/ports//x",
        ] {
            assert_eq!(Target::read(path, None).unwrap_err().problem.status, 400, "{path}");
        }
        for path in ["/v1/desks/%ff/x", "/v1/desks/%0/x", "/v1/desks/a%00/x", "/v1/desks/x"] {
            assert_eq!(Target::read(path, None).unwrap_err().problem.status, 404, "{path}");
        }
    }
}
