//! Answers of desks that are read whole before they are passed on in other words: how much of that may be held at a time.
//!
//! A desk answers what it likes, and the gateway is the same process as the fleet: without a budget, some requests at once to a
//! desk that prints gigabytes would end both.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Held for one key.
const EACH: usize = 256 << 20;
/// Held for all.
const ALL: usize = 1 << 30;

/// Why an answer was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("it is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    #[error("too much is being read at once: ask again when other requests are done")]
    Full,
    #[error("it broke off: {0}")]
    Broken(axum::Error),
}

#[derive(Default, Clone)]
pub(crate) struct Buffers(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    all: usize,
    each: HashMap<String, usize>,
}

/// What was read. It counts until it is dropped.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    _share: Share,
}

pub(crate) struct Share {
    buffers: Buffers,
    key: String,
    bytes: usize,
}

impl Buffers {
    /// For somebody who holds what he reads by himself.
    pub(crate) fn share(&self, key: &str) -> Share {
        Share { buffers: self.clone(), key: key.to_owned(), bytes: 0 }
    }

    /// Reads a body of at most `limit` bytes.
    pub(crate) async fn read(&self, key: &str, mut body: Body, limit: usize) -> Result<Buffered, Unread> {
        let mut share = self.share(key);
        let mut first: Option<Bytes> = None;
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(Unread::Broken)?.into_data() else { continue };
            if share.bytes + piece.len() > limit {
                return Err(Unread::TooLarge(limit));
            }
            share.grow(piece.len())?;
            // Most answers come in one piece, which needs no copy.
            if first.is_none() && rest.is_empty() {
                first = Some(piece);
                continue;
            }
            if let Some(first) = first.take() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&piece);
        }
        Ok(Buffered { bytes: first.unwrap_or_else(|| rest.freeze()), _share: share })
    }
}

impl Share {
    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Unread> {
        let mut held = self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.each.get(&self.key).copied().unwrap_or(0);
        if own + by > EACH || held.all + by > ALL {
            return Err(Unread::Full);
        }
        held.all += by;
        held.each.insert(self.key.clone(), own + by);
        self.bytes += by;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.all = held.all.saturating_sub(self.bytes);
        let left = held.each.get(&self.key).map_or(0, |own| own.saturating_sub(self.bytes));
        match left {
            0 => held.each.remove(&self.key),
            left => held.each.insert(self.key.clone(), left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: usize, size: usize) -> Body {
        let piece = Bytes::from(vec![7; size]);
        Body::from_stream(futures_util::stream::iter((0..pieces).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
    }

    #[tokio::test]
    async fn a_key_holds_so_much_and_gives_it_back() {
        let buffers = Buffers::default();
        let half = buffers.read("a", body(128, 1 << 20), EACH).await.unwrap();
        assert_eq!(half.bytes.len(), 128 << 20);
        let more = buffers.read("a", body(129, 1 << 20), EACH).await;
        assert!(matches!(more, Err(Unread::Full)), "what others of the same key hold counts");
        let other = buffers.read("b", body(2, 100), 100).await;
        assert!(matches!(other, Err(Unread::TooLarge(100))));
        assert_eq!(buffers.read("b", body(3, 100), 300).await.unwrap().bytes.len(), 300);
        drop(half);
        assert_eq!(buffers.read("a", body(129, 1 << 20), EACH).await.unwrap().bytes.len(), 129 << 20);
        let held = buffers.0.lock().unwrap();
        assert_eq!((held.all, held.each.len()), (0, 0));
    }
}
