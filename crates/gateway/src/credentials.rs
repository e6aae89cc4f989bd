//! The key of a request: found, taken out of the request, so that neither a desk nor a log ever sees it.
//!
//! | where                          | for                                            |
//! |--------------------------------|------------------------------------------------|
//! | path prefix `/k/KEY/…`         | clients that know nothing but a base URL       |
//! | `X-API-Key: KEY`               |                                                |
//! | `Authorization: Bearer KEY`    | everybody else                                 |
//! | `?key=KEY`                     | browsers, which send no headers on a WebSocket |

use crate::dialects;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::fmt;

/// How every secret of a key begins.
const SECRET_PREFIX: &str = "hd_";
/// Keys, and tokens of previews.
const SECRETS: [&str; 2] = [SECRET_PREFIX, "hdp_"];
const PATH_PREFIX: &str = "/k/";
const API_KEY: &str = "x-api-key";
const IN_QUERY: &str = "key";

/// The secret of a key. It is never shown by `Debug`, so that it can't slip into a log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(secret: String) -> Self {
        Self(secret)
    }

    /// Of a caller that showed something else than a key.
    pub(crate) fn none() -> Self {
        Self(String::new())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A path as it may be written down: a secret that stands where none belongs is left out.
pub(crate) fn redacted(path: &str) -> Cow<'_, str> {
    let secret = |text: &str| SECRETS.iter().any(|begin| text.contains(begin));
    if !secret(path) {
        return path.into();
    }
    let part = |part| if secret(part) { "hd_…" } else { part };
    path.split('/').map(part).collect::<Vec<_>>().join("/").into()
}

/// Where the key was, which decides how addresses look that we hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Header,
    /// In the address: whoever follows an address of ours needs it there again.
    Address,
}

/// Takes the key out of the path, where it stands before everything else.
pub(crate) fn take_prefix(request: &mut Request) -> Option<String> {
    let (key, uri) = from_path(request.uri())?;
    *request.uri_mut() = uri;
    Some(key)
}

/// Takes the key out of the rest of a request. What is left holds no secret of ours.
pub(crate) fn take(request: &mut Request, prefix: Option<String>) -> Option<(Secret, Place)> {
    let headers = request.headers();
    let own = headers.get_all(API_KEY).iter().filter_map(text).map(|own| dialects::key(&own).unwrap_or(own));
    let bearers = headers.get_all(header::AUTHORIZATION).iter().filter_map(bearer);
    let mut candidates: Vec<_> = prefix.map(|key| (key, Place::Address)).into_iter().collect();
    candidates.extend(own.chain(bearers).map(|key| (key, Place::Header)));
    candidates.extend(from_query(request.uri()).map(|key| (key, Place::Address)));
    // Programs in desks have keys of their own; one that looks like ours is meant for us.
    candidates.sort_by_key(|(key, _)| !key.starts_with(SECRET_PREFIX));
    let found = candidates.into_iter().next();

    // What was not used and does not look like a key of ours belongs to a program in the desk.
    let used = found.as_ref().map(|(key, _)| key.as_str());
    let ours = |value: &str| Some(value) == used || value.starts_with(SECRET_PREFIX);
    let headers = request.headers_mut();
    let is_key = |value: &HeaderValue| text(value).is_some_and(|own| ours(&own) || dialects::key(&own).is_some());
    drop_values(headers, HeaderName::from_static(API_KEY), is_key);
    drop_values(headers, header::AUTHORIZATION, |value| bearer(value).is_some_and(|key| ours(&key)));
    if from_query(request.uri()).any(|key| ours(&key))
        && let Some(uri) = without_key(request.uri(), |key| ours(&decoded(key)))
    {
        *request.uri_mut() = uri;
    }
    clean_cookies(request.headers_mut(), used);
    // The page that a request came from has the key in its address, where it was opened by one.
    request.headers_mut().remove(header::REFERER);
    found.map(|(key, place)| (Secret(key), place))
}

/// Takes keys of ours out of a request that needs none. A client may send them with everything, and what it asks for is a program in a
/// desk that must not see them; what else looks like a key is that program's.
pub(crate) fn hide(request: &mut Request) {
    let ours = |key: &str| key.starts_with(SECRET_PREFIX) || dialects::key(key).is_some();
    let headers = request.headers_mut();
    drop_values(headers, HeaderName::from_static(API_KEY), |value| text(value).is_some_and(|key| ours(&key)));
    drop_values(headers, header::AUTHORIZATION, |value| bearer(value).is_some_and(|key| ours(&key)));
    if from_query(request.uri()).any(|key| ours(&key))
        && let Some(uri) = without_key(request.uri(), |key| ours(&decoded(key)))
    {
        *request.uri_mut() = uri;
    }
    if request.headers().get(header::REFERER).and_then(text).is_some_and(|page| SECRETS.iter().any(|begin| page.contains(begin)))
    {
        request.headers_mut().remove(header::REFERER);
    }
    clean_cookies(request.headers_mut(), None);
}

