//! Any body as messages of the Connect protocol: the same messages, in whatever pieces they come, or the same refusal.
//!
//! The first byte chooses the content type, the second the pieces.

use super::{Envelopes, LARGEST, STREAM, envelope, limit, message, user};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use serde_json::Value;

pub(crate) fn run(input: &[u8]) {
    let [kind, size, input @ ..] = input else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let whole = messages(input, input.len().max(1)).await;
        assert_eq!(whole, messages(input, usize::from(*size) + 1).await);
        let mut headers = HeaderMap::new();
        for name in [header::AUTHORIZATION, header::HeaderName::from_static("connect-timeout-ms")] {
            if let Ok(value) = HeaderValue::from_bytes(input) {
                headers.insert(name, value);
            }
        }
        let _ = (limit(&headers), user(&headers));
        let kind = ["application/json", STREAM, "application/proto", ""][usize::from(*kind) % 4];
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let Ok(value) = message::<Value>(&headers, Body::from(input.to_vec())).await else { return };
        let again = envelope(&value);
        assert!(again.len() <= LARGEST);
        assert_eq!(messages(&again, 1).await, (vec![again.slice(5..)], true));
    });
}

/// All messages, and whether they end as they should.
async fn messages(input: &[u8], size: usize) -> (Vec<Bytes>, bool) {
    let pieces: Vec<_> = input.chunks(size).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
    let mut envelopes = Envelopes::new(Body::from_stream(futures_util::stream::iter(pieces)));
    let mut messages = Vec::new();
    loop {
        match envelopes.next().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, true),
            Err(_) => return (messages, false),
        }
    }
}
