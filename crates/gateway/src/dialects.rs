//! Dialects: other people's words, answered from our fleet, so that programs written for them run here as they are.
//!
//! A dialect translates to calls of the fleet and of desks; it owns no logic of its own. What it has to remember is in the desk's
//! labels or in notes of the store; what a client needs and a desk can't do yet is added to the desk, in the desk's own words.
//!
//! Each implements [`Dialect`] and stands once in [`DIALECTS`]. Nothing else in the gateway knows them by name, but for their tables in
//! the settings. `docs/dialects.md` adds one step by step.

pub mod mcp;
pub mod native;

pub(crate) mod computer;
pub(crate) mod daytona;
pub(crate) mod e2b;
mod own;
#[cfg(test)]
mod tiny;

use crate::app::App;
use crate::config::Config;
use crate::credentials::{Place, Secret};
use crate::entrance::{Base, Caller};
use crate::listen::Peer;
use crate::refusal::Refusal;
use crate::route::{Claim, Route};
use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::any::Any;
use tower::ServiceExt;
use utoipa_axum::router::OpenApiRouter;

/// All of them. The first that claims a request has it; ours is the last, and claims every one.
const DIALECTS: &[&dyn Dialect] = &[
    &e2b::E2b,
    &daytona::Daytona,
    &mcp::Mcp,
    &computer::Computer,
    #[cfg(test)]
    &tiny::Tiny,
    &own::Own,
];

/// One way of asking for desks.
pub(crate) trait Dialect: Send + Sync {
    /// What a request is about that is this dialect's whatever its path, by its headers or its host. The address may be written anew.
    fn claim_by_headers(&self, _: &mut Request) -> Option<Claim> {
        None
    }

    /// What an address of this dialect asks for. Details that the dialect reads in it on the way can be left in the extensions.
    fn claim(&self, request: &mut Request) -> Option<Claim>;

    /// Addresses that are described in the API's document.
    fn described(&self) -> OpenApiRouter<App> {
        OpenApiRouter::new()
    }

    /// Addresses that are not.
    fn routes(&self) -> Router<App> {
        Router::new()
    }

    /// Lets in a guest, or whoever else need not show a key; none: a key is asked for as everywhere. Asked only where the claim's
    /// right allows guests.
    fn admit<'a>(&'a self, _: Visit<'a>) -> BoxFuture<'a, Option<Admission>> {
        std::future::ready(None).boxed()
    }

    /// Answers a request that was let in: by its routes, if nothing else is said. The caller is in the extensions, if there is one.
    fn answer(&self, _: App, router: Router, request: Request) -> BoxFuture<'static, Response> {
        router.oneshot(request).map(|answer| answer.unwrap_or_else(|never| match never {})).boxed()
    }

    /// A refusal that was made on the way, in the form that its clients read.
    fn refuse(&self, _path: &str, refusal: Refusal) -> Response {
        refusal.into_response()
    }

    /// The same for an answer that a handler of ours gave in our own form.
    fn shape<'a>(&'a self, _path: &'a str, response: Response) -> BoxFuture<'a, Response> {
        std::future::ready(response).boxed()
    }

    /// A key of the fleet in the spelling of this dialect's clients.
    fn key(&self, _: &str) -> Option<String> {
        None
    }

    /// Whether it knows its guests by a cookie of this name.
    fn is_cookie(&self, _: &str) -> bool {
        false
    }

    /// The template that its clients get when they name none, if it is not the fleet's. It is built before they ask.
    fn template(&self, _: &Config) -> Option<String> {
        None
    }

    /// What it remembers between requests, empty. It may be lost.
    fn memory(&self) -> Option<Box<dyn Memory>> {
        None
    }
}

/// Somebody at the door.
pub(crate) struct Visit<'a> {
    pub(crate) app: &'a App,
    pub(crate) peer: Peer,
    pub(crate) claim: &'a Claim,
    /// The key, or what stood in its place.
    pub(crate) key: Option<&'a (Secret, Place)>,
    pub(crate) request: &'a mut Parts,
}

/// Who was let in, none for what everybody may ask; or the refusal, in the dialect's form.
pub(crate) type Admission = Result<Option<Caller>, Response>;

