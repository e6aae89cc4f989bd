//! Our own words: the fleet, `/vm`, OSWorld's server below `/osworld`, the dashboard's page, and everything of a desk.

use super::Dialect;
use crate::app::App;
use crate::route::{Claim, Class, Right};
use crate::{openapi, page, proxy, session, v1, vm};
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;

/// What everybody may ask.
const OPEN: [&str; 3] = ["/health", "/ready", "/v1/openapi.json"];
const METRICS: &str = "/metrics";

pub(super) struct Own;

impl Dialect for Own {
    /// Every request that is nobody else's is ours.
    fn claim(&self, request: &mut Request) -> Option<Claim> {
        let (method, path) = (request.method(), request.uri().path());
        let (class, desk) = asked(method, path);
        let right = match path {
            METRICS => Right::Machine,
            path if OPEN.contains(&path) || page::owns(method, path) || session::is_sign_in(method, path) => Right::Open,
            _ => Right::Key,
        };
        Some(Claim::new(class, desk).right(right))
    }

    fn described(&self) -> OpenApiRouter<App> {
        v1::router().merge(vm::router()).merge(proxy::router())
    }

    fn routes(&self) -> Router<App> {
        page::router().merge(session::router()).route("/v1/openapi.json", get(openapi::get))
    }
}

/// The class of an address, and the desk that it names.
fn asked<'a>(method: &Method, path: &'a str) -> (Class, Option<&'a str>) {
    let mut parts = path.trim_start_matches('/').splitn(4, '/');
    let first = parts.next().unwrap_or_default();
    let (second, third, rest) = (parts.next(), parts.next(), parts.next());
    match (first, second, third) {
        ("health" | "ready" | "metrics", None, _) => (Class::Probe, None),
        ("v1", Some("openapi.json"), None) => (Class::Probe, None),
        ("v1", Some("desks"), Some(id)) if !id.is_empty() => (below_desk(method, rest), Some(id)),
        ("osworld", Some(id), rest) if !id.is_empty() => {
            let (id, port) = proxy::numbered(id);
            let class = if port.is_some() { Class::Port } else { osworld(method, rest.unwrap_or_default()) };
            (class, Some(id))
        }
        ("vm", Some(id), Some("screenshot")) => (Class::Screenshot, Some(id)),
        ("vm", Some(id), Some("execute")) => (Class::Action, Some(id)),
        ("vm", Some(id), Some("delete")) => (Class::Control, Some(id)),
        _ => (Class::Control, None),
    }
}

fn below_desk(method: &Method, rest: Option<&str>) -> Class {
    let Some(rest) = rest else { return Class::Control };
    let changes = !method.is_safe();
    match rest.split('/').next().unwrap_or_default() {
        verb if v1::VERBS.contains(&rest) && !verb.is_empty() => Class::Control,
        "screenshot" => Class::Screenshot,
        "input" if changes => Class::Action,
        "processes" if changes && rest == "processes/run" => Class::Action,
        // Each of its calls runs a program, also those that only look.
        "git" => Class::Action,
        "kernels" if changes => Class::Action,
        "ports" if rest != "ports" => Class::Port,
        _ => Class::Desk,
    }
}

fn osworld(method: &Method, first: &str) -> Class {
    match first {
        "screenshot" => Class::Screenshot,
        "execute" | "execute_with_verification" | "run_python" | "run_bash_script" if !method.is_safe() => Class::Action,
        _ => Class::Desk,
    }
}
