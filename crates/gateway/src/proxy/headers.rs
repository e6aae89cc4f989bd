//! Headers on their way through: what belongs to one hop stays behind, and so does what is none of the other side's business.

use super::Passage;
use crate::{dialects, session};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use hotdesk_desk_client::headers::FORWARDED;

/// About one connection, not about the message.
const HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const HOP_NAMES: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];

/// Removes what belongs to one hop, also what `Connection` names.
fn strip_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(name);
    }
    for name in HOP_NAMES {
        headers.remove(name);
    }
}

/// Makes a client's headers fit for a desk. The client's key is gone since the entrance.
pub(super) fn to_desk(headers: &mut HeaderMap, passage: &Passage) {
    strip_hop(headers);
    // We answer that by ourselves, when the desk begins to read.
    headers.remove(header::EXPECT);
    for name in FORWARDED {
        headers.remove(name);
    }
    let peer = &passage.caller.peer;
    insert(headers, "x-forwarded-for", &peer.to_string());
    insert(headers, "x-forwarded-proto", if peer.tls { "https" } else { "http" });
    if let Some(host) = &passage.caller.host {
        insert(headers, "x-forwarded-host", host);
    }
    match passage.target.port {
        None => {
            passage.door.dress(headers);
            // The desk's server knows no cookies, and we have answered for the page.
            for name in [header::COOKIE, header::ORIGIN] {
                headers.remove(name);
            }
        }
        Some(port) => {
            // What listens on a loopback port expects a caller on loopback: Chrome refuses other names, and every origin that
            // it was not told of.
            insert(headers, "host", &format!("localhost:{port}"));
            headers.remove(header::ORIGIN);
        }
    }
}

/// Makes a desk's headers fit for a client.
pub(super) fn from_desk(headers: &mut HeaderMap, passage: &Passage) {
    strip_hop(headers);
    // Addresses may hold a key; they are not told to other sites.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    let Some(port) = passage.target.port else {
        // The desk's server has none, and whoever answers in its place sets none for our origin.
        headers.remove(header::SET_COOKIE);
        return;
    };
    let base = super::cdp::Base::of(passage, port);
    if let Some(place) = headers.get(header::LOCATION).and_then(|l| l.to_str().ok())
        && let Some(place) = base.location(place).and_then(|l| HeaderValue::try_from(l).ok())
    {
        headers.insert(header::LOCATION, place);
    }
    let cookies: Vec<HeaderValue> = headers
        .get_all(header::SET_COOKIE)
        .iter()
        .filter_map(|cookie| cookie.to_str().ok())
        .filter(|cookie| !is_ours(cookie))
        .filter_map(|cookie| HeaderValue::try_from(base.cookie(cookie)).ok())
        .collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
}

/// Whether a cookie has the name of one by which the gateway knows somebody.
fn is_ours(cookie: &str) -> bool {
    let name = cookie.split(['=', ';']).next().unwrap_or_default();
    session::is_cookie(name) || dialects::is_cookie(name.trim())
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_one_hop_stays_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Mine"),
            ("connection", "close"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "x"),
            ("content-type", "text/plain"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["content-type"]);
    }
}
