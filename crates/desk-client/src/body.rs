//! Answers that are read whole: at most so large, and counted while they are held.

use crate::{Error, Result};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

/// How much may be held. What was taken is given back when it is dropped.
pub trait Budget {
    /// Takes so many bytes more, or refuses with [`Error::OverBudget`].
    fn grow(&mut self, by: usize) -> Result<()>;
}

/// No budget: for whoever asks one desk for one small thing.
impl Budget for () {
    fn grow(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// What was read. It counts until it is dropped.
#[derive(Debug)]
pub struct Buffered<G = ()> {
    pub bytes: Bytes,
    _budget: G,
}

/// Reads a body of at most `largest` bytes.
pub async fn read<B, G>(mut body: B, largest: usize, mut budget: G) -> Result<Buffered<G>>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    G: Budget,
{
    let mut length = 0;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(Error::broken)?.into_data() else { continue };
        length += piece.len();
        if length > largest {
            return Err(Error::TooLarge(largest));
        }
        budget.grow(piece.len())?;
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
    Ok(Buffered { bytes: first.unwrap_or_else(|| rest.freeze()), _budget: budget })
}
