//! PNG, strip by strip: what did not change is not encoded again.
//!
//! The picture is cut into strips of sixteen rows. No strip looks at its neighbours: its first row is filtered by what stands left, its
//! deflate stream ends with a full flush, and it is an IDAT chunk of its own with its own checksums. A file is then the
//! header, the strips as they were kept, and an end that holds the combined Adler-32.

use super::Cursor;
use super::cursor::CursorImage;
use super::frame::{Frame, PIXEL, TILE_HEIGHT};
use super::rgb::{RGB, minus_above, minus_left, plain};
use crate::error::{Error, Result};
use bytes::{BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, FlushCompress};
use hotdesk_api::action::{Point, Rect, Size};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a strip. Fewer make the file larger, more make small changes dearer.
const ROWS: usize = TILE_HEIGHT;

/// With fewer strips than this to encode, a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 12;

/// The strips of the last picture, with and without the pointer.
pub(crate) struct Strips {
    size: Size,
    plain: Vec<Option<Kept>>,
    /// Strips that the pointer touches, by the manner of painting it.
    painted: Vec<(usize, Cursor, u64, Kept)>,
    packers: Vec<Packer>,
}

/// An encoded strip and the version of the frame's strip that it shows.
struct Kept {
    version: u64,
    chunk: Chunk,
}

/// A whole IDAT chunk.
struct Chunk {
    bytes: Box<[u8]>,
    adler: u32,
    /// Bytes before compression.
    length: usize,
}

/// One strip that must be encoded.
struct Task {
    strip: usize,
    version: u64,
    painted: bool,
}

impl Strips {
    pub(crate) fn new() -> Self {
        Self { size: Size { width: 0, height: 0 }, plain: Vec::new(), painted: Vec::new(), packers: Vec::new() }
    }

    /// The whole picture as a PNG of 8-bit RGB.
    pub(crate) fn png(&mut self, frame: &Frame, cursor: &CursorImage, manner: Cursor) -> Result<Bytes> {
        if self.size != frame.size() {
            *self = Self { size: frame.size(), packers: std::mem::take(&mut self.packers), ..Self::new() };
            self.plain.resize_with((self.size.height as usize).div_ceil(ROWS), || None);
        }
        let touched = cursor.area(manner, self.size).map_or(0..0, |area| strips_of(area));
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
        for (task, chunk) in tasks.iter().zip(self.encode(frame, cursor, manner, &tasks)?) {
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

    /// Encodes strips, with a second thread if there are many.
    fn encode(&mut self, frame: &Frame, cursor: &CursorImage, manner: Cursor, tasks: &[Task]) -> Result<Vec<Chunk>> {
        let threads = if tasks.len() < WORTH_A_THREAD { 1 } else { 2 };
        while self.packers.len() < threads {
            self.packers.push(Packer::new());
        }
        let next = AtomicUsize::new(0);
        let work = |packer: &mut Packer| -> Result<Vec<(usize, Chunk)>> {
            let mut done = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(n) else { return Ok(done) };
                let rows = strip_rows(task.strip, frame.size().height);
                let chunk = if task.painted {
                    let mut pixels = frame.rows(rows.clone()).to_vec();
                    let origin = Point { x: 0, y: rows.start as i32 };
                    cursor.paint(manner, &mut pixels, origin, frame.size().width);
                    packer.strip(&pixels, frame.stride())?
                } else {
                    packer.strip(frame.rows(rows), frame.stride())?
                };
                done.push((n, chunk));
            }
        };
        let mut done = match &mut self.packers[..threads] {
            [mine, helpers @ ..] if !helpers.is_empty() => std::thread::scope(|scope| {
                let others: Vec<_> = helpers.iter_mut().map(|packer| scope.spawn(|| work(packer))).collect();
                let mut done = work(mine)?;
                for other in others {
                    done.extend(other.join().map_err(|_| Error::internal("a strip could not be encoded"))??);
                }
                Ok::<_, Error>(done)
            })?,
            [mine, ..] => work(mine)?,
            [] => Vec::new(),
        };
        done.sort_unstable_by_key(|(n, _)| *n);
        Ok(done.into_iter().map(|(_, chunk)| chunk).collect())
    }
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

/// Filters and compresses; keeps its memory from strip to strip.
struct Packer {
    deflate: Compress,
    filtered: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    fn new() -> Self {
        Self { deflate: Compress::new(Compression::new(1), false), filtered: Vec::new(), packed: Vec::new() }
    }

    /// An IDAT chunk of whole rows.
    fn strip(&mut self, rows: &[u8], stride: usize) -> Result<Chunk> {
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

/// Signature, header, the chunks, the end.
fn assemble<'a>(size: Size, chunks: impl Iterator<Item = &'a Chunk> + Clone) -> Bytes {
    let mut file = BytesMut::with_capacity(chunks.clone().map(|c| c.bytes.len()).sum::<usize>() + 96);
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
    use proptest::prelude::*;
    use std::sync::Arc;

    pub(crate) fn decode(png: &[u8]) -> (Size, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a PNG");
        let mut out = vec![0; reader.output_buffer_size().expect("small enough")];
        let info = reader.next_frame(&mut out).expect("a whole picture");
        assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        reader.finish().expect("a proper end");
        (Size { width: info.width, height: info.height }, out)
    }

    fn rgb_of(pixels: &[u8]) -> Vec<u8> {
        pixels.chunks_exact(PIXEL).flat_map(|p| [p[2], p[1], p[0]]).collect()
    }

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
