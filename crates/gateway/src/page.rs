//! The dashboard, as it was built into this binary: a few files, the same for everybody, without a key. All that it shows it asks
//! of the API, in the session that a person signed in to.
//!
//! | address | is |
//! |---|---|
//! | `/`, `/desks/…`, `/fleet` | the page; it looks at the address by itself |
//! | `/assets/…` | scripts, styles and fonts, named by what is in them, so browsers keep them for ever |
//!
//! `make build` builds it before the binary. A binary that was built without it says so at `/`.

use crate::app::App;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::read::GzDecoder;
use rust_embed::{EmbeddedFile, RustEmbed};
use std::io::Read;

/// In a build for development the files are read from the disk, so that a change of the page needs no compiler.
#[derive(RustEmbed)]
#[folder = "../../dashboard/dist/page"]
#[allow_missing = true]
struct Files;

const INDEX: &str = "index.html";
const ICON: &str = "/favicon.svg";
const ASSETS: &str = "/assets/";
/// As the page is built; replaced where a proxy puts the fleet below a path.
const BASE: &str = r#"<base href="/" />"#;

/// Nothing from elsewhere, no scripts in the page, in nobody's frame. Styles may stand in the page, because the terminal writes its
/// colours there.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; \
    font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";
/// What is in a file is in its name.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// Asked again each time, and answered with 304.
const NOT_WITHOUT_ASKING: &str = "no-cache";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>hotdesk</title>\
    <body style=\"font: 16px/1.6 system-ui; max-width: 34em; margin: 20vh auto; padding: 0 1em\">\
    <h1 style=\"font-size: 1.2em\">This binary was built without the dashboard</h1>\
    <p><code>make build</code> builds both. The API is here all the same: \
    <a href=\"v1/openapi.json\">its description</a>.</p>";

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(index))
        .route("/fleet", get(index))
        .route("/desks/{*rest}", get(index))
        .route(ICON, get(asset))
        .route("/assets/{*name}", get(asset))
}

/// Whether a request is for the page, which needs no key.
pub(crate) fn owns(method: &Method, path: &str) -> bool {
    let page = path == "/" || path == "/fleet" || path == ICON || path.starts_with("/desks/") || path.starts_with(ASSETS);
    page && (method == Method::GET || method == Method::HEAD)
}

async fn index(State(app): State<App>, headers: HeaderMap) -> Response {
    let Some(file) = Found::of(INDEX) else {
        return secured((StatusCode::OK, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], NOT_BUILT).into_response());
    };
    let path = app.public.as_ref().map_or("", |public| public.path.as_str());
    if path.is_empty() {
        return secured(file.answer(&headers, NOT_WITHOUT_ASKING));
    }
    let text = String::from_utf8_lossy(&file.plain()).replace(BASE, &format!(r#"<base href="{}/" />"#, escaped(path)));
    secured(([(header::CONTENT_TYPE, file.kind), (header::CACHE_CONTROL, NOT_WITHOUT_ASKING)], text).into_response())
}

async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    let kept = if uri.path() == ICON { NOT_WITHOUT_ASKING } else { FOR_EVER };
    match Found::of(uri.path().trim_start_matches('/')) {
        Some(file) => secured(file.answer(&headers, kept)),
        None => crate::refusal::Refusal::not_found("the page has no such file").hint("load the page anew").into_response(),
    }
}

/// A file of the page.
struct Found {
    file: EmbeddedFile,
    packed: bool,
    kind: &'static str,
}

impl Found {
    /// What can be packed is kept packed alone.
    fn of(name: &str) -> Option<Self> {
        let kind = kind(name);
        let packed = Files::get(&format!("{name}.gz")).map(|file| Self { file, packed: true, kind });
        packed.or_else(|| Files::get(name).map(|file| Self { file, packed: false, kind }))
    }

    fn answer(self, asked: &HeaderMap, kept: &'static str) -> Response {
        let hash = &self.file.metadata.sha256_hash()[..12];
        let tag: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let tag = format!("\"{tag}\"");
        let known = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let known = known.flat_map(|value| value.split(',')).any(|one| one.trim().trim_start_matches("W/") == tag);
        let takes_packed = asked.get_all(header::ACCEPT_ENCODING).iter().any(|value| value.to_str().is_ok_and(accepts_gzip));
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else if self.packed && !takes_packed {
            Body::from(self.plain()).into_response()
        } else {
            Body::from(self.file.data.into_owned()).into_response()
        };
        let headers = response.headers_mut();
        if let Ok(tag) = HeaderValue::try_from(tag) {
            headers.insert(header::ETAG, tag);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        if self.packed {
            headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
            if takes_packed && !known {
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        response
    }

    fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        match self.packed {
            // It was packed by us; half a file would be seen by the page's test.
            true => drop(GzDecoder::new(&*self.file.data).read_to_end(&mut plain)),
            false => plain.extend_from_slice(&self.file.data),
        }
        plain
    }
}

fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A page of a desk that was opened from here gets no hold of this window.
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    response.extensions_mut().insert(crate::shield::OwnPage);
    response
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

fn accepts_gzip(value: &str) -> bool {
    value.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        (name == "gzip" || name == "*") && !parts.any(|weight| weight == "q=0" || weight == "q=0.0")
    })
}

/// Within an attribute.
fn escaped(path: &str) -> String {
    path.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_the_page_needs_no_key() {
        for path in ["/", "/fleet", "/desks/d-1", "/desks/d-1/traces/t", "/assets/a.js", "/favicon.svg"] {
            assert!(owns(&Method::GET, path) && owns(&Method::HEAD, path) && !owns(&Method::POST, path), "{path}");
        }
        for path in ["/v1/desks", "/desks", "/metrics", "/fleet/x", "/v1/fleet", "/vm/create", "/mcp", "//"] {
            assert!(!owns(&Method::GET, path), "{path}");
        }
    }

    #[test]
    fn packed_files_are_for_those_who_take_them() {
        for (value, takes) in
            [("gzip", true), ("br, gzip;q=0.5", true), ("*", true), ("br", false), ("gzip;q=0", false), ("", false)]
        {
            assert_eq!(accepts_gzip(value), takes, "{value}");
        }
    }

    #[test]
    fn paths_of_proxies_stay_within_the_attribute() {
        assert_eq!(escaped(r#"/a"><script>&"#), "/a&quot;>&lt;script>&amp;");
    }
}
