//! Any address and headers: somebody answers for the request, and no key of ours goes on with it.
//!
//! The first line is the address, each further line a header.

use super::{API_KEY, IN_QUERY, SECRET_PREFIX, bearer, decoded, redacted, strip_query, take, take_prefix};
use crate::{dialects, origin::Pages, proxy::Target};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, header};

pub(crate) fn run(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let Some(Ok(uri)) = lines.next().map(axum::http::Uri::try_from) else { return };
    let mut request = Request::builder().uri(uri).body(Body::empty()).unwrap();
    for line in lines.take(50) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&line[colon + 1..])) {
            request.headers_mut().append(name, value);
        }
    }
    let written = redacted(request.uri().path()).into_owned();
    assert!(!written.replace("hd_…", "").contains(SECRET_PREFIX), "{written}");
    let pages = Pages::new(vec!["desk.lan".into()], Vec::new());
    let _ = pages.check(request.headers(), &Method::POST);

    // As the entrance does it.
    let prefix = take_prefix(&mut request);
    if dialects::by_headers(&mut request).is_none() {
        dialects::by_address(&mut request);
    }
    let key = take(&mut request, prefix);
    assert!(key.is_none_or(|(secret, _)| !secret.reveal().is_empty()));
    let ours = |text: &str| text.starts_with(SECRET_PREFIX);
    let headers = request.headers();
    for value in headers.get_all(API_KEY).iter().filter_map(|value| value.to_str().ok()) {
        assert!(!ours(value.trim()), "{value}");
    }
    assert!(!headers.get_all(header::AUTHORIZATION).iter().filter_map(bearer).any(|key| ours(&key)), "{headers:?}");
    for cookie in
        headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'))
    {
        assert!(!cookie.split_once('=').is_some_and(|(_, value)| ours(value.trim())), "{cookie}");
    }
    let pairs = request.uri().query().unwrap_or_default().split('&');
    assert!(!pairs.filter_map(|pair| pair.split_once('=')).any(|(name, value)| name == IN_QUERY && ours(&decoded(value))));

    if let Ok((desk, target)) = Target::read(request.uri().path(), request.uri().query()) {
        assert!(!desk.contains('\0') && target.path.starts_with('/') && target.port != Some(0));
        let path = target.path.split('?').next().unwrap_or_default();
        assert!(target.port.is_some() || !["/v1/freeze", "/v1/thaw"].contains(&path), "{path}");
    }
    strip_query(&mut request);
}
