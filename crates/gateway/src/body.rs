//! What requests bring: JSON bodies and parameters, bounded and checked, each mistake a problem with its reason.

use crate::limits::{JSON_BODY, announces_more};
use crate::refusal::{Refusal, Result};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A JSON body.
pub(crate) struct Input<T>(pub(crate) T);

/// A JSON body that may be left out.
pub(crate) struct InputOrDefault<T>(pub(crate) T);

/// The parameters behind the question mark.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Input<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.into_parts();
        check_type(&parts.headers)?;
        Ok(Self(parse(&read(body).await?)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for InputOrDefault<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let bytes = read(body).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_type(&parts.headers)?;
        Ok(Self(parse::<Option<T>>(&bytes)?.unwrap_or_default()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Query::<T>::try_from_uri(&parts.uri).map(|Query(value)| Self(value)).map_err(|e| Refusal::invalid(e.body_text()))
    }
}

fn check_type(headers: &HeaderMap) -> Result<()> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let detail = match kind.as_str() {
        "" => "the request does not say what its body is".to_owned(),
        kind => format!("the body is `{}`", kind.escape_default()),
    };
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body has the wrong type", detail)
        .hint("send JSON, with `Content-Type: application/json`"))
}

async fn read(body: axum::body::Body) -> Result<Bytes> {
    let too_large = || {
        let detail = format!("the body is larger than {} KiB", JSON_BODY >> 10);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "Too large", detail)
    };
    if announces_more(&body, JSON_BODY) {
        return Err(too_large());
    }
    let limited = http_body_util::Limited::new(body, JSON_BODY);
    match http_body_util::BodyExt::collect(limited).await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(e) if e.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(e) => Err(Refusal::invalid(format!("the body did not come whole: {e}"))),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let wrong =
        |e: serde_json::Error| Refusal::invalid(format!("the body is not what it should be: {e}")).hint("see `/v1/openapi.json`");
    let value = hotdesk_api::json::from_slice(bytes).map_err(wrong)?;
    // Looked at closely only where there may be one.
    if bytes.windows(ZERO.len()).any(|window| window == ZERO) && has_zero(&serde_json::from_slice(bytes).map_err(wrong)?) {
        return Err(Refusal::invalid("a text in the body holds a zero byte"));
    }
    Ok(value)
}

/// How JSON writes a zero byte. Neither PostgreSQL nor an environment can hold one.
const ZERO: &[u8] = br"\u0000";

fn has_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(has_zero),
        Value::Object(map) => map.iter().any(|(name, value)| name.contains('\0') || has_zero(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use hotdesk_api::calls::NewSnapshot;

    async fn post(kind: Option<&str>, body: impl Into<Body>) -> u16 {
        let mut request = Request::post("/");
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        match Input::<NewSnapshot>::from_request(request.body(body.into()).unwrap(), &()).await {
            Ok(_) => 200,
            Err(refusal) => refusal.problem.status,
        }
    }

    #[tokio::test]
    async fn each_mistake_has_its_status() {
        let json = Some("application/json");
        assert_eq!(post(json, r#"{"name": "a"}"#).await, 200);
        assert_eq!(post(Some("application/json; charset=utf-8"), "{}").await, 200);
        assert_eq!(post(Some("application/merge-patch+json"), "{}").await, 200);
        assert_eq!(post(None, "{}").await, 415);
        assert_eq!(post(Some("text/plain"), "{}").await, 415);
        assert_eq!(post(Some("application/jsonx"), "{}").await, 415);
        assert_eq!(post(json, "").await, 400);
        assert_eq!(post(json, "{").await, 400);
        assert_eq!(post(json, "{} {}").await, 400);
        assert_eq!(post(json, r#"{"nmae": "a"}"#).await, 400);
        assert_eq!(post(json, r#"{"name": 1}"#).await, 400);
        assert_eq!(post(json, r#"["name", true]"#).await, 400);
        assert_eq!(post(json, r#"{"name": "a\u0000b"}"#).await, 400);
        assert_eq!(post(json, r#"{"name": "a\\u0000b"}"#).await, 200, "a backslash and five letters");
        assert_eq!(post(json, "[".repeat(100_000)).await, 400);
        assert_eq!(post(json, vec![b' '; JSON_BODY + 1]).await, 413);
        let empty = Request::post("/").body(Body::empty()).unwrap();
        assert!(InputOrDefault::<NewSnapshot>::from_request(empty, &()).await.is_ok());
    }
}
