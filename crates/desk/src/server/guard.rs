//! Who may ask.
//!
//! | listens on  | token                        | browsers                                      |
//! |-------------|------------------------------|-----------------------------------------------|
//! | Unix socket | if one is set                | can't reach it                                |
//! | the desk's  | none: only its own programs  | can't reach it                                |
//! | own socket  | can open it; not for keepers |                                               |
//! | loopback    | if one is set                | only pages of the desk itself                 |
//! | network     | always; made if none is set  | any page that knows the token                 |
//! | `--open`    | none                         | any                                           |
//!
//! What is for whoever keeps the desk (`/v1/freeze`, `/v1/thaw`) is never for the desk's own programs: they could lock the keeper out.
//!
//! On loopback a web page is the danger: every page that a browser on this machine shows can send
//! requests here. So a request that says it comes from another site is refused, and so is one whose
//! `Host` is a name that we do not go by (a page whose name was made to point at 127.0.0.1).

use super::listen::{Address, Reach};
use super::token::Token;
use super::v1::freeze::Freeze;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::{Config, Desk};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::io::IsTerminal;
use std::net::IpAddr;
use std::sync::Arc;

/// Requests of whoever keeps the desk.
const KEEPERS: [&str; 2] = ["/v1/freeze", "/v1/thaw"];

/// What starts programs, whatever the method is: git runs what a repository's settings name, a user's first request his server.
const STARTS: [&str; 2] = ["/v1/git/", "/v1/users/"];

/// The name of the token's file in the desk's runtime directory.
pub const TOKEN_FILE: &str = "hotdesk-token";

/// The rules of one server.
pub struct Guard {
    open: bool,
    token: Option<Token>,
    /// Names besides `localhost` that the desk goes by.
    names: Vec<String>,
    /// Sites whose pages may ask without a token.
    origins: Vec<String>,
    /// For requests that did not come through a listener of ours.
    reach: Reach,
    session: Option<Session>,
    /// May bring another token while the desk runs.
    freeze: Freeze,
}

impl Guard {
    /// Rules for a desk; makes its token if an address needs one.
    pub fn for_desk(desk: &Desk, addresses: &[Address]) -> Result<Self> {
        let mut guard = Self::without_making_a_token(&desk.config, addresses);
        guard.session = Some(desk.session.clone());
        guard.freeze = desk.freeze.clone();
        if guard.open && guard.reach == Reach::Network {
            tracing::warn!("the desk is open: whoever reaches its port can use it");
        }
        if guard.token.is_none() && !guard.open && guard.reach == Reach::Network {
            let file = desk.place.runtime_dir.join(TOKEN_FILE);
            let (token, new) = Token::load_or_make(&file)?;
            tracing::info!(file = %file.display(), "requests need the token in this file");
            // Logs are kept and copied; a terminal is only looked at.
            if new && std::io::stderr().is_terminal() {
                eprintln!("Token of this desk: {}", token.reveal());
            }
            guard.token = Some(token);
        }
        Ok(guard)
    }

    /// The same, but refuses all requests where a token is needed and none is set.
    pub fn without_making_a_token(config: &Config, addresses: &[Address]) -> Self {
        Self {
            open: config.open,
            token: config.token.clone(),
            names: config.names.clone(),
            origins: config.origins.clone(),
            reach: addresses.iter().map(Reach::from).max().unwrap_or(Reach::Machine),
            session: None,
            freeze: Freeze::default(),
        }
    }

    fn allows(&self, request: &Request) -> Result<()> {
        let reach = request.extensions().get().copied().unwrap_or(self.reach);
        if reach == Reach::Desk && KEEPERS.contains(&request.uri().path()) {
            return Err(Error::Denied("this is for whoever keeps the desk, not for its own programs".into()));
        }
        if self.open {
            return Ok(());
        }
        if reach == Reach::Desk {
            return Ok(());
        }
        if let Some(token) = self.freeze.token().as_ref().or(self.token.as_ref()) {
            return match given_token(request.headers(), request.uri()) {
                Some(given) if token.is(&given) => Ok(()),
                Some(_) => Err(Error::Unauthorized("the token is wrong".into())),
                None => Err(Error::Unauthorized("the request carries no token".into())),
            };
        }
        match reach {
            Reach::Desk | Reach::File => Ok(()),
            Reach::Machine => self.is_no_foreign_page(request),
            Reach::Network => Err(Error::Unauthorized("the desk has no token yet, so nobody can ask from the network".into())),
        }
    }

