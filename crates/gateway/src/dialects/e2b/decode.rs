//! Bodies that come compressed.

use bytes::Bytes;
use flate2::write::GzDecoder;
use std::io::Write;

/// So much of what is compressed is undone at a time: gzip makes at most a thousand times as much of it, and nobody holds more than
/// that before it is on its way to the desk.
pub(super) const STEP: usize = 1 << 10;

/// Undoes gzip, piece by piece.
pub(super) struct Unzip(GzDecoder<Vec<u8>>);

impl Unzip {
    pub(super) fn new() -> Self {
        Self(GzDecoder::new(Vec::new()))
    }

    /// What comes out when this goes in; at most [`STEP`] of it go in at a time, so that little becomes not too much.
    pub(super) fn feed(&mut self, piece: &[u8]) -> std::io::Result<Bytes> {
        debug_assert!(piece.len() <= STEP, "cut it first");
        self.0.write_all(piece)?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }

    /// What is left at the end; fails if the end is missing.
    pub(super) fn finish(mut self) -> std::io::Result<Bytes> {
        self.0.try_finish()?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/src/gzip.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    #[test]
    fn pieces_of_gzip_become_what_they_were() {
        let text = "compressible ".repeat(20_000);
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(text.as_bytes()).unwrap();
        let zipped = zip.finish().unwrap();
        let mut unzip = Unzip::new();
        let mut out = Vec::new();
        for piece in zipped.chunks(100) {
            out.extend(unzip.feed(piece).unwrap());
        }
        out.extend(unzip.finish().unwrap());
        assert_eq!(out, text.as_bytes());
        let mut half = Unzip::new();
        half.feed(&zipped[..(zipped.len() / 2).min(STEP)]).unwrap();
        assert!(half.finish().is_err());
        assert!(Unzip::new().feed(b"not gzip at all").is_err());
        // The worst there is: nothing but zeros.
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![0; 64 << 20]).unwrap();
        let bomb = bomb.finish().unwrap();
        let mut unzip = Unzip::new();
        let largest = bomb.chunks(STEP).map(|piece| unzip.feed(piece).unwrap().len()).max().unwrap();
        assert!(largest <= 2 << 20, "{largest} bytes at once");
    }
}
