//! Bodies that come compressed.

use bytes::Bytes;
use flate2::write::GzDecoder;
use std::io::Write;

/// Undoes gzip, piece by piece.
pub(super) struct Unzip(GzDecoder<Vec<u8>>);

impl Unzip {
    pub(super) fn new() -> Self {
        Self(GzDecoder::new(Vec::new()))
    }

    /// What comes out when this goes in.
    pub(super) fn feed(&mut self, piece: &[u8]) -> std::io::Result<Bytes> {
        self.0.write_all(piece)?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }

    /// What is left at the end; fails if the end is missing.
    pub(super) fn finish(mut self) -> std::io::Result<Bytes> {
        self.0.try_finish()?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }
}

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
        half.feed(&zipped[..zipped.len() / 2]).unwrap();
        assert!(half.finish().is_err());
        assert!(Unzip::new().feed(b"not gzip at all").is_err());
    }
}
