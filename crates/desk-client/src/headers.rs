//! The headers of a request to a desk's server.

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Where an action came in, for the desk's traces.
pub const ENTRANCE: HeaderName = HeaderName::from_static("x-hotdesk-entrance");
/// Where the desk's server takes its token from when somebody on the way reads `Authorization`.
pub const TOKEN: HeaderName = HeaderName::from_static("x-hotdesk-token");
/// Who asked, and how.
pub const FORWARDED: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix", "x-real-ip"];

/// Opens a desk that is reached directly.
pub fn open(headers: &mut HeaderMap, secret: Option<&str>) {
    headers.insert(HOST, HeaderValue::from_static("desk"));
    if let Some(secret) = secret {
        hide(headers, AUTHORIZATION, &format!("Bearer {secret}"));
    }
}

/// Opens a desk behind a vendor's edge, which wants headers of its own.
pub fn open_behind_edge<'a>(
    headers: &mut HeaderMap,
    host: &'a str,
    secret: &str,
    edge: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    // The edge takes these for its own.
    for name in FORWARDED {
        headers.remove(name);
    }
    // And this for a key to itself.
    headers.remove(AUTHORIZATION);
    hide(headers, TOKEN, secret);
    put(headers, [("host", host)].into_iter().chain(edge));
}

/// Writes what an edge asks for.
pub fn put<'a>(headers: &mut HeaderMap, given: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, value) in given {
        if let Ok(name) = HeaderName::try_from(name) {
            hide(headers, name, value);
        }
    }
}

/// A header whose value is never shown in logs.
fn hide(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(mut value) = HeaderValue::from_str(text) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_open_a_desk_near_and_far() {
        let mut near = HeaderMap::new();
        near.insert("x-forwarded-host", HeaderValue::from_static("h"));
        let mut far = near.clone();
        open(&mut near, Some("s"));
        assert_eq!((&near[HOST], &near[AUTHORIZATION], near.len()), (&"desk".parse().unwrap(), &"Bearer s".parse().unwrap(), 3));
        assert!(near[AUTHORIZATION].is_sensitive());
        far.insert(AUTHORIZATION, HeaderValue::from_static("Bearer key of a client"));
        open_behind_edge(&mut far, "a.example", "s", [("x-edge", "e")]);
        let told = (&far[HOST], &far[TOKEN], &far["x-edge"], far.len());
        assert_eq!(told, (&"a.example".parse().unwrap(), &"s".parse().unwrap(), &"e".parse().unwrap(), 3));
        assert!(far["x-edge"].is_sensitive() && far[TOKEN].is_sensitive());
    }
}