    fn is_no_foreign_page(&self, request: &Request) -> Result<()> {
        let headers = request.headers();
        let host = headers.get(header::HOST).map(|h| h.to_str().unwrap_or_default());
        if let Some(host) = host
            && !self.goes_by(host)
        {
            return Err(Error::Denied(format!(
                "this desk does not go by the name `{}`; use `localhost` or an IP address, or add the name to the setting `names`",
                host.escape_default()
            )));
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let site = origin.split_once("://").map(|(_, site)| site);
            let own = site.is_some() && site.map(str::to_ascii_lowercase) == host.map(str::to_ascii_lowercase);
            if !own && !self.trusts(origin) {
                return Err(foreign());
            }
        } else if let Some(site) = headers.get("sec-fetch-site") {
            // A link that a person follows to us is harmless: GET changes nothing, and the page can't read the answer. But some start programs.
            let followed_link = !STARTS.iter().any(|start| request.uri().path().starts_with(start))
                && (request.method() == Method::GET || request.method() == Method::HEAD)
                && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
                && headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document");
            if site != "same-origin" && site != "none" && !followed_link {
                return Err(foreign());
            }
        }
        Ok(())
    }

    /// Whether pages of this site may read our answers.
    fn trusts(&self, origin: &str) -> bool {
        self.open || self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// Names that no page of the web can be reached by: addresses, names of one word (machines and
    /// containers of the own network; a public name has a dot), and those of the settings.
    fn goes_by(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        (!name.is_empty() && !name.contains('.'))
            || name.ends_with(".localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(&name))
    }

    /// Whether the desk is ready is told to everybody: probes of containers carry no token.
    fn short_health(&self, request: &Request) -> Option<Response> {
        let asks = request.uri().path() == "/health" && (request.method() == Method::GET || request.method() == Method::HEAD);
        let health = self.session.as_ref().filter(|_| asks)?.health();
        let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = serde_json::json!({ "ready": health.ready, "stage": health.stage });
        Some((status, axum::Json(body)).into_response())
    }
}

fn foreign() -> Error {
    Error::Denied("a web page of another site can't use this desk; set a token, or add the site to the setting `origins`".into())
}

/// The middleware: refuses, or passes the request on without the token in its query.
pub async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).filter(|origin| origin.to_str().is_ok_and(|o| guard.trusts(o))).cloned();
    let Some(origin) = origin else { return pass(&guard, request, next).await };
    // What a browser asks before it lets a page of another site ask. It carries no token, and nothing is done.
    let asks_first = request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first { permission(request.headers()) } else { pass(&guard, request, next).await };
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.headers_mut().append(header::VARY, header::HeaderValue::from_static("origin"));
    response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, header::HeaderValue::from_static("*"));
    response
}

async fn pass(guard: &Guard, mut request: Request, next: Next) -> Response {
    if let Err(error) = guard.allows(&request) {
        if matches!(error, Error::Unauthorized(_))
            && let Some(health) = guard.short_health(&request)
        {
            return health;
        }
        let mut response = error.into_response();
        if response.status() == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        return response;
    }
    if let Some(uri) = without_token(request.uri()) {
        *request.uri_mut() = uri;
    }
    next.run(request).await
}

/// Everything that was asked for.
fn permission(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    for (question, answer) in [
        (header::ACCESS_CONTROL_REQUEST_METHOD, header::ACCESS_CONTROL_ALLOW_METHODS),
        (header::ACCESS_CONTROL_REQUEST_HEADERS, header::ACCESS_CONTROL_ALLOW_HEADERS),
    ] {
        if let Some(wanted) = asked.get(question) {
            response.headers_mut().insert(answer, wanted.clone());
        }
    }
    response
}

