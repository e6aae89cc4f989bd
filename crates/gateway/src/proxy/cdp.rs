//! Addresses that programs in a desk hand out, made to lead back through us: redirects, cookies, and the lists by which Chrome
//! tells where its pages can be debugged (`/json/version`, `/json/list`, …).

use super::{Passage, Target};
use crate::credentials::Place;
use axum::http::{HeaderMap, header};
use serde_json::Value;

/// Whether an answer holds such a list. `/json/protocol` is large and holds no address.
pub(super) fn applies(target: &Target) -> bool {
    let path = target.path.split('?').next().unwrap_or_default();
    target.port.is_some() && (path == "/json" || (path.starts_with("/json/") && path != "/json/protocol"))
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The address under which a client reaches a port of a desk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    https: bool,
    host: String,
    /// With the key, if the client has it in its addresses.
    prefix: String,
    /// The same without the key, for addresses that a third party gets to see.
    bare: String,
    port: u16,
}

impl Base {
    pub(super) fn of(passage: &Passage, port: u16) -> Self {
        let (caller, public) = (&passage.caller, &passage.app.public);
        let key = match caller.place {
            Place::Header => String::new(),
            Place::Address => format!("/k/{}", caller.secret.reveal()),
        };
        let path = public.as_ref().map_or("", |public| public.path.as_str());
        let own = || format!("/v1/desks/{}/ports/{port}", passage.desk);
        let place = passage.target.base.clone().unwrap_or_else(own);
        let prefix = format!("{path}{key}{place}");
        let bare = format!("{path}{place}");
        let (https, host) = match public {
            Some(public) => (public.https, public.host.clone()),
            None => (caller.peer.tls, caller.host.clone().unwrap_or_else(|| "localhost".into())),
        };
        Self { https, host, prefix, bare, port }
    }

    /// The list with its addresses changed; none if it is no JSON.
    pub(super) fn rewrite(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut list: Value = serde_json::from_slice(text).ok()?;
        self.visit(&mut list);
        serde_json::to_vec_pretty(&list).ok()
    }

    fn visit(&self, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|value| self.visit(value)),
            Value::Object(map) => {
                for (name, value) in map {
                    match value {
                        Value::String(text) if name == "webSocketDebuggerUrl" => {
                            if let Some(changed) = self.socket(text) {
                                *text = changed;
                            }
                        }
                        Value::String(text) if name.starts_with("devtoolsFrontendUrl") => *text = self.frontend(text),
                        _ => self.visit(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// `ws://localhost:9222/devtools/page/1`
    fn socket(&self, url: &str) -> Option<String> {
        let path = self.own_path(url, &["ws", "wss"])?;
        let scheme = if self.https { "wss" } else { "ws" };
        Some(format!("{scheme}://{}{}{path}", self.host, self.prefix))
    }

    /// `/devtools/inspector.html?ws=localhost:9222/devtools/page/1`, or the same page on a server of its maker.
    fn frontend(&self, url: &str) -> String {
        let (page, query) = url.split_once('?').unwrap_or((url, ""));
        let own = page.starts_with('/');
        let page = if own { format!("{}{page}", self.prefix) } else { page.to_owned() };
        let prefix = if own { &self.prefix } else { &self.bare };
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some(("ws" | "wss", place)) => match self.own_path(&format!("ws://{place}"), &["ws"]) {
                Some(path) => format!("{}={}{prefix}{path}", if self.https { "wss" } else { "ws" }, self.host),
                None => pair.to_owned(),
            },
            _ => pair.to_owned(),
        });
        match query {
            "" => page,
            _ => format!("{page}?{}", pairs.collect::<Vec<_>>().join("&")),
        }
    }

    /// A redirect; none if it needs no change.
    pub(super) fn location(&self, place: &str) -> Option<String> {
        if place.starts_with('/') && !place.starts_with("//") {
            return Some(format!("{}{place}", self.prefix));
        }
        self.own_path(place, &["http", "https"]).map(|path| format!("{}{path}", self.prefix))
    }

    /// A cookie, kept to its own desk and port: all desks have one origin.
    pub(super) fn cookie(&self, cookie: &str) -> String {
        let mut parts = cookie.split(';');
        let mut changed = parts.next().unwrap_or_default().to_owned();
        let mut path = None;
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "domain" => {}
                "path" => path = Some(value.trim()),
                _ => {
                    changed.push(';');
                    changed.push_str(part);
                }
            }
        }
        let path = path.filter(|path| path.starts_with('/')).unwrap_or("/");
        format!("{changed}; Path={}{path}", self.prefix)
    }

