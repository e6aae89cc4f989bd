//! Daytona's API (the one that its SDKs 0.x speak), from the oldest generation that is in use to the newest.
//!
//! ```text
//!   /daytona/api/…                              sandboxes, snapshots, volumes
//!   /daytona/api/toolbox/{id}/toolbox/…         what is inside a sandbox, for SDKs up to 0.112
//!   /daytona/toolbox/{id}/…                     the same for newer ones
//!   /daytona/preview/{id or token}/{port}/…     a port of a sandbox, for everybody who has the token
//! ```
//!
//! | Daytona            | here                                                        |
//! |--------------------|-------------------------------------------------------------|
//! | sandbox            | desk                                                        |
//! | snapshot           | template, a name for one (a note), or a snapshot of a desk  |
//! | session            | shell of the desk                                           |
//! | public, language … | labels of the desk that begin with `daytona/`               |
//!
//! What differs between generations is decided in one place each, by [`version::Version`].

mod access;
mod api;
mod create;
mod desk;
mod images;
mod labels;
mod preview;
mod reply;
mod sandboxes;
mod snapshots;
mod toolbox;
mod version;
mod view;
mod volumes;

pub use images::Images;

use super::{Admission, Dialect, Memory, Visit};
use crate::app::App;
use crate::entrance::Caller;
use crate::refusal::Refusal;
use crate::route::{Claim, Class, Right};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::any;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reply::{Failure, Reply};
use std::sync::{Mutex, PoisonError};
use version::Version;

const ROOT: &str = "/daytona/";
const API: &str = "/daytona/api/";
const TOOLBOX: &str = "/daytona/toolbox/";
const PREVIEW: &str = "/daytona/preview/";
/// Requests in JSON: code to run and texts to replace are in them.
const LARGEST_BODY: usize = 32 << 20;

/// What the dialect keeps while it runs; all of it can be made again.
#[derive(Default)]
pub(crate) struct Kept {
    builds: snapshots::Builds,
    links: access::Links,
}

impl Memory for Kept {
    fn prune(&self) {
        self.links.prune();
    }
}

/// Whether an address is ours.
fn owns(path: &str) -> bool {
    path.starts_with(ROOT)
}

pub(super) struct Daytona;

impl Dialect for Daytona {
    /// A token leads its request to its port, whatever the path is.
    fn claim_by_headers(&self, request: &mut Request) -> Option<Claim> {
        preview::lead(request).then(|| self.claim(request)).flatten()
    }

    fn claim(&self, request: &mut Request) -> Option<Claim> {
        let rest = request.uri().path().strip_prefix(ROOT)?;
        let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
        // Read as the handlers read it, or somebody would be let in for one thing and served another.
        let words = segments(rest).unwrap_or_default();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Some(match (first, words.as_slice()) {
            ("preview", _) => {
                let name = rest.split('/').next().unwrap_or_default();
                let of_token = access::place(name).map(|(desk, _)| desk);
                Claim::new(Class::Port, Some(of_token.as_deref().unwrap_or(name))).right(Right::KeyOrGuest)
            }
            ("toolbox", [id, words @ ..]) => Claim::new(class(words), Some(id)).right(Right::KeyOrGuest),
            ("api", ["toolbox", id, "toolbox", words @ ..]) => Claim::new(class(words), Some(id)),
            _ => Claim::new(Class::Control, None),
        })
    }

    fn routes(&self) -> Router<App> {
        router()
    }

    /// Lets in those without a key who have a token, a signed link or a signed address of a file.
    fn admit<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Option<Admission>> {
        async move {
            let path = visit.request.uri.path().to_owned();
            if path.starts_with(PREVIEW) {
                let admitted = preview::admit(visit.app, visit.peer, visit.key.cloned(), visit.claim.class, visit.request).await;
                return Some(admitted.map(Some).map_err(|failure| reply::finish(&path, Err(failure))));
            }
            if visit.key.is_some() {
                return None;
            }
            let caller = toolbox::links::admit(visit.app, visit.peer, visit.claim.class, visit.request).await?;
            Some(Ok(Some(caller)))
        }
        .boxed()
    }

    fn refuse(&self, path: &str, refusal: Refusal) -> Response {
        reply::finish(path, Err(refusal.into()))
    }

    fn shape<'a>(&'a self, path: &'a str, response: Response) -> BoxFuture<'a, Response> {
        reply::reshape(path, response).boxed()
    }

    fn is_cookie(&self, name: &str) -> bool {
        preview::is_cookie(name)
    }

