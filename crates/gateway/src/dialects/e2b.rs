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
//! Nothing is kept here that the fleet does not know: a sandbox is a desk, its id is the desk's, its token is sealed with the
//! fleet's key, its metadata are labels. What is remembered ([`Memory`]) can be lost: watches that are polled, samples of usage.

pub(crate) mod connect;
mod control;
mod create;
pub(crate) mod decode;
mod desk;
mod envd;
mod fault;
mod files;
mod filesystem;
mod guests;
mod keys;
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

use fault::refused;
pub use keys::e2b_key;

use super::{Admission, Dialect, Visit};
use crate::app::App;
use crate::config::Config;
use crate::entrance::Caller;
use crate::recent::Recent;
use crate::refusal::Refusal;
use crate::route::{Claim, Class, Right};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
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
    known: Recent<guests::Known>,
    watchers: watch::Watchers,
    samples: metrics::Samples,
}

impl super::Memory for Memory {
    fn prune(&self) {
        self.known.prune();
        self.watchers.prune();
        self.samples.prune();
    }
}

fn memory(app: &App) -> &Memory {
    app.memories.of()
}

pub(super) struct E2b;

impl Dialect for E2b {
    fn claim_by_headers(&self, request: &mut Request) -> Option<Claim> {
        claim(Plane::by_headers(request.headers())?, request)
    }

    fn claim(&self, request: &mut Request) -> Option<Claim> {
        claim(Plane::by_path(request)?, request)
    }

    fn admit<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Option<Admission>> {
        async move {
            let plane = visit.request.extensions.get::<Plane>()?.clone();
            Some(match plane {
                Plane::Data(inside) if inside.port != ENVD_PORT => {
                    ports::admit(visit.app, visit.peer, &inside, visit.request).await.map(Some)
                }
                Plane::Data(inside) => envd::admit(visit.app, visit.peer, &inside, visit.request).await,
                Plane::Wrong(what) => Err(fault::Fault::bad(what).into_response_of_data()),
                Plane::Control => return None,
            })
        }
        .boxed()
    }

    fn answer(&self, app: App, _: Router, request: Request) -> BoxFuture<'static, Response> {
        async move {
            let extensions = request.extensions();
            // Whoever need not be known asked whether a sandbox runs, which it does, or he would not be here.
            let Some(caller) = extensions.get::<Caller>().cloned() else { return fault::done() };
            match extensions.get::<Plane>().cloned() {
                Some(Plane::Data(inside)) if inside.port != ENVD_PORT => ports::answer(app, &caller, inside.port, request).await,
                Some(Plane::Data(_)) => envd::answer(desk::Sandbox::of(app, caller), request).await,
                _ => control::answer(app, caller, request).await,
            }
        }
        .boxed()
    }

    fn refuse(&self, _: &str, refusal: Refusal) -> Response {
        refused(refusal)
    }

    fn key(&self, given: &str) -> Option<String> {
        keys::from_e2b(given)
    }

    fn template(&self, config: &Config) -> Option<String> {
        Some(names::template(&config.e2b, create::TEMPLATE))
    }

    fn memory(&self) -> Option<Box<dyn super::Memory>> {
        Some(Box::<Memory>::default())
    }
}

/// What a request to this plane is about. It is left with the request.
fn claim(plane: Plane, request: &mut Request) -> Option<Claim> {
    let claim = match &plane {
        Plane::Control => Claim::new(Class::Control, None),
        Plane::Wrong(_) => Claim::new(Class::Desk, None).right(Right::Guest),
        Plane::Data(inside) => {
            let class = if inside.port == ENVD_PORT { Class::Desk } else { Class::Port };
            let desk = inside.sandbox.as_deref().and_then(names::desk);
            Claim { own_origin: inside.by_host, ..Claim::new(class, desk.as_deref()).right(Right::Guest) }
        }
    };
    request.extensions_mut().insert(plane);
    Some(claim)
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
    /// By the name of the host, so that its pages have an origin of their own.
    by_host: bool,
}

impl Plane {
    /// A sandbox that the host or headers name, whatever the path is.
    fn by_headers(headers: &HeaderMap) -> Option<Self> {
        if let Some(inside) = named_by_host(headers) {
            return Some(Self::Data(inside));
        }
        let port = text(headers, SANDBOX_PORT)?.parse::<u16>().ok().filter(|port| *port > 0)?;
        // Some releases send these headers on control calls too, so the path wins where the port is envd's.
        let sandbox = Some(text(headers, SANDBOX_ID)?);
        (port != ENVD_PORT).then_some(Self::Data(Inside { sandbox, port, by_host: false }))
    }

    /// None: the request is not E2B's.
    fn by_path(request: &Request) -> Option<Self> {
        let (path, headers) = (request.uri().path(), request.headers());
        let id = text(headers, SANDBOX_ID);
        let port = text(headers, SANDBOX_PORT).map(|port| port.parse::<u16>().ok().filter(|port| *port > 0));
        let below = |start: &&str| path.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if CONTROL.iter().any(&below) {
            return Some(Self::Control);
        }
        match (id, port) {
            (Some(sandbox), Some(Some(port))) => Some(Self::Data(Inside { sandbox: Some(sandbox), port, by_host: false })),
            (Some(_), Some(None)) => Some(Self::Wrong("the header E2b-Sandbox-Port is no port")),
            (Some(_), None) => Some(Self::Wrong("the header E2b-Sandbox-Port is missing")),
            (None, Some(_)) => Some(Self::Wrong("the header E2b-Sandbox-Id is missing")),
            (None, None) => {
                let tokened = path == "/health" && headers.contains_key(ACCESS_TOKEN);
                let ours = tokened || DATA.iter().any(below);
                ours.then_some(Self::Data(Inside { sandbox: None, port: ENVD_PORT, by_host: false }))
            }
        }
    }
}

/// `8080-ID.domain`
fn named_by_host(headers: &HeaderMap) -> Option<Inside> {
    let host = text(headers, header::HOST.as_str())?;
    let (label, _) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let port = port.parse().ok().filter(|port| *port > 0 && label.starts_with(|c: char| c.is_ascii_digit()))?;
    let good = id.starts_with(names::FIRST) && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    good.then(|| Inside { sandbox: Some(id.to_owned()), port, by_host: true })
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty())
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
        let request = request.body(Body::empty()).unwrap();
        Plane::by_headers(request.headers()).or_else(|| Plane::by_path(&request))
    }

    fn inside(id: Option<&str>, port: u16) -> Option<Plane> {
        Some(Plane::Data(Inside { sandbox: id.map(Into::into), port, by_host: false }))
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
        let by_host = Plane::Data(Inside { sandbox: Some("iabc".into()), port: 8080, by_host: true });
        assert_eq!(plane("/x", &[("host", "8080-iabc.e2b.app")]), Some(by_host));
        assert_eq!(plane("/v1/desks", &[("host", "my-host.example.com")]), None);
        assert_eq!(plane("/v1/desks", &[]), None);
        assert_eq!(plane("/sandboxesx", &[]), None);
        assert!(matches!(plane("/health", &[("e2b-sandbox-id", "i1")]), Some(Plane::Wrong(_))));
    }
}