fn given_token(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    let own = || headers.get("x-hotdesk-token").and_then(|value| value.to_str().ok()).map(|token| token.trim().to_owned());
    // Browsers can't set headers on a WebSocket.
    let in_query = || {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
        pairs.into_iter().find(|(name, _)| name == "token").map(|(_, token)| token)
    };
    bearer.or_else(own).or_else(in_query)
}

/// The address without `token=…`, if it has one: routes refuse parameters that they do not know,
/// and whoever writes an address to a log must not write a secret.
fn without_token(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    let is_token = |pair: &&str| pair.split('=').next() == Some("token");
    query.split('&').find(is_token)?;
    let rest: Vec<_> = query.split('&').filter(|pair| !is_token(pair)).collect();
    let path = uri.path();
    let text = if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::{Router, middleware, routing};
    use tower::ServiceExt;

    fn guard(reach: Reach, token: Option<&str>) -> Guard {
        Guard {
            open: false,
            token: token.map(|t| Token::new(t).unwrap()),
            names: vec!["desk.lan".into()],
            origins: vec!["https://board.example".into()],
            reach,
            session: None,
            freeze: Freeze::default(),
        }
    }

    async fn ask(guard: Guard, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let app = Router::new()
            .fallback(routing::any(|uri: Uri| async move { uri.to_string() }))
            .layer(middleware::from_fn_with_state(Arc::new(guard), check));
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn the_token_is_taken_from_each_place_and_compared_whole() {
        for (path, headers, status) in [
            ("/x", vec![], 401),
            ("/x", vec![("authorization", "Bearer secret")], 200),
            ("/x", vec![("authorization", "bearer  secret")], 200),
            ("/x", vec![("authorization", "Basic secret")], 401),
            ("/x", vec![("authorization", "Bearer secre")], 401),
            ("/x", vec![("authorization", "Bearer secret2")], 401),
            ("/x", vec![("authorization", "Bearer")], 401),
            ("/x", vec![("x-hotdesk-token", "secret")], 200),
            ("/x", vec![("x-hotdesk-token", "")], 401),
            ("/x?token=secret", vec![], 200),
            ("/x?token=", vec![], 401),
            ("/x?a=1&token=secre%74", vec![], 200),
            // Who knows the token may be any page, under any name.
            ("/x", vec![("authorization", "Bearer secret"), ("host", "evil.example"), ("origin", "http://evil.example")], 200),
        ] {
            for reach in [Reach::File, Reach::Machine, Reach::Network] {
                let (got, _) = ask(guard(reach, Some("secret")), "GET", path, &headers).await;
                assert_eq!(got, status, "{reach:?} {path} {headers:?}");
            }
        }
    }

    #[tokio::test]
    async fn programs_of_the_desk_are_not_its_keeper() {
        for path in KEEPERS {
            for token in [None, Some("secret")] {
                for open in [false, true] {
                    let guard = Guard { open, ..guard(Reach::Desk, token) };
                    let (status, said) = ask(guard, "POST", path, &[("authorization", "Bearer secret")]).await;
                    assert_eq!(status, 403, "{path}: {said}");
                }
            }
            let (status, _) = ask(guard(Reach::File, Some("secret")), "POST", path, &[("authorization", "Bearer secret")]).await;
            assert_eq!(status, 200);
        }
        assert_eq!(ask(guard(Reach::Desk, Some("secret")), "GET", "/v1/windows", &[]).await.0, 200);
    }

    #[tokio::test]
    async fn the_token_does_not_reach_the_routes() {
        let (_, seen) = ask(guard(Reach::Network, Some("s")), "GET", "/x?a=1&token=s&b=%20", &[]).await;
        assert_eq!(seen, "/x?a=1&b=%20");
        let (_, seen) = ask(guard(Reach::Network, Some("s")), "GET", "/x?token=s", &[]).await;
        assert_eq!(seen, "/x");
    }

    #[tokio::test]
    async fn loopback_is_for_programs_and_own_pages() {
        for (method, headers, status) in [
            ("GET", vec![], 200),
            ("POST", vec![("host", "127.0.0.1:5000")], 200),
            ("POST", vec![("host", "localhost:5000")], 200),
            ("POST", vec![("host", "LOCALHOST.:5000")], 200),
            ("POST", vec![("host", "a.localhost")], 200),
            ("POST", vec![("host", "[::1]:5000")], 200),
            ("POST", vec![("host", "192.168.1.5")], 200),
            ("POST", vec![("host", "desk.lan:5000")], 200),
            ("POST", vec![("host", "evil.example:5000")], 403),
            ("POST", vec![("host", "desk-7:5000")], 200),
            ("POST", vec![("host", "localhost.evil.example")], 403),
            ("POST", vec![("host", "127.0.0.1.evil.example")], 403),
            ("POST", vec![("host", "localhost:5000"), ("origin", "http://localhost:5000")], 200),
            ("POST", vec![("host", "localhost:5000"), ("origin", "http://localhost:3000")], 403),
            ("POST", vec![("host", "localhost:5000"), ("origin", "https://evil.example")], 403),
            ("POST", vec![("host", "localhost:5000"), ("origin", "null")], 403),
            ("POST", vec![("host", "localhost:5000"), ("origin", "https://board.example")], 200),
            ("POST", vec![("origin", "http://x")], 403),
            ("GET", vec![("sec-fetch-site", "cross-site")], 403),
            ("GET", vec![("sec-fetch-site", "same-origin")], 200),
            ("GET", vec![("sec-fetch-site", "none")], 200),
            ("GET", vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")], 200),
            ("POST", vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")], 403),
            ("GET", vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")], 403),
        ] {
            let (got, body) = ask(guard(Reach::Machine, None), method, "/x", &headers).await;
            assert_eq!(got, status, "{method} {headers:?} {body}");
        }
        // A link to what starts programs is followed by nobody.
        let followed = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        for (path, status) in
            [("/v1/screenshot", 200), ("/v1/kernels", 200), ("/v1/git/status?path=x", 403), ("/v1/users/root/git/status", 403)]
        {
            assert_eq!(ask(guard(Reach::Machine, None), "GET", path, &followed).await.0, status, "{path}");
            assert_eq!(ask(guard(Reach::Machine, None), "GET", path, &[]).await.0, 200, "{path}");
        }
    }

    #[tokio::test]
    async fn trusted_pages_are_let_in_by_their_browsers() {
        let app = |guard: Guard| {
            Router::new().fallback(async || "answer").layer(middleware::from_fn_with_state(Arc::new(guard), check))
        };
        let ask = async |origin: &str, token: Option<&str>| {
            let request = axum::http::Request::options("/x")
                .header("origin", origin)
                .header("access-control-request-method", "PUT")
                .header("access-control-request-headers", "authorization")
                .body(Body::empty());
            let headers = app(guard(Reach::Machine, token)).oneshot(request.unwrap()).await.unwrap().headers().clone();
            let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
            (text("access-control-allow-origin"), text("access-control-allow-methods"), text("access-control-allow-headers"))
        };
        let yes = (Some("https://board.example".to_owned()), Some("PUT".to_owned()), Some("authorization".to_owned()));
        assert_eq!(ask("https://board.example", None).await, yes);
        assert_eq!(ask("https://board.example", Some("secret")).await, yes);
        assert_eq!(ask("https://evil.example", None).await, (None, None, None));
        let get = axum::http::Request::get("/x").header("origin", "https://board.example").body(Body::empty()).unwrap();
        let refused = app(guard(Reach::Machine, Some("secret"))).oneshot(get).await.unwrap();
        assert_eq!(refused.status(), 401, "the token is needed all the same");
        assert_eq!(refused.headers()["access-control-allow-origin"], "https://board.example");
    }

    #[tokio::test]
    async fn the_network_is_shut_without_a_token_and_open_is_open() {
        assert_eq!(ask(guard(Reach::Network, None), "GET", "/x", &[("host", "127.0.0.1")]).await.0, 401);
        assert_eq!(ask(guard(Reach::File, None), "GET", "/x", &[("host", "anything")]).await.0, 200);
        let open = Guard { open: true, ..guard(Reach::Network, Some("s")) };
        assert_eq!(ask(open, "POST", "/x", &[("origin", "http://x"), ("host", "y")]).await.0, 200);
    }
}
