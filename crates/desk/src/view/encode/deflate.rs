//! A stream of deflated pieces, each of which can be inflated as soon as it is there.

use flate2::{Compress, Compression, FlushCompress};
use std::io;

pub(super) struct Deflater(Compress);

impl Deflater {
    pub(super) fn new(level: u32) -> Self {
        Self(Compress::new(Compression::new(level), true))
    }

    /// Appends all of `input`, flushed so that it can be read without what follows.
    pub(super) fn append(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        loop {
            out.reserve(input.len() / 4 + 64);
            let before = self.0.total_in();
            self.0.compress_vec(input, out, FlushCompress::Sync).map_err(io::Error::other)?;
            input = &input[(self.0.total_in() - before) as usize..];
            // With room left the flush is complete; without, it may have more to say.
            if input.is_empty() && out.len() < out.capacity() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn any_number_of_pieces_inflate_to_what_they_were() {
        let mut random = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        })
        .take(300_000)
        .collect();
        let pieces: [&[u8]; 5] = [b"hello", &[7; 100_000], &noise, b"x", &noise[..70_000]];
        let mut stream = Deflater::new(1);
        let mut inflater = flate2::Decompress::new(true);
        for piece in pieces {
            let mut out = Vec::new();
            stream.append(piece, &mut out).unwrap();
            let mut got = Vec::with_capacity(piece.len() + 64);
            inflater.decompress_vec(&out, &mut got, flate2::FlushDecompress::Sync).unwrap();
            assert!(got == piece, "a piece of {} bytes", piece.len());
        }
        // And the whole is one stream.
        let mut all = Vec::new();
        let mut stream = Deflater::new(1);
        for piece in pieces {
            stream.append(piece, &mut all).unwrap();
        }
        let mut got = Vec::new();
        let _ = flate2::read::ZlibDecoder::new(&all[..]).read_to_end(&mut got);
        assert!(got == pieces.concat());
    }
}
