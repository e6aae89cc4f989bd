//! Web pages: which may ask, and what their browsers are told.
//!
//! A request with a good key is let in, whatever page it comes from: somebody gave it the key. Without one, on loopback, a web
//! page is the danger: every page that a browser on this machine shows can send requests here. So a request that says it comes
//! from another site is refused, and so is one whose `Host` is a name that we do not go by (a page whose name was made to
//! point at 127.0.0.1).

use crate::refusal::{Refusal, Result};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

pub(crate) struct Pages {
    /// Names besides `localhost` that we go by.
    names: Vec<String>,
    /// Sites whose pages may read our answers.
    origins: Vec<String>,
}

impl Pages {
    pub(crate) fn new(names: Vec<String>, origins: Vec<String>) -> Self {
        let names = names.into_iter().map(|name| host_name(&name).to_owned()).collect();
        let origins = origins.into_iter().map(|origin| origin.trim_end_matches('/').to_owned()).collect();
        Self { names, origins }
    }

    /// Refuses foreign pages on loopback.
    pub(crate) fn check(&self, headers: &HeaderMap, method: &Method) -> Result<()> {
        self.check_name(headers, &[])?;
        self.check_site(headers, method)
    }

    /// Refuses names that we do not go by, and that are not below one of these domains.
    pub(crate) fn check_name(&self, headers: &HeaderMap, domains: &[&str]) -> Result<()> {
        let Some(host) = headers.get(header::HOST).map(|h| h.to_str().unwrap_or_default()) else { return Ok(()) };
        let name = host_name(host).trim_end_matches('.').to_ascii_lowercase();
        let below = |domain: &&str| {
            // Whoever serves on an odd port has it in the domain.
            let domain = host_name(domain).to_ascii_lowercase();
            name.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
        };
        if self.goes_by(host) || domains.iter().any(below) {
            return Ok(());
        }
        Err(Refusal::denied(format!("this fleet does not go by the name `{}`", host.escape_default()))
            .hint("use `localhost` or an IP address, send a key, or add the name to the setting `names`"))
    }

    /// Refuses requests that a page of another site makes.
    pub(crate) fn check_site(&self, headers: &HeaderMap, method: &Method) -> Result<()> {
        let host = headers.get(header::HOST).map(|h| h.to_str().unwrap_or_default());
        let foreign = || {
            Refusal::denied("a web page of another site can't use this fleet without a key")
                .hint("add the site to the setting `origins`")
        };
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let site = origin.split_once("://").map(|(_, site)| site);
            let own = site.is_some() && site.map(str::to_ascii_lowercase) == host.map(str::to_ascii_lowercase);
            if !own && !self.trusts(origin) {
                return Err(foreign());
            }
        } else if let Some(site) = headers.get("sec-fetch-site") {
            // A link that a person follows to us is harmless: GET changes nothing, and the page can't read the answer.
            let followed_link = (method == Method::GET || method == Method::HEAD)
                && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
                && headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document");
            if site != "same-origin" && site != "none" && !followed_link {
                return Err(foreign());
            }
        }
        Ok(())
    }

    /// The origin of a request, if its pages may read our answers.
    pub(crate) fn trusted(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        headers.get(header::ORIGIN).filter(|origin| origin.to_str().is_ok_and(|o| self.trusts(o))).cloned()
    }

    fn trusts(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// Names that no page of the web can be reached by: addresses, names of one word (machines and
    /// containers of the own network; a public name has a dot), and those of the settings.
    fn goes_by(&self, host: &str) -> bool {
        let name = host_name(host).trim_end_matches('.').to_ascii_lowercase();
        (!name.is_empty() && !name.contains('.'))
            || name.ends_with(".localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(&name))
    }
}

/// Without the port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Whether a browser asks before it lets a page of another site ask. It carries no key, and nothing is done.
pub(crate) fn asks_first(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Everything that was asked for.
pub(crate) fn permission(asked: &HeaderMap) -> Response {
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

/// Lets pages of this origin read the answer.
pub(crate) fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_for_programs_and_own_pages() {
        let pages = Pages::new(vec!["desk.lan:7700".into()], vec!["https://board.example/".into()]);
        for (method, headers, good) in [
            ("GET", vec![], true),
            ("POST", vec![("host", "127.0.0.1:7700")], true),
            ("POST", vec![("host", "LOCALHOST.:7700")], true),
            ("POST", vec![("host", "a.localhost")], true),
            ("POST", vec![("host", "[::1]:7700")], true),
            ("POST", vec![("host", "desk.lan:7700")], true),
            ("POST", vec![("host", "evil.example:7700")], false),
            ("POST", vec![("host", "localhost.evil.example")], false),
            ("POST", vec![("host", "127.0.0.1.evil.example")], false),
            ("POST", vec![("host", "localhost:7700"), ("origin", "http://localhost:7700")], true),
            ("POST", vec![("host", "localhost:7700"), ("origin", "http://localhost:3000")], false),
            ("POST", vec![("host", "localhost:7700"), ("origin", "null")], false),
            ("POST", vec![("host", "localhost:7700"), ("origin", "https://board.example")], true),
            ("POST", vec![("origin", "http://x")], false),
            ("GET", vec![("sec-fetch-site", "cross-site")], false),
            ("GET", vec![("sec-fetch-site", "none")], true),
            ("GET", vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")], true),
            (
                "POST",
                vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")],
                false,
            ),
        ] {
            let map: HeaderMap = headers.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
            assert_eq!(pages.check(&map, &method.parse().unwrap()).is_ok(), good, "{method} {headers:?}");
        }
    }

    #[test]
    fn names_below_a_domain_are_ours_whatever_its_port() {
        let pages = Pages::new(Vec::new(), Vec::new());
        for (host, good) in [
            ("8000-iabc.desks.test", true),
            ("8000-IABC.Desks.Test:7700", true),
            ("desks.test.evil.example", false),
            ("evildesks.test", false),
            ("evil.example:7700", false),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            for domain in ["desks.test", "desks.test:7700"] {
                assert_eq!(pages.check_name(&headers, &[domain]).is_ok(), good, "{host} below {domain}");
            }
        }
    }
}
