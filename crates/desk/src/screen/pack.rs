//! Rows of pixels to one IDAT chunk of a PNG.

use super::frame::PIXEL;
use super::rgb::{RGB, minus_above, minus_left, plain};
use crate::error::{Error, Result};
use bytes::BufMut;
use flate2::{Compress, Compression, FlushCompress};

/// A whole IDAT chunk.
pub(crate) struct Chunk {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) adler: u32,
    /// Bytes before compression.
    pub(crate) length: usize,
}

/// Filters and compresses; keeps its memory from strip to strip.
pub(crate) struct Packer {
    deflate: Compress,
    filtered: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self::with_level(Compression::new(1))
    }

    pub(crate) fn with_level(level: Compression) -> Self {
        Self { deflate: Compress::new(level, false), filtered: Vec::new(), packed: Vec::new() }
    }

    /// An IDAT chunk of whole rows.
    pub(crate) fn strip(&mut self, rows: &[u8], stride: usize) -> Result<Chunk> {
        self.filter(rows, stride);
        self.packed.clear();
        self.packed.extend_from_slice(b"\0\0\0\0IDAT");
        if let Err(e) = self.deflate() {
            self.deflate.reset();
            return Err(e);
        }
        let length = (self.packed.len() - 8) as u32;
        self.packed[..4].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&self.packed[4..]);
        self.packed.put_u32(crc);
        let adler = simd_adler32::adler32(&self.filtered.as_slice());
        Ok(Chunk { bytes: self.packed.as_slice().into(), adler, length: self.filtered.len() })
    }

    /// Appends the deflated rows. The full flush at the end makes the encoder forget them, so the next strip can't refer to them.
    fn deflate(&mut self) -> Result<()> {
        let start = self.deflate.total_in();
        loop {
            let eaten = (self.deflate.total_in() - start) as usize;
            self.packed.reserve(32 * 1024);
            let room = self.packed.capacity();
            self.deflate
                .compress_vec(&self.filtered[eaten..], &mut self.packed, FlushCompress::Full)
                .map_err(|e| Error::internal(format!("deflate: {e}")))?;
            // The flush is complete only when the encoder left room in the buffer.
            if (self.deflate.total_in() - start) as usize == self.filtered.len() && self.packed.len() < room {
                return Ok(());
            }
        }
    }

    fn filter(&mut self, rows: &[u8], stride: usize) {
        const NONE: u8 = 0;
        const SUB: u8 = 1;
        const UP: u8 = 2;
        let width = stride / PIXEL * RGB;
        let count = rows.len() / stride;
        self.filtered.resize(count * (1 + width), 0);
        let flat = is_flat(rows);
        let mut above: &[u8] = &[];
        for (row, out) in rows.chunks_exact(stride).zip(self.filtered.chunks_exact_mut(1 + width)) {
            let (kind, out) = out.split_at_mut(1);
            kind[0] = match (flat, above.is_empty()) {
                (true, _) => {
                    plain(row, out);
                    NONE
                }
                (false, true) => {
                    minus_left(row, out);
                    SUB
                }
                (false, false) => {
                    minus_above(row, above, out);
                    UP
                }
            };
            above = row;
        }
    }
}

/// Whether most pixels equal their left neighbour: text and areas of one colour pack better and faster unfiltered. A sample is enough.
fn is_flat(rows: &[u8]) -> bool {
    let pixels = rows.len() / PIXEL;
    let step = (pixels / 1024).max(2);
    let (mut same, mut all) = (0, 0);
    for pair in rows.chunks_exact(PIXEL * step).filter_map(|c| c.get(..PIXEL * 2)) {
        let (a, b) = pair.split_at(PIXEL);
        same += usize::from(a[..3] == b[..3]);
        all += 1;
    }
    all > 0 && same * 10 >= all * 7
}
