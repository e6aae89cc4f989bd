//! The Connect protocol as E2B's SDKs speak it: JSON, not compressed; streams are envelopes of one byte of flags, four bytes of length
//! and the message.

use super::fault::{Code, Fault, Result};
use crate::limits;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::Stream;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// The largest message: a piece of input, or a command with its environment.
const LARGEST: usize = 16 << 20;
/// The end of a stream.
const END: u8 = 2;
const COMPRESSED: u8 = 1;
const STREAM: &str = "application/connect+json";
/// Longer than any sandbox lives.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The message of a call with one.
pub(super) async fn message<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/proto")
        || kind.starts_with("application/connect+proto")
        || kind.starts_with("application/grpc")
    {
        return Err(Fault::new(
            Code::Unimplemented,
            "calls are understood in JSON: `application/json` or `application/connect+json`",
        ));
    }
    if kind.starts_with(STREAM) {
        let mut messages = Envelopes::new(body);
        let message = messages.next().await?.ok_or_else(|| Fault::bad("the call has no message"))?;
        // Heard out, so that the connection can be used again.
        if messages.next().await?.is_some() {
            return Err(Fault::bad("the call has more than one message"));
        }
        return read(&message);
    }
    let wrong = || Fault::bad(format!("a message is at most {LARGEST} bytes and must come whole"));
    if limits::announces_more(&body, LARGEST) {
        return Err(wrong());
    }
    let body = Limited::new(body, LARGEST).collect().await.map_err(|_| wrong())?.to_bytes();
    if body.is_empty() { read(b"{}") } else { read(&body) }
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    hotdesk_api::json::from_slice(text).map_err(|e| Fault::bad(format!("the message can't be understood: {e}")))
}

/// Messages of a stream as they come.
pub(super) struct Envelopes {
    body: Body,
    held: BytesMut,
}

impl Envelopes {
    pub(super) fn new(body: Body) -> Self {
        Self { body, held: BytesMut::new() }
    }

    pub(super) async fn next_as<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.next().await?.map(|message| read(&message)).transpose()
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.held.len() >= 5 {
                let (flags, length) =
                    (self.held[0], u32::from_be_bytes([self.held[1], self.held[2], self.held[3], self.held[4]]));
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if flags & COMPRESSED != 0 {
                    return Err(Fault::new(Code::Unimplemented, "messages must not be compressed"));
                }
                if length > LARGEST {
                    return Err(Fault::new(Code::ResourceExhausted, format!("a message is at most {LARGEST} bytes")));
                }
                if flags & END != 0 {
                    return Ok(None);
                }
                if self.held.len() >= 5 + length {
                    self.held.advance(5);
                    return Ok(Some(self.held.split_to(length).freeze()));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.held.extend_from_slice(&piece);
                    }
                }
                Some(Err(e)) => return Err(Fault::bad(format!("the messages broke off: {e}"))),
                None if self.held.is_empty() => return Ok(None),
                None => return Err(Fault::bad("the last message is not whole")),
            }
        }
    }
}

/// How long the call may take, as its client says.
pub(super) fn limit(headers: &HeaderMap) -> Result<Option<Duration>> {
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let ms = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    let ms = ms.ok_or_else(|| Fault::bad("the header Connect-Timeout-Ms is no number"))?;
    // Zero is no time, and a client that wants no limit leaves the header out.
    Ok(Some(Duration::from_millis(ms)).filter(|limit| *limit < LONGEST))
}

/// The user that a call is for: the name in `Authorization: Basic`.
pub(super) fn user(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let wrong = || Fault::unauthenticated("the header Authorization names no user");
    let Some(code) = value.to_str().ok().and_then(|text| text.strip_prefix("Basic ")) else { return Err(wrong()) };
    let pair = STANDARD.decode(code.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong)?;
    let name = pair.split(':').next().unwrap_or_default();
    Ok(Some(name.to_owned()).filter(|name| !name.is_empty()))
}

