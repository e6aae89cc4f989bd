//! E2B's SDKs, unmodified: `E2B_API_URL` and `E2B_SANDBOX_URL` both name this gateway, `E2B_API_KEY` is one of its keys.
//!
//! ```text
//!   control    /sandboxes, /v2/sandboxes, /snapshots, /templates     a key           → the fleet
//!   data       /health, /files, /process.Process/…,                  the sandbox's   → the desk's own API
//!              /filesystem.Filesystem/…                              token
//!   ports      anything, for another port than envd's                nothing, or     → that port of the desk
//!                                                                    a token
//! ```
//!
//! Both planes share one origin. Which of them a request means, and which sandbox, is told by the name of the host
//! (`49983-ID.domain`), by headers (`E2b-Sandbox-Id`, `E2b-Sandbox-Port`), by the path, by the token alone, or by a signature.
//!
//! Nothing is kept here that the fleet does not know: a sandbox is a desk, its id is the desk's, its token is made of the desk's
//! secret, its metadata are labels. What is remembered ([`Memory`]) can be lost: watches that are polled, samples of usage,
//! tokens of sandboxes that are gone.

mod connect;
mod control;
mod create;
mod decode;
mod desk;
mod envd;
mod fault;
mod files;
mod filesystem;
mod labels;
mod listing;
mod metrics;
mod names;
mod pause;
mod ports;
mod process;
mod sandbox;
mod snapshots;
mod streams;
mod token;
mod upload;
mod watch;

pub(crate) use fault::refused;

use crate::app::App;
use crate::entrance::Caller;
use crate::listen::Peer;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The port under which clients know the server of a sandbox.
const ENVD_PORT: u16 = 49983;
/// What clients take us for; it decides what they ask for.
const ENVD_VERSION: &str = "0.6.7";
const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";
const ACCESS_TOKEN: &str = "x-access-token";

/// Paths of the control plane, by their first parts.
const CONTROL: [&str; 10] = [
    "/sandboxes",
    "/v2/sandboxes",
    "/snapshots",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/default-templates",
    "/volumes",
    "/secrets",
    "/teams",
];
/// Paths of the data plane that no other client of ours asks for.
const DATA: [&str; 3] = ["/files", "/process.Process", "/filesystem.Filesystem"];

/// Settings of this dialect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Names of E2B's templates, and the templates of this fleet that are meant. Other names are this fleet's own.
    pub templates: BTreeMap<String, String>,
    /// A domain whose wildcard (`*.domain`) leads here, for `get_host` and streams. None: SDKs print E2B's own.
    pub domain: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let templates = [("base", "code"), ("code-interpreter-v1", "code"), ("desktop", "desktop")];
        Self { templates: templates.map(|(name, ours)| (name.into(), ours.into())).into(), domain: None }
    }
}

/// What is remembered between requests and may be lost.
#[derive(Default)]
pub(crate) struct Memory {
    tokens: token::Tokens,
    watchers: watch::Watchers,
    samples: metrics::Samples,
}

impl Memory {
    /// Forgets what nobody asked for in a long time.
    pub(crate) fn prune(&self) {
        self.watchers.prune();
        self.samples.prune();
    }
}

/// Which part of the dialect a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plane {
    Control,
    /// A sandbox, or one that only its token or a signature names.
    Data(Inside),
    /// The sandbox is half named.
    Wrong(&'static str),
}

/// A place in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inside {
    sandbox: Option<String>,
    port: u16,
}

