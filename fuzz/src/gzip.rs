//! Any bytes as a compressed upload: what comes out of each step is bounded, and the whole is what another decoder makes of it.

use super::{STEP, Unzip};
use std::io::Read;

/// Deflate makes at most 1032 bytes of one; what came before a step may still be inside.
const MOST: usize = 2 * STEP * 1032;

pub(crate) fn run(input: &[u8]) {
    let Some((size, input)) = input.split_first() else { return };
    let mut unzip = Unzip::new();
    let mut out = Vec::new();
    for piece in input.chunks((usize::from(*size) * 4 + 1).min(STEP)) {
        let Ok(more) = unzip.feed(piece) else { return };
        assert!(more.len() <= MOST);
        out.extend(more);
    }
    let Ok(rest) = unzip.finish() else { return };
    assert!(rest.len() <= MOST);
    out.extend(rest);
    let mut other = Vec::new();
    flate2::read::GzDecoder::new(input).read_to_end(&mut other).unwrap();
    assert_eq!(out, other);
}