/// What a dialect remembers.
pub(crate) trait Memory: Any + Send + Sync {
    /// Forgets what nobody asked for in a while.
    fn prune(&self) {}
}

/// What all of them remember.
pub(crate) struct Memories(Vec<Box<dyn Memory>>);

impl Default for Memories {
    fn default() -> Self {
        Self(DIALECTS.iter().filter_map(|dialect| dialect.memory()).collect())
    }
}

impl Memories {
    /// Of the dialect whose it is.
    pub(crate) fn of<M: Memory + Default>(&self) -> &M {
        let found = self.0.iter().find_map(|memory| (&**memory as &dyn Any).downcast_ref::<M>());
        // A dialect asks for what it said that it has; one that forgot to say so loses what it remembers.
        found.unwrap_or_else(|| Box::leak(Box::default()))
    }

    pub(crate) fn prune(&self) {
        self.0.iter().for_each(|memory| memory.prune());
    }
}

/// Whose a request is by its headers alone.
pub(crate) fn by_headers(request: &mut Request) -> Option<Route> {
    DIALECTS.iter().find_map(|dialect| Some(Route { claim: dialect.claim_by_headers(request)?, dialect: *dialect }))
}

/// Whose a request is by its address.
pub(crate) fn by_address(request: &mut Request) -> Route {
    let found = DIALECTS.iter().find_map(|dialect| Some(Route { claim: dialect.claim(request)?, dialect: *dialect }));
    found.unwrap_or_else(|| Route { claim: Claim::new(crate::route::Class::Control, None), dialect: &own::Own })
}

/// All addresses. Those of our own API are also what dialects that are built on it ask, alone.
pub(crate) fn router(app: &App) -> Router {
    let ours = own::Own.described().split_for_parts().0;
    let base = axum::Extension(Base(ours.fallback(crate::refusal::no_such_path).with_state(app.clone())));
    // Described ones first, as one: addresses of one dialect may lie below those of another.
    let routes = described().split_for_parts().0;
    let routes = DIALECTS.iter().fold(routes, |routes, dialect| routes.merge(dialect.routes()));
    routes.layer(base).fallback(crate::refusal::no_such_path).with_state(app.clone())
}

/// The addresses that the API's document describes.
pub(crate) fn described() -> OpenApiRouter<App> {
    DIALECTS.iter().rev().fold(OpenApiRouter::new(), |all, dialect| all.merge(dialect.described()))
}

/// A key of the fleet, if a dialect spells one so.
pub(crate) fn key(given: &str) -> Option<String> {
    DIALECTS.iter().find_map(|dialect| dialect.key(given))
}

/// The templates of clients that name none.
pub(crate) fn templates(config: &Config) -> Vec<String> {
    DIALECTS.iter().filter_map(|dialect| dialect.template(config)).collect()
}