impl Plane {
    /// None: the request is not E2B's.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let (path, headers) = (request.uri().path(), request.headers());
        if let Some(inside) = named_by_host(headers) {
            return Some(Self::Data(inside));
        }
        let id = text(headers, SANDBOX_ID);
        let port = text(headers, SANDBOX_PORT).map(|port| port.parse::<u16>().ok().filter(|port| *port > 0));
        // Some releases send these headers on control calls too, so the path wins where the port is envd's.
        if let (Some(id), Some(Some(port))) = (&id, &port)
            && *port != ENVD_PORT
        {
            return Some(Self::Data(Inside { sandbox: Some(id.clone()), port: *port }));
        }
        let below = |start: &&str| path.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if CONTROL.iter().any(&below) {
            return Some(Self::Control);
        }
        match (id, port) {
            (Some(sandbox), Some(Some(port))) => Some(Self::Data(Inside { sandbox: Some(sandbox), port })),
            (Some(_), Some(None)) => Some(Self::Wrong("the header E2b-Sandbox-Port is no port")),
            (Some(_), None) => Some(Self::Wrong("the header E2b-Sandbox-Port is missing")),
            (None, Some(_)) => Some(Self::Wrong("the header E2b-Sandbox-Id is missing")),
            (None, None) => {
                let tokened = path == "/health" && headers.contains_key(ACCESS_TOKEN);
                let ours = tokened || DATA.iter().any(below);
                ours.then_some(Self::Data(Inside { sandbox: None, port: ENVD_PORT }))
            }
        }
    }

    /// Whether the request carries the key of a fleet.
    pub(crate) fn has_key(&self) -> bool {
        *self == Self::Control
    }
}

/// `8080-ID.domain`
fn named_by_host(headers: &HeaderMap) -> Option<Inside> {
    let host = text(headers, header::HOST.as_str())?;
    let (label, _) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let port = port.parse().ok().filter(|port| *port > 0 && label.starts_with(|c: char| c.is_ascii_digit()))?;
    let good = id.starts_with(names::FIRST) && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    good.then(|| Inside { sandbox: Some(id.to_owned()), port })
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty())
}

/// Answers a request to the control plane; the caller has shown a good key.
pub(crate) async fn control(app: App, caller: Caller, request: Request) -> Response {
    control::answer(app, caller, request).await
}

/// Answers a request to a sandbox.
pub(crate) async fn data(app: App, peer: Peer, plane: Plane, request: Request) -> Response {
    match plane {
        Plane::Data(inside) if inside.port != ENVD_PORT => ports::answer(app, peer, inside, request).await,
        Plane::Data(inside) => envd::answer(app, peer, inside, request).await,
        Plane::Wrong(what) => fault::Fault::bad(what).into_response_of_data(),
        Plane::Control => fault::Fault::internal("a control call is no call to a sandbox").into_response_of_data(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn plane(path: &str, headers: &[(&str, &str)]) -> Option<Plane> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Plane::of(&request.body(Body::empty()).unwrap())
    }

    fn inside(id: Option<&str>, port: u16) -> Option<Plane> {
        Some(Plane::Data(Inside { sandbox: id.map(Into::into), port }))
    }

    #[test]
    fn both_planes_are_told_apart() {
        let envd = [("e2b-sandbox-id", "i1"), ("e2b-sandbox-port", "49983")];
        let web = [("e2b-sandbox-id", "i1"), ("e2b-sandbox-port", "8080")];
        assert_eq!(plane("/v2/sandboxes?limit=1", &[]), Some(Plane::Control));
        assert_eq!(plane("/sandboxes/i1", &envd), Some(Plane::Control), "old releases send the headers here too");
        assert_eq!(plane("/sandboxes/i1", &web), inside(Some("i1"), 8080));
        assert_eq!(plane("/health", &envd), inside(Some("i1"), 49983));
        assert_eq!(plane("/health", &[]), None, "our own");
        assert_eq!(plane("/health", &[("x-access-token", "t")]), inside(None, 49983));
        assert_eq!(plane("/files?path=a&signature=v1_x", &[]), inside(None, 49983));
        assert_eq!(plane("/process.Process/List", &[]), inside(None, 49983));
        assert_eq!(plane("/x", &[("host", "8080-iabc.e2b.app")]), inside(Some("iabc"), 8080));
        assert_eq!(plane("/v1/desks", &[("host", "my-host.example.com")]), None);
        assert_eq!(plane("/v1/desks", &[]), None);
        assert_eq!(plane("/sandboxesx", &[]), None);
        assert!(matches!(plane("/health", &[("e2b-sandbox-id", "i1")]), Some(Plane::Wrong(_))));
    }
}