    fn memory(&self) -> Option<Box<dyn Memory>> {
        Some(Box::<Kept>::default())
    }
}

/// Of a path inside of a sandbox.
fn class(words: &[&str]) -> Class {
    match words {
        ["computeruse", what, ..] if what.starts_with("screenshot") => Class::Screenshot,
        ["computeruse", "mouse" | "keyboard", ..] | ["process", "execute" | "code-run"] => Class::Action,
        ["process", "interpreter", "execute"] | ["git", ..] => Class::Action,
        _ => Class::Desk,
    }
}

fn kept(app: &App) -> &Kept {
    app.memories.of()
}

fn router() -> Router<App> {
    Router::new()
        .route("/daytona/api", any(control))
        .route("/daytona/api/", any(control))
        .route("/daytona/api/{*path}", any(control))
        .route("/daytona/toolbox/{id}/{*path}", any(inside))
        .route("/daytona/preview/{id}/{port}", any(preview::answer))
        .route("/daytona/preview/{id}/{port}/", any(preview::answer))
        .route("/daytona/preview/{id}/{port}/{*path}", any(preview::answer))
}

/// One request.
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) version: Version,
    pub(crate) parts: Parts,
    /// Nobody else has it; a lock, because a body can't be shared between threads and the rest can.
    body: Mutex<Body>,
}

impl Call {
    fn new(app: App, caller: Caller, request: Request) -> Self {
        let (parts, body) = request.into_parts();
        Self { version: Version::of(&parts.headers), app, caller, parts, body: Mutex::new(body) }
    }

    /// The parameters behind the question mark.
    fn query(&self) -> Query {
        Query::of(&self.parts.uri)
    }

    fn take_body(&mut self) -> Body {
        std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The body, which is JSON whatever its headers say: some releases send none.
    async fn json<T: serde::de::DeserializeOwned>(&mut self) -> Reply<T> {
        let body = self.take_body();
        if crate::limits::announces_more(&body, LARGEST_BODY) {
            return Err(Failure::bad_request(format!("the body is larger than {LARGEST_BODY} bytes")));
        }
        let bytes = axum::body::to_bytes(body, LARGEST_BODY).await;
        let bytes = bytes.map_err(|e| Failure::bad_request(format!("the body did not come whole, or is too large: {e}")))?;
        let text: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        hotdesk_api::json::from_slice(text).map_err(|e| Failure::bad_request(format!("the body is not what it should be: {e}")))
    }
}

/// Parameters of an address, which may be given several times.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn of(uri: &axum::http::Uri) -> Self {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        Self(pairs.map(|pairs| pairs.0).unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// All values; commas separate them too.
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(n, _)| n == name || n.strip_suffix("[]") == Some(name));
        values.flat_map(|(_, value)| value.split(',')).filter(|value| !value.is_empty())
    }

    fn need(&self, name: &str) -> Reply<&str> {
        self.get(name).ok_or_else(|| Failure::bad_request(format!("bad request: {name} is required")))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Reply<Option<T>> {
        let wrong = |_| Failure::bad_request(format!("bad request: {name} is not a number"));
        self.get(name).map(|text| text.parse().map_err(wrong)).transpose()
    }

    /// True if it is given and does not say no.
    fn flag(&self, names: [&str; 2]) -> bool {
        names.iter().filter_map(|name| self.get(name)).any(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }
}

/// The parts of a path below a prefix, decoded.
fn segments(path: &str) -> Reply<Vec<String>> {
    let parts = path.trim_matches('/').split('/').filter(|part| !part.is_empty());
    let decoded = parts.map(|part| crate::proxy::decoded(part).map_err(|_| Failure::not_found("there is no such path")));
    decoded.collect()
}

async fn control(State(app): State<App>, caller: Caller, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let call = Call::new(app, caller, request);
    let answer = async {
        let rest = path.strip_prefix(API).unwrap_or_default();
        let words = segments(rest)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["toolbox", id, "toolbox", words @ ..] => toolbox::answer(call, id, words).await,
            words => api::answer(call, words).await,
        }
    };
    reply::finish(&path, answer.await)
}

async fn inside(State(app): State<App>, caller: Caller, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let call = Call::new(app, caller, request);
    let answer = async {
        let words = segments(path.strip_prefix(TOOLBOX).unwrap_or_default())?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (id, words) = words.split_first().ok_or_else(|| Failure::not_found("no sandbox is named"))?;
        toolbox::answer(call, id, words).await
    };
    reply::finish(&path, answer.await)
}
