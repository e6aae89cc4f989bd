//! Ports of a sandbox, seen from outside: with a key, with a token, by a signed link, or openly if the sandbox is public.
//!
//! A link has a path below our address. Some programs drop that path and keep host and token alone
//! (`urljoin(link, "/screenshot")`), so a token leads its request to its port whatever the path is.

use super::reply::{self, Failure, Reply};
use super::{Call, PREVIEW, Query, access, labels, toolbox};
use crate::app::App;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::guest::Guest;
use crate::listen::Peer;
use crate::proxy::{self, Target, pass};
use crate::route::Class;
use crate::seal;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Redirect, Response};
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::Who;

const TOKEN: &str = "x-daytona-preview-token";
const IN_QUERY: &str = "DAYTONA_SANDBOX_AUTH_KEY";
const COOKIE: &str = "daytona-sandbox-auth";
/// Headers for Daytona's proxy, which are none of the program's business.
const OURS: [&str; 4] =
    [TOKEN, "x-daytona-skip-preview-warning", "x-daytona-disable-cors", "x-daytona-skip-last-activity-update"];
/// How long a browser may come back without the token in the address.
const COOKIE_S: u32 = 3600;
/// Where older SDKs look for the inside of a sandbox by WebSocket.
const TOOLBOX_PORT: u16 = 2280;
/// Where programs for OSWorld's desktops look for the desktop's server, which here is the desk itself.
const OSWORLD_PORT: u16 = 5000;
/// Daytona's terminal and recordings.
const DAYTONA_PORTS: [u16; 2] = [22_222, 33_333];

/// What a port leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// The inside of a sandbox, in Daytona's words.
    Toolbox,
    /// The desk itself, unless a program listens there. In a machine that is not ours the server that listens there is the
    /// desk's own, and asks for nothing.
    Desk,
    /// Daytona's own services.
    Service,
    /// A program.
    Program,
}

impl Inside {
    fn of(port: u16) -> Self {
        match port {
            TOOLBOX_PORT => Self::Toolbox,
            OSWORLD_PORT => Self::Desk,
            port if DAYTONA_PORTS.contains(&port) => Self::Service,
            _ => Self::Program,
        }
    }

    /// Whether a public sandbox shows it to everybody. Whoever reaches the desk itself executes commands in it.
    fn may_be_public(self) -> bool {
        self == Self::Program
    }
}

/// Sends a request that carries a token, but not the path of the link, to where the token leads.
pub(crate) fn lead(request: &mut Request) -> bool {
    if super::owns(request.uri().path()) {
        return false;
    }
    let bearer = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.split_once(' '));
    let token = request.headers().get(TOKEN).and_then(|v| v.to_str().ok()).or(bearer.map(|(_, token)| token.trim()));
    let Some((desk, port)) = token.and_then(access::place) else { return false };
    let rest = request.uri().path_and_query().map_or("/", |p| p.as_str());
    let Ok(uri) = format!("{PREVIEW}{desk}/{port}{rest}").parse() else { return false };
    *request.uri_mut() = uri;
    true
}

/// Whether this is the cookie by which a browser is known.
pub(crate) fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case(COOKIE)
}

/// The parts of a link: whose, which port, and the rest of the address.
fn parts(path: &str) -> Option<(&str, u16, &str)> {
    let rest = path.strip_prefix(PREVIEW)?;
    let (name, rest) = rest.split_once('/')?;
    let (port, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    Some((name, access::port(port).ok()?, path))
}

/// Where the client is known from.
#[derive(Clone)]
struct Opened {
    desk: String,
    inside: Inside,
    /// It had the token in its address, where it is not seen again.
    remember: Option<String>,
}

/// Who asks for a port, if the request may; for the entrance, which has taken the key out already.
pub(crate) async fn admit(app: &App, peer: Peer, key: Option<(Secret, Place)>, class: Class, parts: &mut Parts) -> Reply<Caller> {
    let Some((name, port, _)) = self::parts(parts.uri.path()) else {
        return Err(Failure::not_found("a preview link is /daytona/preview/SANDBOX/PORT/"));
    };
    // A browser has the token in the path, see `pass_on`.
    let in_path = access::place(name).filter(|(_, of)| *of == port).map(|(desk, _)| (desk, name.to_owned()));
    let (name, in_path) = match in_path {
        Some((desk, token)) => (desk, Some(token)),
        None => (name.to_owned(), None),
    };
    let host = parts.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    let mut missing = None;
    if let Some((secret, place)) = &key
        && let Ok(who) = app.fleet.who(secret.reveal()).await
    {
        app.limits.desks(&who.key)?;
        match app.fleet.desk(&who, &name).await {
            Ok(desk) => {
                parts.extensions.insert(Opened { desk: desk.id, inside: Inside::of(port), remember: None });
                return Ok(Caller { who, secret: secret.clone(), place: *place, peer, host, class, guest: None, session: None });
            }
            // Somebody who is signed in opens a signed link: then the name is its token.
            Err(error) => missing = Some(error),
        }
    }
    let looks = || app.limits.keyless(peer.network());
    let opened = match access::signed(app, &name, looks).await? {
        Some(signed) if signed.port == port => Ok(by_link(&name, signed)),
        Some(_) => Err(refused("the link is for another port")),
        None => {
            if let Some(error) = missing {
                return Err(error.into());
            }
            let shown = in_path.as_deref().or(key.as_ref().map(|(secret, _)| secret.reveal()));
            by_token(app, peer, &name, port, shown, parts).await
        }
    };
    let (opened, guest) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            app.limits.failure(peer.network())?;
            return Err(failure);
        }
    };
    let who = self::guest(&opened.desk);
    app.limits.desks(&who.key)?;
    parts.extensions.insert(opened);
    // Not a key of ours; nothing that we hand out may hold it.
    let secret = Secret::none();
    Ok(Caller { who, secret, place: Place::Header, peer, host, class, guest: Some(guest), session: None })
}

