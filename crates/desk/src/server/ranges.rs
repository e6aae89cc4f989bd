//! A file as an answer: whole, in part, or not at all because the client has it.

use crate::error::Result;
use crate::files::read::Opened;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use std::time::{Duration, SystemTime};

/// What to send of a file.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// First and last byte.
    Range(u64, u64),
    Unsatisfiable,
}

/// Answers with an open file, minding `Range`, `If-Range`, `If-None-Match` and `If-Modified-Since`.
pub async fn respond(file: Opened, headers: &HeaderMap, content_type: &str) -> Result<Response> {
    let (size, etag, modified) = (file.size, file.etag.clone(), file.modified);
    let mut response = if is_known(headers, &etag, modified) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match wanted(headers, &etag, modified, size) {
            Part::Whole => {
                if size == 0 {
                    seemingly_empty(file).await?
                } else {
                    let mut response = Body::from_stream(file.stream(0, size).await?).into_response();
                    response.headers_mut().insert(header::CONTENT_LENGTH, size.into());
                    response
                }
            }
            Part::Range(first, last) => {
                let length = last - first + 1;
                let mut response = Body::from_stream(file.stream(first, length).await?).into_response();
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_LENGTH, length.into());
                insert(headers, header::CONTENT_RANGE, &format!("bytes {first}-{last}/{size}"));
                response
            }
            Part::Unsatisfiable => {
                let problem = hotdesk_api::Problem {
                    code: "range".into(),
                    status: 416,
                    title: "The file has no such bytes".into(),
                    detail: format!("the file has {size} bytes"),
                    hint: None,
                    retry: false,
                };
                let mut response = super::problems::response(&problem);
                insert(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
                return Ok(response);
            }
        }
    };
    let headers = response.headers_mut();
    insert(headers, header::CONTENT_TYPE, content_type);
    insert(headers, header::ETAG, &etag);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A file is data, whatever its name says: a browser must not run it as a page of ours.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    if let Some(modified) = modified {
        insert(headers, header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    }
    Ok(response)
}

/// Files of /proc say that they are empty and are not.
async fn seemingly_empty(file: Opened) -> Result<Response> {
    let mut pieces = Box::pin(file.stream(0, u64::MAX).await?);
    Ok(match pieces.next().await {
        None => Body::empty().into_response(),
        Some(first) => Body::from_stream(stream::iter([first]).chain(pieces)).into_response(),
    })
}

fn insert(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn is_known(headers: &HeaderMap, etag: &str, modified: Option<SystemTime>) -> bool {
    if let Some(known) = text(headers, header::IF_NONE_MATCH) {
        return known.split(',').any(|tag| matches!(tag.trim(), "*") || tag.trim().trim_start_matches("W/") == etag);
    }
    let since = text(headers, header::IF_MODIFIED_SINCE).and_then(|date| httpdate::parse_http_date(date).ok());
    since.zip(modified).is_some_and(|(since, modified)| seconds(modified) <= seconds(since))
}

fn wanted(headers: &HeaderMap, etag: &str, modified: Option<SystemTime>, size: u64) -> Part {
    let Some(range) = text(headers, header::RANGE) else { return Part::Whole };
    if let Some(condition) = text(headers, header::IF_RANGE) {
        let date = httpdate::parse_http_date(condition).ok();
        let same = condition == etag || date.zip(modified).is_some_and(|(date, modified)| seconds(date) == seconds(modified));
        if !same {
            return Part::Whole;
        }
    }
    parse(range, size)
}

/// One range; several are answered whole, which is always allowed.
fn parse(text: &str, size: u64) -> Part {
    let Some((first, last)) = text.trim().strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Part::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    match (number(first), number(last)) {
        (None, Some(count)) if first.is_empty() => match count.min(size) {
            0 => Part::Unsatisfiable,
            count => Part::Range(size - count, size - 1),
        },
        (Some(first), _) if first >= size && (last.is_empty() || number(last).is_some()) => Part::Unsatisfiable,
        (Some(first), None) if last.is_empty() => Part::Range(first, size - 1),
        (Some(first), Some(last)) if first <= last => Part::Range(first, last.min(size - 1)),
        _ => Part::Whole,
    }
}

/// HTTP dates have no fractions.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/ranges.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, size, part) in [
            ("bytes=0-0", 10, Part::Range(0, 0)),
            ("bytes=2-5", 10, Part::Range(2, 5)),
            ("bytes=2-", 10, Part::Range(2, 9)),
            ("bytes=-3", 10, Part::Range(7, 9)),
            ("bytes=-30", 10, Part::Range(0, 9)),
            ("bytes=5-99999999999", 10, Part::Range(5, 9)),
            ("bytes=10-", 10, Part::Unsatisfiable),
            ("bytes=10-12", 10, Part::Unsatisfiable),
            ("bytes=-0", 10, Part::Unsatisfiable),
            ("bytes=0-", 0, Part::Unsatisfiable),
            ("bytes=5-2", 10, Part::Whole),
            ("bytes=0-1,3-4", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("bytes=x-y", 10, Part::Whole),
            ("lines=1-2", 10, Part::Whole),
            ("bytes=99999999999999999999999-", 10, Part::Whole),
        ] {
            assert_eq!(parse(text, size), part, "{text}");
        }
    }

    #[test]
    fn conditions_are_minded() {
        let now = SystemTime::now();
        let old = httpdate::fmt_http_date(now - Duration::from_secs(100));
        let fresh = httpdate::fmt_http_date(now);
        let map = |name: &'static str, value: &str| HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        assert!(is_known(&map("if-none-match", "\"a\", W/\"b\""), "\"b\"", Some(now)));
        assert!(is_known(&map("if-none-match", "*"), "\"b\"", Some(now)));
        assert!(!is_known(&map("if-none-match", "\"a\""), "\"b\"", Some(now)));
        assert!(is_known(&map("if-modified-since", &fresh), "\"b\"", Some(now)));
        assert!(!is_known(&map("if-modified-since", &old), "\"b\"", Some(now)));
        let mut with_range = map("range", "bytes=1-2");
        assert_eq!(wanted(&with_range, "\"b\"", Some(now), 9), Part::Range(1, 2));
        with_range.insert("if-range", "\"other\"".parse().unwrap());
        assert_eq!(wanted(&with_range, "\"b\"", Some(now), 9), Part::Whole);
    }
}