/// Whether a dialect knows its guests by a cookie of this name.
pub(crate) fn is_cookie(name: &str) -> bool {
    DIALECTS.iter().any(|dialect| dialect.is_cookie(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Class, Right};
    use axum::body::Body;

    fn route(method: &str, path: &str, headers: &[(&str, &str)]) -> Claim {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        by_headers(&mut request).unwrap_or_else(|| by_address(&mut request)).claim
    }

    #[test]
    fn requests_are_told_apart() {
        for (method, path, class, desk, right) in [
            ("GET", "/health", Class::Probe, None, Right::Open),
            ("GET", "/metrics", Class::Probe, None, Right::Machine),
            ("GET", "/v1/openapi.json", Class::Probe, None, Right::Open),
            ("GET", "/", Class::Control, None, Right::Open),
            ("POST", "/", Class::Control, None, Right::Key),
            ("POST", "/v1/session", Class::Control, None, Right::Open),
            ("GET", "/v1/session", Class::Control, None, Right::Key),
            ("GET", "/no/such/path", Class::Control, None, Right::Key),
            ("GET", "/v1/desks", Class::Control, None, Right::Key),
            ("POST", "/v1/desks", Class::Control, None, Right::Key),
            ("GET", "/v1/desks/d-1", Class::Control, Some("d-1"), Right::Key),
            ("POST", "/v1/desks/d-1/start", Class::Control, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/start/x", Class::Desk, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/screenshot", Class::Screenshot, Some("d-1"), Right::Key),
            ("POST", "/v1/desks/d-1/input", Class::Action, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/input/keys", Class::Desk, Some("d-1"), Right::Key),
            ("POST", "/v1/desks/d-1/computer/openai", Class::Action, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/computer/openai", Class::Desk, Some("d-1"), Right::Key),
            ("POST", "/mcp", Class::Control, None, Right::Key),
            ("POST", "/v1/desks/d-1/processes/run", Class::Action, Some("d-1"), Right::Key),
            ("POST", "/v1/desks/d-1/git/clone", Class::Action, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/git/status", Class::Action, Some("d-1"), Right::Key),
            ("POST", "/v1/desks/d-1/kernels", Class::Action, Some("d-1"), Right::Key),
            ("POST", "/v1/desks/d-1/kernels/one/execute", Class::Action, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/kernels", Class::Desk, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/ports", Class::Desk, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/ports/9222", Class::Port, Some("d-1"), Right::Key),
            ("GET", "/v1/desks/d-1/ports/9222/json", Class::Port, Some("d-1"), Right::Key),
            ("GET", "/osworld/d-1/screenshot", Class::Screenshot, Some("d-1"), Right::Key),
            ("POST", "/osworld/d-1/execute", Class::Action, Some("d-1"), Right::Key),
            ("POST", "/osworld/d-1/setup/launch", Class::Desk, Some("d-1"), Right::Key),
            ("POST", "/vm/create", Class::Control, None, Right::Key),
            ("GET", "/vm/d-1/screenshot", Class::Screenshot, Some("d-1"), Right::Key),
            ("DELETE", "/vm/d-1/delete", Class::Control, Some("d-1"), Right::Key),
            ("GET", "/v1/desks//x", Class::Control, None, Right::Key),
            ("POST", "/daytona/api/sandbox", Class::Control, None, Right::Key),
            ("POST", "/daytona/toolbox/d-1/process/execute", Class::Action, Some("d-1"), Right::KeyOrGuest),
            ("POST", "/daytona/toolbox/d-1/git/clone", Class::Action, Some("d-1"), Right::KeyOrGuest),
            ("GET", "/daytona/toolbox/d-1/process/interpreter/execute", Class::Action, Some("d-1"), Right::KeyOrGuest),
            ("GET", "/daytona/api/toolbox/d-1/toolbox/computeruse/screenshot", Class::Screenshot, Some("d-1"), Right::Key),
            ("GET", "/daytona/preview/d-1/80/x", Class::Port, Some("d-1"), Right::KeyOrGuest),
            ("GET", "/daytona/preview", Class::Port, Some(""), Right::KeyOrGuest),
            ("POST", "/v2/sandboxes", Class::Control, None, Right::Key),
            ("POST", "/process.Process/List", Class::Desk, None, Right::Guest),
        ] {
            let claim = route(method, path, &[]);
            assert_eq!((claim.class, claim.desk.as_deref(), claim.right), (class, desk, right), "{method} {path}");
        }
    }

    #[test]
    fn templates_of_those_who_name_none_are_known() {
        assert_eq!(templates(&Config::default()), ["code"]);
    }

    #[test]
    fn headers_and_hosts_name_desks_too() {
        let port = [("e2b-sandbox-id", "iabcdefgh2345"), ("e2b-sandbox-port", "80")];
        let claim = route("GET", "/v1/desks", &port);
        assert_eq!((claim.class, claim.desk.as_deref(), claim.right), (Class::Port, Some("d-abcdefgh2345"), Right::Guest));
        assert!(!claim.own_origin);
        let claim = route("GET", "/k/hd_x/", &[("host", "80-iabcdefgh2345.desks.example")]);
        assert_eq!((claim.class, claim.right, claim.own_origin), (Class::Port, Right::Guest, true));
        let claim = route("GET", "/screenshot", &[("x-daytona-preview-token", "hdp_abc_5000_seal")]);
        assert_eq!((claim.class, claim.desk.as_deref(), claim.right), (Class::Port, Some("d-abc"), Right::KeyOrGuest));
        assert!(route("POST", "/mcp", &[]).audited_within);
    }
}