    /// The path of an address that leads to this port of the desk.
    fn own_path<'a>(&self, url: &'a str, schemes: &[&str]) -> Option<&'a str> {
        let (scheme, rest) = url.split_once("://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) => (name, port.parse::<u16>().ok()?),
            None => (host, 80),
        };
        let local = matches!(name, "localhost" | "127.0.0.1" | "[::1]");
        (schemes.contains(&scheme) && local && port == self.port).then_some(path)
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/cdp.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base(https: bool) -> Base {
        Base {
            https,
            host: "fleet:7700".into(),
            prefix: "/k/K/v1/desks/d-1/ports/9222".into(),
            bare: "/v1/desks/d-1/ports/9222".into(),
            port: 9222,
        }
    }

    #[test]
    fn lists_of_pages_lead_back_through_us() {
        let list = json!([{
            "description": "",
            "devtoolsFrontendUrl": "/devtools/inspector.html?ws=localhost:9222/devtools/page/A&x=1",
            "title": "ws://localhost:9222/ is a text",
            "webSocketDebuggerUrl": "ws://localhost:9222/devtools/page/A",
        }, {
            "devtoolsFrontendUrl": "https://frontend.example/serve/inspector.html?ws=localhost:9222/devtools/page/B",
            "devtoolsFrontendUrlCompat": "https://frontend.example/x.html",
            "webSocketDebuggerUrl": "ws://elsewhere:9222/devtools/page/B",
        }]);
        let changed: Value = serde_json::from_slice(&base(false).rewrite(list.to_string().as_bytes()).unwrap()).unwrap();
        let own = "fleet:7700/k/K/v1/desks/d-1/ports/9222/devtools/page";
        assert_eq!(changed[0]["webSocketDebuggerUrl"], format!("ws://{own}/A"));
        let page = "/k/K/v1/desks/d-1/ports/9222/devtools/inspector.html";
        assert_eq!(changed[0]["devtoolsFrontendUrl"], format!("{page}?ws={own}/A&x=1"));
        assert_eq!(changed[0]["title"], list[0]["title"]);
        assert_eq!(
            changed[1]["devtoolsFrontendUrl"],
            format!("https://frontend.example/serve/inspector.html?ws={}/B", own.replace("/k/K", "")),
            "no key to others"
        );
        assert_eq!(changed[1]["webSocketDebuggerUrl"], list[1]["webSocketDebuggerUrl"], "not ours");
        let version = json!({"Browser": "Chrome", "webSocketDebuggerUrl": "ws://127.0.0.1:9222/devtools/browser/1"});
        let changed: Value = serde_json::from_slice(&base(true).rewrite(version.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(changed["webSocketDebuggerUrl"], "wss://fleet:7700/k/K/v1/desks/d-1/ports/9222/devtools/browser/1");
        assert_eq!(base(true).rewrite(b"Target is closing"), None);
    }

    #[test]
    fn redirects_and_cookies_stay_within_the_port() {
        let base = base(false);
        let prefix = "/k/K/v1/desks/d-1/ports/9222";
        assert_eq!(base.location("/login?a=b"), Some(format!("{prefix}/login?a=b")));
        assert_eq!(base.location("http://localhost:9222/x"), Some(format!("{prefix}/x")));
        assert_eq!(base.location("http://localhost:80/x"), None);
        assert_eq!(base.location("//other/x"), None);
        assert_eq!(base.location("next"), None);
        assert_eq!(base.cookie("a=b; Path=/x; HttpOnly; Domain=h"), format!("a=b; HttpOnly; Path={prefix}/x"));
        assert_eq!(base.cookie("a=b"), format!("a=b; Path={prefix}/"));
    }

    #[test]
    fn only_lists_of_ports_are_read() {
        let at = |port, path: &str| applies(&Target { port, path: path.into(), base: None });
        assert!(at(Some(9222), "/json") && at(Some(9222), "/json/version?x") && at(Some(1), "/json/new?about:blank"));
        assert!(!at(None, "/json") && !at(Some(9222), "/jsonx") && !at(Some(9222), "/") && !at(Some(9222), "/json/protocol"));
    }
}