/// Somebody without a key who may use one desk.
pub(crate) fn guest(desk: &str) -> Who {
    Who { key: format!("preview-{desk}"), name: "preview".into(), scope: Scope::Desk { desk: desk.into() } }
}

fn by_link(token: &str, signed: access::Signed) -> (Opened, Guest) {
    let token = token.to_owned();
    let guest = Guest::new(&signed.desk, Some(signed.until_ms), move |app| {
        let token = token.clone();
        async move { access::stands(&app, &token).await }
    });
    (Opened { desk: signed.desk, inside: Inside::of(signed.port), remember: None }, guest)
}

async fn by_token(app: &App, peer: Peer, name: &str, port: u16, bearer: Option<&str>, parts: &Parts) -> Reply<(Opened, Guest)> {
    let (headers, uri) = (&parts.headers, &parts.uri);
    let known = &super::kept(app).links.sandboxes;
    if known.get(name).is_none() {
        app.limits.keyless(peer.network())?;
    }
    // A name alone tells nobody whether there is such a sandbox.
    let Ok(desk) = app.fleet.desk(&guest(name), name).await else {
        return Err(refused("the token is missing or wrong"));
    };
    let query = Query::of(uri);
    let queried = query.get(IN_QUERY);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    let cookie = cookies.filter_map(|cookie| cookie.trim().split_once('=')).find(|(name, _)| *name == COOKIE).map(|(_, v)| v);
    let given = [bearer, headers.get(TOKEN).and_then(|v| v.to_str().ok()), queried, cookie];
    let right = access::token(app.seal().await?, &desk, port);
    let inside = Inside::of(port);
    if given.into_iter().flatten().any(|token| seal::same(token, &right)) {
        let remember = queried.filter(|token| seal::same(token, &right)).map(str::to_owned);
        known.put(name, ());
        let guest = holder(desk.id.clone(), Some((port, right)));
        return Ok((Opened { desk: desk.id, inside, remember }, guest));
    }
    if labels::is_public(&desk) && inside.may_be_public() {
        if peer.machine {
            // A page whose name was made to point at this machine. Its own pages have an origin of their own, so that is not asked.
            app.pages.check_name(headers, &[])?;
        }
        known.put(name, ());
        return Ok((Opened { desk: desk.id.clone(), inside, remember: None }, holder(desk.id, None)));
    }
    Err(refused("the token is missing, wrong, or from before the sandbox's last start"))
}

/// Somebody with the token of a port, or at a port that is public.
fn holder(desk: String, token: Option<(u16, String)>) -> Guest {
    Guest::new(&desk.clone(), None, move |app| {
        let (desk, token) = (desk.clone(), token.clone());
        async move {
            let desk = match app.fleet.desk(&guest(&desk), &desk).await {
                Ok(desk) => desk,
                Err(error) => return matches!(error, hotdesk_fleet::Error::Store(_)),
            };
            match (token, app.seal().await) {
                (Some((port, token)), Ok(seal)) => seal::same(&token, &access::token(seal, &desk, port)),
                (Some(_), Err(_)) => true,
                (None, _) => labels::is_public(&desk),
            }
        }
    })
}

fn refused(why: &str) -> Failure {
    Failure::new(
        axum::http::StatusCode::UNAUTHORIZED,
        format!("{why}: send it as the header X-Daytona-Preview-Token, or the API key as bearer"),
    )
}

pub(crate) async fn answer(State(app): State<App>, caller: Caller, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let answer = pass_on(app, caller, request).await;
    reply::finish(&path, answer)
}