/// The answer to a call with one.
pub(super) fn reply(outcome: Result<Value>) -> Response {
    match outcome {
        Ok(value) => Json(value).into_response(),
        Err(fault) => fault.into_response_of_connect(),
    }
}

/// An answer that is a stream of envelopes.
pub(super) fn stream(envelopes: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(envelopes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    response
}

/// The answer to a call for a stream that does not begin. By Connect's rules its status is 200 and the error is the stream's end;
/// some clients read nothing else.
pub(super) fn refused_stream(fault: Fault) -> Response {
    match fault.code {
        // Not from the sandbox itself.
        Code::Gone => fault.into_response_of_connect(),
        _ => stream(futures_util::stream::iter([Ok(end(Some(&fault)))])),
    }
}

/// The answer to a stream of messages: one message.
pub(super) fn reply_to_stream(value: &Value) -> Response {
    let mut both = BytesMut::from(&envelope(value)[..]);
    both.extend_from_slice(&end(None));
    let mut response = Response::new(Body::from(both.freeze()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    response
}

/// A message.
pub(super) fn envelope(value: &Value) -> Bytes {
    wrapped(0, value)
}

/// The end of a stream.
pub(super) fn end(fault: Option<&Fault>) -> Bytes {
    match fault {
        None => wrapped(END, &json!({})),
        Some(fault) => wrapped(END, &json!({ "error": { "code": fault.code.word(), "message": fault.message } })),
    }
}

fn wrapped(flags: u8, value: &Value) -> Bytes {
    let text = value.to_string();
    let mut bytes = BytesMut::with_capacity(text.len() + 5);
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    bytes.put_slice(text.as_bytes());
    bytes.freeze()
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/src/connect.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: Vec<Vec<u8>>) -> Body {
        Body::from_stream(futures_util::stream::iter(pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)))))
    }

    #[tokio::test]
    async fn envelopes_are_read_however_they_are_cut() {
        let mut bytes = envelope(&json!({ "a": 1 })).to_vec();
        bytes.extend(envelope(&json!({ "a": 2 })));
        for size in [1, 3, 6, 100] {
            let mut envelopes = Envelopes::new(body(bytes.chunks(size).map(<[u8]>::to_vec).collect()));
            assert_eq!(envelopes.next_as::<Value>().await.unwrap(), Some(json!({ "a": 1 })));
            assert_eq!(envelopes.next_as::<Value>().await.unwrap(), Some(json!({ "a": 2 })));
            assert_eq!(envelopes.next_as::<Value>().await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn what_is_no_envelope_is_refused() {
        for bytes in
            [vec![0, 255, 255, 255, 255, 1], vec![1, 0, 0, 0, 1, b'x'], vec![0, 0, 0, 0, 9, b'x'], vec![0, 0, 0, 0, 1, b'x']]
        {
            assert!(Envelopes::new(body(vec![bytes.clone()])).next_as::<Value>().await.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_does_not_begin_ends_with_its_error() {
        let refused = refused_stream(Fault::new(Code::NotFound, "no such directory"));
        assert_eq!((refused.status().as_u16(), refused.headers()[header::CONTENT_TYPE].to_str().unwrap()), (200, STREAM));
        let bytes = refused.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((bytes[0], u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize), (END, bytes.len() - 5));
        let told: Value = serde_json::from_slice(&bytes[5..]).unwrap();
        assert_eq!(told, json!({ "error": { "code": "not_found", "message": "no such directory" } }));
        // Clients know a sandbox that is gone by the answer of E2B's edge.
        assert_eq!(refused_stream(Fault::gone()).status(), 502);
    }

    #[test]
    fn users_and_limits_are_in_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!((user(&headers).unwrap(), limit(&headers).unwrap()), (None, None));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Basic cm9vdDo="));
        headers.insert("connect-timeout-ms", HeaderValue::from_static("1500"));
        assert_eq!(user(&headers).unwrap().as_deref(), Some("root"));
        assert_eq!(limit(&headers).unwrap(), Some(Duration::from_millis(1500)));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert!(user(&headers).is_err());
    }
}
