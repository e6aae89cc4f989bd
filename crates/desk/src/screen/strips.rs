//! PNG, strip by strip: what did not change is not encoded again.
//!
//! The picture is cut into strips of sixteen rows. No strip looks at its neighbours: its first row is filtered by what stands left, its
//! deflate stream ends with a full flush, and it is an IDAT chunk of its own with its own checksums. A file is then the
//! header, the strips as they were kept, and an end that holds the combined Adler-32.

use super::Cursor;
use super::crew::{Crew, Work};
use super::cursor::CursorImage;
use super::frame::{Frame, PIXEL, TILE_HEIGHT};
use super::pack::{Chunk, Packer};
use crate::error::{Error, Result};
use bytes::{BufMut, Bytes, BytesMut};
use hotdesk_api::action::{Point, Rect, Size};
use std::sync::Arc;

/// Rows of a strip. Fewer make the file larger, more make small changes dearer.
pub(crate) const ROWS: usize = TILE_HEIGHT;

/// The strips of the last picture, with and without the pointer.
pub(crate) struct Strips {
    size: Size,
    plain: Vec<Option<Kept>>,
    /// Strips that the pointer touches, by the manner of painting it.
    painted: Vec<(usize, Cursor, u64, Kept)>,
    crew: Crew,
}

/// An encoded strip and the version of the frame's strip that it shows.
struct Kept {
    version: u64,
    chunk: Chunk,
}

/// One strip that must be encoded.
struct Task {
    strip: usize,
    version: u64,
    painted: bool,
}

impl Strips {
    pub(crate) fn new() -> Self {
        Self { size: Size { width: 0, height: 0 }, plain: Vec::new(), painted: Vec::new(), crew: Crew::default() }
    }

    /// The whole picture as a PNG of 8-bit RGB.
    pub(crate) fn png(&mut self, frame: &Arc<Frame>, cursor: &CursorImage, manner: Cursor) -> Result<Bytes> {
        if self.size != frame.size() {
            *self = Self { size: frame.size(), crew: std::mem::take(&mut self.crew), ..Self::new() };
            self.plain.resize_with((self.size.height as usize).div_ceil(ROWS), || None);
        }
        let touched = cursor.area(manner, self.size).map_or(0..0, strips_of);
        self.painted.retain(|(strip, m, at, _)| *m != manner || (touched.contains(strip) && *at == cursor.version));
        let mut tasks = Vec::new();
        for strip in 0..self.plain.len() {
            let version = frame.version_of_strip(strip);
            let painted = touched.contains(&strip);
            let kept = if painted { self.painted(strip, manner) } else { self.plain[strip].as_ref() };
            if kept.is_none_or(|k| k.version != version) {
                tasks.push(Task { strip, version, painted });
            }
        }
        for (task, chunk) in tasks.iter().zip(self.crew.run(tasks.len(), work(frame, cursor, manner, &tasks))?) {
            let kept = Kept { version: task.version, chunk };
            if task.painted {
                self.painted.retain(|(strip, m, _, _)| (*strip, *m) != (task.strip, manner));
                self.painted.push((task.strip, manner, cursor.version, kept));
            } else {
                self.plain[task.strip] = Some(kept);
            }
        }
        let chunks = (0..self.plain.len()).filter_map(|strip| {
            let kept = if touched.contains(&strip) { self.painted(strip, manner) } else { self.plain[strip].as_ref() };
            kept.map(|k| &k.chunk)
        });
        Ok(assemble(self.size, chunks))
    }

    fn painted(&self, strip: usize, manner: Cursor) -> Option<&Kept> {
        self.painted.iter().find(|(s, m, _, _)| (*s, *m) == (strip, manner)).map(|(_, _, _, kept)| kept)
    }
}

/// What encodes the tasks' strips, from any thread.
fn work(frame: &Arc<Frame>, cursor: &CursorImage, manner: Cursor, tasks: &[Task]) -> Work {
    let (frame, cursor) = (Arc::clone(frame), cursor.clone());
    let tasks: Vec<_> = tasks.iter().map(|task| (task.strip, task.painted)).collect();
    Arc::new(move |packer: &mut Packer, n: usize| {
        let Some((strip, painted)) = tasks.get(n) else { return Err(Error::internal("there is no such strip")) };
        let rows = strip_rows(*strip, frame.size().height);
        if !painted {
            return packer.strip(frame.rows(rows), frame.stride());
        }
        let mut pixels = frame.rows(rows.clone()).to_vec();
        cursor.paint(manner, &mut pixels, Point { x: 0, y: rows.start as i32 }, frame.size().width);
        packer.strip(&pixels, frame.stride())
    })
}

/// Any pixels as a PNG, for pictures that are not kept: parts of the screen and other sizes.
pub(crate) fn png_of(pixels: &[u8], size: Size) -> Result<Bytes> {
    let stride = size.width as usize * PIXEL;
    if stride == 0 || pixels.len() != stride * size.height as usize {
        return Err(Error::internal("a picture's pixels do not fit its size"));
    }
    let mut packer = Packer::new();
    // Larger strips than the kept ones: nobody takes them apart, and they pack better.
    let chunks = pixels.chunks(stride * ROWS * 4).map(|rows| packer.strip(rows, stride)).collect::<Result<Vec<_>>>()?;
    Ok(assemble(size, chunks.iter()))
}

fn strips_of(area: Rect) -> std::ops::Range<usize> {
    area.y as usize / ROWS..(area.y as usize + area.height as usize).div_ceil(ROWS)
}