async fn pass_on(app: App, caller: Caller, mut request: Request) -> Reply {
    let path = request.uri().path().to_owned();
    let opened = request.extensions().get::<Opened>().cloned();
    let (Some(Opened { desk, inside, remember }), Some((name, port, rest))) = (opened, parts(&path)) else {
        return Err(refused("the token is missing"));
    };
    if inside == Inside::Toolbox {
        let words = super::segments(rest)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        return toolbox::answer(Call::new(app, caller, request), &desk, &words).await;
    }
    let query = without_token(request.uri().query());
    let place = match query {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    // A page has an origin of its own, and sends no cookies to ours; what it loads by relative addresses has the token this way.
    if let Some(token) = remember.as_ref().filter(|_| is_opened_by_browser(&request)) {
        let before = app.public.as_ref().map_or("", |public| public.path.as_str());
        return Ok(Redirect::to(&format!("{before}{PREVIEW}{token}/{port}{place}")).into_response());
    }
    clean(request.headers_mut());
    let mut target = Target { port: Some(port), path: place, base: Some(format!("{PREVIEW}{name}/{port}")) };
    if inside == Inside::Desk && !proxy::listens(&app, &caller, &desk, port).await {
        if crate::proxy::is_keepers(rest) {
            return Err(Failure::not_found("there is no such path"));
        }
        target = Target::desk(target.path);
    }
    let secure = if caller.is_https(&app) { "; Secure" } else { "" };
    let mut response = pass(&app, &caller, &desk, target, request).await;
    if let Some(token) = remember
        && let Ok(cookie) = HeaderValue::try_from(format!(
            "{COOKIE}={token}; Path={PREVIEW}{name}/{port}; Max-Age={COOKIE_S}; HttpOnly; SameSite=Lax{secure}"
        ))
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(reply::reshape(&path, response).await)
}

/// Whether somebody opens a page in a browser.
fn is_opened_by_browser(request: &Request) -> bool {
    request.method() == Method::GET && request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
}

/// Takes out what was meant for us.
fn clean(headers: &mut HeaderMap) {
    for name in OURS {
        headers.remove(name);
    }
    headers.remove(header::AUTHORIZATION);
    let cookies: Vec<String> = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .map(str::trim)
        .filter(|cookie| cookie.split('=').next() != Some(COOKIE))
        .map(str::to_owned)
        .collect();
    headers.remove(header::COOKIE);
    if !cookies.is_empty()
        && let Ok(value) = HeaderValue::try_from(cookies.join("; "))
    {
        headers.insert(header::COOKIE, value);
    }
}

fn without_token(query: Option<&str>) -> Option<String> {
    let rest: Vec<_> = query?.split('&').filter(|pair| pair.split('=').next() != Some(IN_QUERY)).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn links_have_parts() {
        assert_eq!(parts("/daytona/preview/d-1/3000"), Some(("d-1", 3000, "/")));
        assert_eq!(parts("/daytona/preview/d-1/3000/a/b"), Some(("d-1", 3000, "/a/b")));
        for path in ["/daytona/preview/d-1", "/daytona/preview/d-1/0/", "/daytona/preview/d-1/x/", "/other/d-1/1/"] {
            assert_eq!(parts(path), None, "{path}");
        }
    }

    #[test]
    fn a_token_leads_its_request_to_its_port() {
        for (name, value) in [("x-daytona-preview-token", "hdp_abc_5000_seal"), ("authorization", "Bearer hdp_abc_5000_seal")] {
            let mut request = Request::get("/screenshot?x=1").header(name, value).body(Body::empty()).unwrap();
            lead(&mut request);
            assert_eq!(request.uri(), "/daytona/preview/d-abc/5000/screenshot?x=1");
            let again = request.uri().clone();
            lead(&mut request);
            assert_eq!(*request.uri(), again);
        }
        let mut request = Request::get("/v1/desks").header("authorization", "Bearer hd_x").body(Body::empty()).unwrap();
        lead(&mut request);
        assert_eq!(request.uri(), "/v1/desks");
    }

    #[test]
    fn what_is_ours_stays_here() {
        assert_eq!(without_token(Some("a=1&DAYTONA_SANDBOX_AUTH_KEY=x&b")).as_deref(), Some("a=1&b"));
        assert_eq!(without_token(Some("DAYTONA_SANDBOX_AUTH_KEY=x")), None);
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("a=1; daytona-sandbox-auth=x; b=2"));
        headers.insert(TOKEN, HeaderValue::from_static("x"));
        clean(&mut headers);
        assert_eq!((headers.len(), &headers[header::COOKIE]), (1, &HeaderValue::from_static("a=1; b=2")));
    }
}
