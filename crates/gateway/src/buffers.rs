//! Answers of desks that are read whole before they are passed on in other words: how much of that may be held at a time.
//!
//! A desk answers what it likes, and the gateway is the same process as the fleet: without a budget, some requests at once to a
//! desk that prints gigabytes would end both.

use hotdesk_desk_client::{Budget, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Held for one key.
const EACH: usize = 256 << 20;
/// Held for all.
const ALL: usize = 1 << 30;

#[derive(Default, Clone)]
pub(crate) struct Buffers(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    all: usize,
    each: HashMap<String, usize>,
}

/// What is held for somebody. It counts until it is dropped.
pub(crate) struct Share {
    buffers: Buffers,
    key: String,
    bytes: usize,
}

impl Buffers {
    /// Of a key, with nothing held yet.
    pub(crate) fn share(&self, key: &str) -> Share {
        Share { buffers: self.clone(), key: key.to_owned(), bytes: 0 }
    }
}

impl Budget for Share {
    fn grow(&mut self, by: usize) -> Result<()> {
        let mut held = self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.each.get(&self.key).copied().unwrap_or(0);
        if own + by > EACH || held.all + by > ALL {
            return Err(Error::OverBudget);
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
    use axum::body::Body;
    use bytes::Bytes;
    use hotdesk_desk_client::body::read;

    fn body(pieces: usize, size: usize) -> Body {
        let piece = Bytes::from(vec![7; size]);
        Body::from_stream(futures_util::stream::iter((0..pieces).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
    }

    #[tokio::test]
    async fn a_key_holds_so_much_and_gives_it_back() {
        let buffers = Buffers::default();
        let half = read(body(128, 1 << 20), EACH, buffers.share("a")).await.unwrap();
        assert_eq!(half.bytes.len(), 128 << 20);
        let more = read(body(129, 1 << 20), EACH, buffers.share("a")).await;
        assert!(matches!(more, Err(Error::OverBudget)), "what others of the same key hold counts");
        let other = read(body(2, 100), 100, buffers.share("b")).await;
        assert!(matches!(other, Err(Error::TooLarge(100))));
        assert_eq!(read(body(3, 100), 300, buffers.share("b")).await.unwrap().bytes.len(), 300);
        drop(half);
        assert_eq!(read(body(129, 1 << 20), EACH, buffers.share("a")).await.unwrap().bytes.len(), 129 << 20);
        let held = buffers.0.lock().unwrap();
        assert_eq!((held.all, held.each.len()), (0, 0));
    }
}
