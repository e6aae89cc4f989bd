//! Rectangles of pixels in a viewer's encoding and pixel format.
//!
//! One encoder belongs to one viewer: the compressed encodings are streams that run through the
//! whole connection. ZRLE and Hextile come from `rfb-encodings`; Tight is ours, because that
//! crate's is wrong or wasteful where it matters (see `docs/decisions/0002-live-view.md`).

mod deflate;
mod palette;
mod tight;

use super::pixel::{PixelFormat, Translator};
use super::wishes::{Encoding, Wishes};
use deflate::Deflater;
use hotdesk_api::action::Rect;
use rfb_encodings::{Encoding as _, HextileEncoding, encode_zrle_persistent};
use tight::Tight;

/// Rectangles of one update are counted with 16 bits; this leaves room for what we did not foresee.
const MOST_RECTS: usize = 60_000;

/// Rows that are encoded at once where the encoding does not say: bounds the memory that is needed.
const ROWS: usize = 128;

/// Bytes that a buffer may keep between updates; times the number of viewers.
const KEPT: usize = 32 * 1024;

/// Pixels of one rectangle, row by row, each `0x00RRGGBB`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    pub x: u16,
    pub y: u16,
    pub width: u16,
    pub height: u16,
    pub pixels: &'a [u32],
}

impl<'a> Block<'a> {
    /// Part of the rows.
    fn rows(&self, first: usize, count: usize) -> Self {
        let width = usize::from(self.width);
        let first = first.min(self.height.into());
        let count = count.min(usize::from(self.height) - first);
        Self {
            y: self.y + first as u16,
            height: count as u16,
            pixels: &self.pixels[first * width..(first + count) * width],
            ..*self
        }
    }

    fn row(&self, n: usize) -> &'a [u32] {
        let width = usize::from(self.width);
        &self.pixels[n * width..(n + 1) * width]
    }
}

/// The body of one update: rectangles and their number.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub bytes: Vec<u8>,
    pub rects: usize,
    /// What was sent with a loss and should be sent again when there is time.
    pub lossy: Vec<Rect>,
}

impl Body {
    /// Begins a rectangle; its content is to follow.
    pub(super) fn rect(&mut self, x: u16, y: u16, width: u16, height: u16, encoding: i32) {
        for n in [x, y, width, height] {
            self.bytes.extend(n.to_be_bytes());
        }
        self.bytes.extend(encoding.to_be_bytes());
        self.rects += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.rects >= MOST_RECTS
    }
}

/// All that is kept for encoding from one update to the next.
pub(super) struct Encoder {
    wishes: Wishes,
    translator: Translator,
    tight: Tight,
    zlib: Option<Deflater>,
    zrle: Option<flate2::Compress>,
    scratch: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            wishes: Wishes::default(),
            translator: Translator::new(PixelFormat::NATIVE),
            tight: Tight::default(),
            zlib: None,
            zrle: None,
            scratch: Vec::new(),
        }
    }
}

impl Encoder {
    pub(super) fn set_wishes(&mut self, wishes: Wishes) {
        self.tight.set_level(zlib_level(wishes.compression));
        self.wishes = wishes;
    }

    pub(super) fn set_format(&mut self, format: PixelFormat) {
        self.translator = Translator::new(format);
    }

    pub(super) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    pub(super) fn translator(&self) -> &Translator {
        &self.translator
    }

    /// Appends a block in the encoding that the viewer likes best. `exact` forbids any loss.
    pub(super) fn encode(&mut self, block: Block<'_>, exact: bool, body: &mut Body) -> std::io::Result<()> {
        match self.wishes.encoding {
            Encoding::Tight => {
                let quality = self.wishes.quality.filter(|_| !exact);
                self.tight.encode(block, quality, &self.translator, body)
            }
            Encoding::Zrle => self.pieces(block, body, Self::zrle),
            Encoding::Zlib => self.pieces(block, body, Self::zlib),
            Encoding::Hextile if has_plain_hextile(self.translator.format()) => self.pieces(block, body, Self::hextile),
            Encoding::Raw | Encoding::Hextile => {
                body.rect(block.x, block.y, block.width, block.height, Encoding::Raw as i32);
                self.translator.write(block.pixels, &mut body.bytes);
                Ok(())
            }
        }
    }

    /// Gives back memory that only large updates need. To be called between updates.
    pub(super) fn rest(&mut self) {
        self.scratch.clear();
        self.scratch.shrink_to(KEPT);
        self.tight.rest(KEPT);
    }

    /// Cuts a block in pieces of some rows and gives each, in the viewer's pixel format, to `encode`.
    fn pieces(
        &mut self,
        block: Block<'_>,
        body: &mut Body,
        encode: impl Fn(&mut Self, Block<'_>, &[u8], &mut Vec<u8>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut translated = std::mem::take(&mut self.scratch);
        for first in (0..usize::from(block.height)).step_by(ROWS) {
            let piece = block.rows(first, ROWS);
            translated.clear();
            self.translator.write(piece.pixels, &mut translated);
            body.rect(piece.x, piece.y, piece.width, piece.height, self.wishes.encoding as i32);
            encode(self, piece, &translated, &mut body.bytes)?;
        }
        self.scratch = translated;
        Ok(())
    }

    fn zrle(&mut self, piece: Block<'_>, translated: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        let format = foreign(self.translator.format());
        let level = zlib_level(self.wishes.compression);
        let stream = self.zrle.get_or_insert_with(|| flate2::Compress::new(flate2::Compression::new(level), true));
        out.extend(encode_zrle_persistent(translated, piece.width, piece.height, &format, stream)?);
        Ok(())
    }

    fn zlib(&mut self, _: Block<'_>, translated: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        let level = zlib_level(self.wishes.compression);
        let stream = self.zlib.get_or_insert_with(|| Deflater::new(level));
        let at = out.len();
        out.extend([0; 4]);
        stream.append(translated, out)?;
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn hextile(&mut self, piece: Block<'_>, translated: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        out.extend(HextileEncoding.encode(translated, piece.width, piece.height, 0, 0));
        Ok(())
    }
}

/// The crate's Hextile writes the first three bytes of a pixel and a zero: right for every format
/// of four bytes whose colours are in the first three.
fn has_plain_hextile(format: &PixelFormat) -> bool {
    format.bits == 32
        && !format.big_endian
        && format.max.iter().zip(format.shift).all(|(max, shift)| (u64::from(*max) << shift) < 1 << 24)
}

/// Zlib's level for a viewer's wish. The higher ones cost many times the time and save little.
fn zlib_level(compression: u8) -> u32 {
    match compression {
        0..=2 => 1,
        n => u32::from(n).min(6),
    }
}

fn foreign(format: &PixelFormat) -> rfb_encodings::PixelFormat {
    rfb_encodings::PixelFormat {
        bits_per_pixel: format.bits,
        depth: format.depth,
        big_endian_flag: format.big_endian.into(),
        true_colour_flag: 1,
        red_max: format.max[0],
        green_max: format.max[1],
        blue_max: format.max[2],
        red_shift: format.shift[0],
        green_shift: format.shift[1],
        blue_shift: format.shift[2],
    }
}

#[cfg(test)]
mod tests;
