//! Ports of a sandbox, seen from outside: with a key, with a token, by a signed link, or openly if the sandbox is public.
//!
//! A link has a path below our address. Some programs drop that path and keep host and token alone
//! (`urljoin(link, "/screenshot")`), so a token leads its request to its port whatever the path is.

use super::reply::{self, Failure, Reply};
use super::{Call, PREVIEW, Query, access, labels, seal, toolbox};
use crate::app::App;
use crate::class::Class;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::proxy::{self, Target, pass};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
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
/// The inside of a sandbox, the terminal and the recordings are never public.
const GUARDED: [u16; 3] = [TOOLBOX_PORT, 22_222, 33_333];
/// Where older SDKs look for the inside of a sandbox by WebSocket.
const TOOLBOX_PORT: u16 = 2280;
/// Where programs for OSWorld's desktops look for the desktop's server, which here is the desk itself.
const OSWORLD_PORT: u16 = 5000;

/// Sends a request that carries a token, but not the path of the link, to where the token leads.
pub(crate) fn lead(request: &mut Request) {
    if super::owns(request.uri().path()) {
        return;
    }
    let bearer = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.split_once(' '));
    let token = request.headers().get(TOKEN).and_then(|v| v.to_str().ok()).or(bearer.map(|(_, token)| token.trim()));
    let Some((desk, port)) = token.and_then(access::place) else { return };
    let rest = request.uri().path_and_query().map_or("/", |p| p.as_str());
    if let Ok(uri) = format!("{PREVIEW}{desk}/{port}{rest}").parse() {
        *request.uri_mut() = uri;
    }
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
    /// It had the token in its address, where it is not seen again.
    remember: Option<String>,
}

/// Who asks for a port, if the request may; for the entrance, which has taken the key out already.
pub(crate) async fn admit(app: &App, peer: Peer, key: Option<(Secret, Place)>, class: Class, parts: &mut Parts) -> Reply<Caller> {
    let Some((name, port, _)) = self::parts(parts.uri.path()) else {
        return Err(Failure::not_found("a preview link is /daytona/preview/SANDBOX/PORT/"));
    };
    let name = name.to_owned();
    let host = parts.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    if let Some((secret, place)) = &key
        && let Ok(who) = app.fleet.who(secret.reveal()).await
    {
        app.limits.desks(&who.key)?;
        let desk = app.fleet.desk(&who, &name).await?.id;
        parts.extensions.insert(Opened { desk, remember: None });
        return Ok(Caller { who, secret: secret.clone(), place: *place, peer, host, class, guest: false });
    }
    let opened = match access::signed(app, &name).await {
        Some(signed) if signed.port == port => Ok(Opened { desk: signed.desk, remember: None }),
        Some(_) => Err(refused("the link is for another port")),
        None => by_token(app, &name, port, key.as_ref().map(|(secret, _)| secret.reveal()), &parts.headers, &parts.uri).await,
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            app.limits.failure(peer.network())?;
            return Err(failure);
        }
    };
    let who = guest(&opened.desk);
    app.limits.desks(&who.key)?;
    parts.extensions.insert(opened);
    // Not a key of ours; nothing that we hand out may hold it.
    let secret = Secret::none();
    Ok(Caller { who, secret, place: Place::Header, peer, host, class, guest: true })
}

/// Somebody without a key who may use one desk.
pub(crate) fn guest(desk: &str) -> Who {
    Who { key: format!("preview-{desk}"), name: "preview".into(), scope: Scope::Desk { desk: desk.into() } }
}

async fn by_token(app: &App, name: &str, port: u16, bearer: Option<&str>, headers: &HeaderMap, uri: &Uri) -> Reply<Opened> {
    // A name alone tells nobody whether there is such a sandbox.
    let Ok(desk) = app.fleet.desk(&guest(name), name).await else {
        return Err(refused("the token is missing or wrong"));
    };
    let query = Query::of(uri);
    let queried = query.get(IN_QUERY);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    let cookie = cookies.filter_map(|cookie| cookie.trim().split_once('=')).find(|(name, _)| *name == COOKIE).map(|(_, v)| v);
    let given = [bearer, headers.get(TOKEN).and_then(|v| v.to_str().ok()), queried, cookie];
    let right = access::token(&seal::key(app).await?, &desk, port);
    if given.into_iter().flatten().any(|token| seal::same(token, &right)) {
        let remember = queried.filter(|token| seal::same(token, &right)).map(str::to_owned);
        return Ok(Opened { desk: desk.id, remember });
    }
    if labels::is_public(&desk) && !GUARDED.contains(&port) {
        return Ok(Opened { desk: desk.id, remember: None });
    }
    Err(refused("the token is missing, wrong, or from before the sandbox's last start"))
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
    let (Some(Opened { desk, remember }), Some((name, port, rest))) = (opened, parts(&path)) else {
        return Err(refused("the token is missing"));
    };
    if port == TOOLBOX_PORT {
        let words = super::segments(rest)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        return toolbox::answer(Call::new(app, caller, request), &desk, &words).await;
    }
    let query = without_token(request.uri().query());
    let place = match query {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    clean(request.headers_mut());
    let mut target = Target { port: Some(port), path: place, base: Some(format!("{PREVIEW}{name}/{port}")) };
    if port == OSWORLD_PORT && !proxy::listens(&app, &caller, &desk, port).await {
        if crate::proxy::is_keepers(rest) {
            return Err(Failure::not_found("there is no such path"));
        }
        target = Target::desk(target.path);
    }
    let mut response = pass(&app, &caller, &desk, target, request).await;
    if let Some(token) = remember
        && let Ok(cookie) = HeaderValue::try_from(format!(
            "{COOKIE}={token}; Path={PREVIEW}{name}/{port}; Max-Age={COOKIE_S}; HttpOnly; SameSite=Lax"
        ))
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(reply::reshape(&path, response).await)
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