fn strip_rows(strip: usize, height: u32) -> std::ops::Range<u32> {
    (strip * ROWS) as u32..(((strip + 1) * ROWS) as u32).min(height)
}

/// Signature, header, the chunks, the end.
pub(crate) fn assemble<'a>(size: Size, chunks: impl Iterator<Item = &'a Chunk> + Clone) -> Bytes {
    // From the allocator, which keeps and reuses it: fresh pages would cost more than all the rest here.
    let mut file = BytesMut::with_capacity(chunks.clone().map(|c| c.bytes.len()).sum::<usize>() + ENVELOPE);
    file.put_slice(b"\x89PNG\r\n\x1a\n");
    let mut header = [0; 13];
    header[..4].copy_from_slice(&size.width.to_be_bytes());
    header[4..8].copy_from_slice(&size.height.to_be_bytes());
    // 8 bits, RGB, deflate, the five filters, not interlaced.
    header[8..].copy_from_slice(&[8, 2, 0, 0, 0]);
    put_chunk(&mut file, b"IHDR", &header);
    // The zlib header: deflate with a window of 32 KB, fastest.
    put_chunk(&mut file, b"IDAT", &[0x78, 0x01]);
    let mut adler = 1;
    for chunk in chunks {
        file.put_slice(&chunk.bytes);
        adler = combined_adler(adler, chunk.adler, chunk.length);
    }
    // An empty last block, then the checksum of all rows.
    let mut end = [0x03, 0x00, 0, 0, 0, 0];
    end[2..].copy_from_slice(&adler.to_be_bytes());
    put_chunk(&mut file, b"IDAT", &end);
    put_chunk(&mut file, b"IEND", &[]);
    file.freeze()
}

/// Signature (8) and four chunks of 12 bytes and what they hold: header (13), zlib header (2), end (6), nothing.
const ENVELOPE: usize = 8 + 4 * 12 + 13 + 2 + 6;

fn put_chunk(file: &mut BytesMut, kind: &[u8; 4], body: &[u8]) {
    file.put_u32(body.len() as u32);
    file.put_slice(kind);
    file.put_slice(body);
    let mut crc = crc32fast::Hasher::new();
    crc.update(kind);
    crc.update(body);
    file.put_u32(crc.finalize());
}

/// The Adler-32 of two byte strings, from theirs and the length of the second.
fn combined_adler(first: u32, second: u32, length: usize) -> u32 {
    const BASE: u64 = 65521;
    let (a1, b1) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (a2, b2) = (u64::from(second & 0xffff), u64::from(second >> 16));
    let length = length as u64 % BASE;
    // Each sum starts with 1, which the second string must not count again.
    let a = (a1 + a2 + BASE - 1) % BASE;
    let b = (b1 + b2 + length * (a1 + BASE - 1)) % BASE;
    ((b as u32) << 16) | a as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::cursor::CursorShape;
    use crate::screen::frame::absorb;
    use crate::screen::xvfb::{decode, rgb_of};
    use proptest::prelude::*;

    fn cursor(x: i32, y: i32, version: u64) -> CursorImage {
        let shape = CursorShape { width: 3, height: 20, hot_x: 1, hot_y: 1, pixels: vec![0xFF10_2030; 60] };
        CursorImage { x, y, shape: Arc::new(shape), version }
    }

    #[test]
    fn adler_of_parts() {
        let (a, b) = ([7u8; 70_000], [200u8; 3]);
        let whole = [a.as_slice(), b.as_slice()].concat();
        let combined = combined_adler(simd_adler32::adler32(&a.as_slice()), simd_adler32::adler32(&b.as_slice()), b.len());
        assert_eq!(combined, simd_adler32::adler32(&whole.as_slice()));
        assert_eq!(combined_adler(1, 1, 0), 1);
    }

    #[test]
    fn noise_larger_than_any_buffer_survives() {
        let size = Size { width: 1000, height: 100 };
        let mut seed = 1u32;
        let pixels: Vec<u8> = (0..size.width * size.height * 4)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        let png = png_of(&pixels, size).expect("encodes");
        assert_eq!(decode(&png), (size, rgb_of(&pixels)));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(png_of(&[0; 10], Size { width: 2, height: 2 }).is_err());
        assert!(png_of(&[], Size { width: 0, height: 0 }).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// Whatever is painted where: each PNG decodes to the frame of its moment, with the pointer on it.
        #[test]
        fn every_picture_decodes(
            (width, height) in (1u32..150, 1u32..70),
            steps in prop::collection::vec((0u32..70, 1usize..30, any::<u8>(), any::<bool>(), -5i32..160, -5i32..80), 1..12),
        ) {
            let size = Size { width, height };
            let mut frame = Arc::new(Frame::black(size, 1));
            let mut strips = Strips::new();
            for (n, (first, count, colour, noisy, x, y)) in steps.into_iter().enumerate() {
                let first = first.min(height - 1);
                let count = count.min((height - first) as usize);
                let fresh: Vec<u8> = (0..count * width as usize * PIXEL)
                    .map(|i| if noisy { (i as u8).wrapping_mul(colour) ^ (i >> 3) as u8 } else { colour })
                    .collect();
                absorb(&mut frame, first, &fresh, n as u64 + 2);
                let image = cursor(x, y, n as u64);
                for manner in [Cursor::True, Cursor::Osworld, Cursor::Hidden] {
                    let mut expected = frame.pixels().to_vec();
                    image.paint(manner, &mut expected, Point { x: 0, y: 0 }, width);
                    let png = strips.png(&frame, &image, manner).expect("encodes");
                    prop_assert_eq!(decode(&png), (size, rgb_of(&expected)));
                }
            }
        }
    }
}