/// Takes those values of a header out that are ours: a client may send it twice.
fn drop_values(headers: &mut HeaderMap, name: HeaderName, ours: impl Fn(&HeaderValue) -> bool) {
    if headers.get_all(&name).iter().any(&ours) {
        let kept: Vec<HeaderValue> = headers.get_all(&name).iter().filter(|value| !ours(value)).cloned().collect();
        headers.remove(&name);
        for value in kept {
            headers.append(&name, value);
        }
    }
}

fn text(value: &HeaderValue) -> Option<String> {
    value.to_str().ok().map(|v| v.trim().to_owned()).filter(|v| !v.is_empty())
}

fn bearer(value: &HeaderValue) -> Option<String> {
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !key.trim().is_empty()).then(|| key.trim().to_owned())
}

/// The key of `/k/KEY/rest`, and the address without it.
fn from_path(uri: &Uri) -> Option<(String, Uri)> {
    let after = uri.path().strip_prefix(PATH_PREFIX)?;
    let (key, rest) = after.split_at(after.find('/').unwrap_or(after.len()));
    if key.is_empty() {
        return None;
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    let uri = match uri.query() {
        Some(query) => format!("{rest}?{query}").parse(),
        None => rest.parse(),
    };
    Some((decoded(key), uri.ok()?))
}

fn from_query(uri: &Uri) -> impl Iterator<Item = String> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == IN_QUERY).map(|(_, key)| decoded(key)).filter(|key| !key.is_empty())
}

/// Takes the parameter `key` out whatever it holds: where no program of a desk is asked, it can be meant for us alone.
pub(crate) fn strip_query(request: &mut Request) {
    if let Some(uri) = without_key(request.uri(), |_| true) {
        *request.uri_mut() = uri;
    }
}

fn without_key(uri: &Uri, ours: impl Fn(&str) -> bool) -> Option<Uri> {
    let is_key = |pair: &&str| {
        let (name, key) = pair.split_once('=').unwrap_or((pair, ""));
        name == IN_QUERY && ours(key)
    };
    let rest: Vec<_> = uri.query()?.split('&').filter(|pair| !is_key(pair)).collect();
    let path = uri.path();
    if rest.is_empty() { path.parse() } else { format!("{path}?{}", rest.join("&")).parse() }.ok()
}

/// Cookies are for programs in desks; those that hold a key of ours are not.
fn clean_cookies(headers: &mut HeaderMap, used: Option<&str>) {
    let holds_key = |cookie: &&str| {
        let value = cookie.split_once('=').map_or("", |(_, value)| value.trim());
        value.starts_with(SECRET_PREFIX) || (!value.is_empty() && Some(value) == used)
    };
    let lines: Vec<String> = headers.get_all(header::COOKIE).iter().filter_map(text).collect();
    if !lines.iter().any(|line| line.split(';').any(|cookie| holds_key(&cookie))) {
        return;
    }
    let kept: Vec<&str> = lines.iter().flat_map(|line| line.split(';')).map(str::trim).filter(|c| !holds_key(c)).collect();
    headers.remove(header::COOKIE);
    if !kept.is_empty()
        && let Ok(value) = HeaderValue::try_from(kept.join("; "))
    {
        headers.insert(header::COOKIE, value);
    }
}

/// Percent signs resolved; a key has none, but a client may write them all the same.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/src/address.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn take_from(uri: &str, headers: &[(&str, &str)]) -> (Option<(String, Place)>, Request) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let prefix = take_prefix(&mut request);
        let found = take(&mut request, prefix).map(|(secret, place)| (secret.reveal().to_owned(), place));
        (found, request)
    }

    #[test]
    fn a_key_is_found_in_each_place_and_taken_out() {
        for (uri, headers, key, place, left) in [
            ("/x", vec![("authorization", "Bearer k1")], "k1", Place::Header, "/x"),
            ("/x", vec![("authorization", "bearer  k1 ")], "k1", Place::Header, "/x"),
            ("/x?a=1", vec![("x-api-key", "k1")], "k1", Place::Header, "/x?a=1"),
            ("/x?key=k1", vec![], "k1", Place::Address, "/x"),
            ("/x?a=1&key=k%31&b=%20", vec![], "k1", Place::Address, "/x?a=1&b=%20"),
            ("/k/k1/x?a=1", vec![], "k1", Place::Address, "/x?a=1"),
            ("/k/k1", vec![], "k1", Place::Address, "/"),
            ("/k/hd_1/x", vec![("authorization", "Bearer hd_other")], "hd_1", Place::Address, "/x"),
            ("/k/k1/x?key=k1", vec![], "k1", Place::Address, "/x"),
        ] {
            let (found, request) = take_from(uri, &headers);
            assert_eq!(found, Some((key.to_owned(), place)), "{uri} {headers:?}");
            assert_eq!(request.uri().to_string(), left);
            assert!(request.headers().is_empty(), "{:?}", request.headers());
        }
    }

    #[test]
    fn what_is_not_ours_stays() {
        let (found, request) = take_from("/k/k1/x?key=theirs", &[("authorization", "Basic abc"), ("x-api-key", "app")]);
        assert_eq!(found, Some(("k1".into(), Place::Address)));
        assert_eq!(request.uri(), "/x?key=theirs");
        assert_eq!(
            (&request.headers()["authorization"], &request.headers()["x-api-key"]),
            (&"Basic abc".parse().unwrap(), &"app".parse().unwrap())
        );
        let (found, request) = take_from("/x", &[("authorization", "Bearer hd_1"), ("x-api-key", "app")]);
        assert_eq!(found, Some(("hd_1".into(), Place::Header)));
        assert_eq!(request.headers()["x-api-key"], "app");
        for headers in [vec![], vec![("authorization", "Basic k1")], vec![("authorization", "Bearer")], vec![("x-api-key", "")]] {
            assert_eq!(take_from("/x?key=", &headers).0, None, "{headers:?}");
        }
    }

    #[test]
    fn guests_bring_no_keys_of_ours_to_programs() {
        let theirs = [("authorization", "Bearer app"), ("x-api-key", "app"), ("cookie", "a=1"), ("referer", "http://h/x")];
        let e2b = format!("e2b_{}", "0".repeat(64));
        let own = [("authorization", "Bearer hd_1"), ("x-api-key", &*e2b), ("cookie", "k=hd_1"), ("referer", "http://h/k/hd_1/")];
        for (headers, uri, kept, left) in [(theirs, "/x?key=app", 4, "/x?key=app"), (own, "/x?key=hd_1&a=1", 0, "/x?a=1")] {
            let mut request = Request::builder().uri(uri);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let mut request = request.body(Body::empty()).unwrap();
            hide(&mut request);
            assert_eq!((request.headers().len(), request.uri().to_string().as_str()), (kept, left), "{headers:?}");
        }
    }

    #[test]
    fn a_key_that_stands_second_is_ours_too() {
        let headers =
            [("authorization", "Basic abc"), ("authorization", "Bearer hd_1"), ("x-api-key", "app"), ("x-api-key", "hd_1")];
        let (found, request) = take_from("/x?key=theirs&key=hd_1", &headers);
        assert_eq!(found, Some(("hd_1".into(), Place::Header)));
        assert_eq!(request.uri(), "/x?key=theirs");
        let left = (&request.headers()["authorization"], &request.headers()["x-api-key"], request.headers().len());
        assert_eq!(left, (&"Basic abc".parse().unwrap(), &"app".parse().unwrap(), 2));
    }

    #[test]
    fn cookies_and_referrers_lose_keys() {
        let headers = [("cookie", "a=1; session=hd_secret; b=k1"), ("referer", "http://h/k/k1/x"), ("x-api-key", "k1")];
        let (_, request) = take_from("/x", &headers);
        assert_eq!(request.headers()["cookie"], "a=1");
        assert!(!request.headers().contains_key("referer"));
        let (_, request) = take_from("/x", &[("cookie", "k=k1"), ("x-api-key", "k1")]);
        assert!(!request.headers().contains_key("cookie"));
        assert_eq!(redacted("/v1/desks/a"), "/v1/desks/a");
        assert_eq!(redacted("/vm/hd_secret/x"), "/vm/hd_…/x");
        assert_eq!(redacted("/daytona/preview/hdp_abc_80_x/80/"), "/daytona/preview/hd_…/80/");
        assert_eq!(format!("{:?}", Secret("k1".into())), "Secret(…)");
    }
}
