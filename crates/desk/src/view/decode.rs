//! A small RFB decoder for tests: what a viewer makes of an update, in plain code and without our encoders.

use super::pixel::PixelFormat;
use flate2::{Decompress, FlushDecompress};
use hotdesk_api::action::Size;

/// What one rectangle was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    Pixels,
    Jpeg,
    Size { width: u16, height: u16, reason: u16, status: u16 },
    Cursor { x: u16, y: u16, width: u16, height: u16, pixels: Vec<u8> },
    Pointer { x: u16, y: u16 },
    Other(i32),
}

/// A viewer's copy of the screen.
pub(super) struct Canvas {
    pub format: PixelFormat,
    pub width: usize,
    pub height: usize,
    /// `0x00RRGGBB`
    pub pixels: Vec<u32>,
    tight: [Option<Decompress>; 4],
    zlib: Option<Decompress>,
    zrle: Option<Decompress>,
}

/// Bytes that are read from the front. Panics at the end: a test fails then.
pub(super) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        head
    }
    pub(super) fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }
    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }
}

#[derive(Clone, Copy)]
struct Area {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Canvas {
    pub(super) fn new(size: Size, format: PixelFormat) -> Self {
        let (width, height) = (size.width as usize, size.height as usize);
        Self { format, width, height, pixels: vec![0; width * height], tight: Default::default(), zlib: None, zrle: None }
    }

    /// One rectangle of an update.
    pub(super) fn rect(&mut self, c: &mut Cursor<'_>) -> Told {
        let (x, y, width, height) = (c.u16(), c.u16(), c.u16(), c.u16());
        let area = Area { x: x.into(), y: y.into(), width: width.into(), height: height.into() };
        let encoding = c.u32() as i32;
        match encoding {
            0 => {
                let pixels = (0..area.width * area.height).map(|_| self.pixel(c)).collect();
                self.put(area, pixels);
                Told::Pixels
            }
            5 => self.hextile(area, c),
            6 => {
                let length = c.u32() as usize;
                let bytes = inflate(&mut self.zlib, c.take(length), area.width * area.height * self.format.bytes_per_pixel());
                let mut c = Cursor(&bytes);
                let pixels = (0..area.width * area.height).map(|_| self.pixel(&mut c)).collect();
                self.put(area, pixels);
                Told::Pixels
            }
            7 => self.tight(area, c),
            16 => {
                let length = c.u32() as usize;
                // As much as a tile of the least compact kind can need.
                let bytes = inflate_all(&mut self.zrle, c.take(length));
                self.zrle_tiles(area, &bytes);
                Told::Pixels
            }
            -223 => {
                self.resize(width, height);
                Told::Size { width, height, reason: 0, status: 0 }
            }
            -308 => {
                let screens = usize::from(c.u8());
                c.take(3 + 16 * screens);
                if y == 0 {
                    self.resize(width, height);
                }
                Told::Size { width, height, reason: x, status: y }
            }
            -239 => {
                let bytes = area.width * area.height * self.format.bytes_per_pixel() + area.width.div_ceil(8) * area.height;
                Told::Cursor { x, y, width, height, pixels: c.take(bytes).to_vec() }
            }
            -314 => {
                assert_eq!(c.u32(), 0, "raw");
                Told::Cursor { x, y, width, height, pixels: c.take(area.width * area.height * 4).to_vec() }
            }
            0x574d_5664 => {
                assert_eq!(c.take(2), [1, 0]);
                Told::Cursor { x, y, width, height, pixels: c.take(area.width * area.height * 4).to_vec() }
            }
            -232 => Told::Pointer { x, y },
            other => Told::Other(other),
        }
    }

    fn resize(&mut self, width: u16, height: u16) {
        (self.width, self.height) = (width.into(), height.into());
        self.pixels = vec![0; self.width * self.height];
    }

    fn put(&mut self, area: Area, pixels: Vec<u32>) {
        assert_eq!(pixels.len(), area.width * area.height);
        assert!(area.x + area.width <= self.width && area.y + area.height <= self.height, "a rectangle on the screen");
        for (n, row) in pixels.chunks(area.width.max(1)).enumerate() {
            let at = (area.y + n) * self.width + area.x;
            self.pixels[at..at + area.width].copy_from_slice(row);
        }
    }

    /// A whole pixel of the viewer's format.
    fn pixel(&self, c: &mut Cursor<'_>) -> u32 {
        let mut bytes = c.take(self.format.bytes_per_pixel()).to_vec();
        if self.format.big_endian {
            bytes.reverse();
        }
        self.colour(bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    fn colour(&self, value: u32) -> u32 {
        self.format
            .max
            .iter()
            .zip(self.format.shift)
            .fold(0, |rgb, (max, shift)| (rgb << 8) | (((value >> shift) & u32::from(*max)) * 255 / u32::from(*max)))
    }

    /// A pixel as Tight has it.
    fn tight_pixel(&self, c: &mut Cursor<'_>) -> u32 {
        let f = self.format;
        if f.bits == 32 && f.depth == 24 && f.max == [255; 3] {
            c.take(3).iter().fold(0, |rgb, byte| rgb << 8 | u32::from(*byte))
        } else {
            self.pixel(c)
        }
    }

    fn tight(&mut self, area: Area, c: &mut Cursor<'_>) -> Told {
        assert!(area.width <= 2048);
        let control = c.u8();
        for (n, stream) in self.tight.iter_mut().enumerate() {
            if control & 1 << n != 0 {
                *stream = None;
            }
        }
        let count = area.width * area.height;
        match control >> 4 {
            8 => {
                let colour = self.tight_pixel(c);
                self.put(area, vec![colour; count]);
            }
            9 => {
                let length = compact(c);
                let jpeg = c.take(length);
                assert_eq!(jpeg[..2], [0xff, 0xd8]);
                assert_eq!(jpeg[jpeg.len() - 2..], [0xff, 0xd9]);
                return Told::Jpeg;
            }
            basic @ 0..8 => {
                let filter = if basic & 4 != 0 { c.u8() } else { 0 };
                let stream = usize::from(basic & 3);
                match filter {
                    0 => {
                        let size = if self.format.is_packed_in_tight() { 3 } else { self.format.bytes_per_pixel() };
                        let bytes = self.tight_data(stream, count * size, c);
                        let mut c = Cursor(&bytes);
                        let pixels = (0..count).map(|_| self.tight_pixel(&mut c)).collect();
                        self.put(area, pixels);
                    }
                    1 => {
                        let colours = usize::from(c.u8()) + 1;
                        let palette: Vec<u32> = (0..colours).map(|_| self.tight_pixel(c)).collect();
                        let row = if colours == 2 { area.width.div_ceil(8) } else { area.width };
                        let bytes = self.tight_data(stream, row * area.height, c);
                        let pixels = (0..count)
                            .map(|n| {
                                let (x, y) = (n % area.width, n / area.width);
                                let index = match colours {
                                    2 => bytes[y * row + x / 8] >> (7 - x % 8) & 1,
                                    _ => bytes[y * row + x],
                                };
                                palette[usize::from(index)]
                            })
                            .collect();
                        self.put(area, pixels);
                    }
                    other => panic!("filter {other}"),
                }
            }
            other => panic!("control {other}"),
        }
        Told::Pixels
    }

    fn tight_data(&mut self, stream: usize, size: usize, c: &mut Cursor<'_>) -> Vec<u8> {
        if size < 12 {
            return c.take(size).to_vec();
        }
        let length = compact(c);
        inflate(&mut self.tight[stream], c.take(length), size)
    }

    fn hextile(&mut self, area: Area, c: &mut Cursor<'_>) -> Told {
        let (mut background, mut foreground) = (0, 0);
        for top in (0..area.height).step_by(16) {
            for left in (0..area.width).step_by(16) {
                let tile = Area {
                    x: area.x + left,
                    y: area.y + top,
                    width: (area.width - left).min(16),
                    height: (area.height - top).min(16),
                };
                let kind = c.u8();
                if kind & 1 != 0 {
                    let pixels = (0..tile.width * tile.height).map(|_| self.pixel(c)).collect();
                    self.put(tile, pixels);
                    continue;
                }
                if kind & 2 != 0 {
                    background = self.pixel(c);
                }
                if kind & 4 != 0 {
                    foreground = self.pixel(c);
                }
                self.put(tile, vec![background; tile.width * tile.height]);
                for _ in 0..if kind & 8 != 0 { c.u8() } else { 0 } {
                    let colour = if kind & 16 != 0 { self.pixel(c) } else { foreground };
                    let (place, size) = (usize::from(c.u8()), usize::from(c.u8()));
                    let part = Area {
                        x: tile.x + (place >> 4),
                        y: tile.y + (place & 15),
                        width: (size >> 4) + 1,
                        height: (size & 15) + 1,
                    };
                    self.put(part, vec![colour; part.width * part.height]);
                }
            }
        }
        Told::Pixels
    }

    /// A pixel as ZRLE has it.
    fn compact_pixel(&self, c: &mut Cursor<'_>) -> u32 {
        let f = self.format;
        let low = f.max.iter().zip(f.shift).all(|(max, shift)| (u64::from(*max) << shift) < 1 << 24);
        let high = f.shift.iter().all(|shift| *shift >= 8);
        if f.bits != 32 || f.depth > 24 || !(low || high) {
            return self.pixel(c);
        }
        let b: [u32; 3] = std::array::from_fn(|_| c.u8().into());
        let value = if f.big_endian { b[0] << 16 | b[1] << 8 | b[2] } else { b[2] << 16 | b[1] << 8 | b[0] };
        self.colour(if low { value } else { value << 8 })
    }

    fn zrle_tiles(&mut self, area: Area, bytes: &[u8]) {
        let c = &mut Cursor(bytes);
        for top in (0..area.height).step_by(64) {
            for left in (0..area.width).step_by(64) {
                let tile = Area {
                    x: area.x + left,
                    y: area.y + top,
                    width: (area.width - left).min(64),
                    height: (area.height - top).min(64),
                };
                let count = tile.width * tile.height;
                let kind = c.u8();
                let palette: Vec<u32> = (0..kind & 127).map(|_| self.compact_pixel(c)).collect();
                let mut pixels = Vec::with_capacity(count);
                match kind {
                    0 => pixels.extend((0..count).map(|_| self.compact_pixel(c))),
                    1 => pixels.resize(count, palette[0]),
                    2..=16 => {
                        let bits = match kind {
                            2 => 1,
                            3..=4 => 2,
                            _ => 4,
                        };
                        for _ in 0..tile.height {
                            let row = c.take((tile.width * bits).div_ceil(8));
                            pixels.extend((0..tile.width).map(|x| {
                                let at = x * bits;
                                palette[usize::from(row[at / 8] >> (8 - bits - at % 8)) & ((1 << bits) - 1)]
                            }));
                        }
                    }
                    128 => {
                        while pixels.len() < count {
                            let pixel = self.compact_pixel(c);
                            pixels.extend(std::iter::repeat_n(pixel, run(c)));
                        }
                    }
                    130.. => {
                        while pixels.len() < count {
                            let index = c.u8();
                            let length = if index & 128 != 0 { run(c) } else { 1 };
                            pixels.extend(std::iter::repeat_n(palette[usize::from(index & 127)], length));
                        }
                    }
                    other => panic!("tile {other}"),
                }
                self.put(tile, pixels);
            }
        }
        assert!(c.0.is_empty());
    }
}

fn run(c: &mut Cursor<'_>) -> usize {
    let mut length = 1;
    loop {
        let byte = c.u8();
        length += usize::from(byte);
        if byte != 255 {
            return length;
        }
    }
}

fn compact(c: &mut Cursor<'_>) -> usize {
    let mut length = 0;
    for n in 0..3 {
        let byte = usize::from(c.u8());
        length |= if n == 2 { byte << 14 } else { (byte & 127) << (7 * n) };
        if byte & 128 == 0 {
            break;
        }
    }
    length
}

fn inflate(stream: &mut Option<Decompress>, bytes: &[u8], size: usize) -> Vec<u8> {
    let got = inflate_all(stream, bytes);
    assert_eq!(got.len(), size);
    got
}

fn inflate_all(stream: &mut Option<Decompress>, mut bytes: &[u8]) -> Vec<u8> {
    let stream = stream.get_or_insert_with(|| Decompress::new(true));
    let mut out = Vec::new();
    loop {
        out.reserve(64 * 1024);
        let (before_in, before_out) = (stream.total_in(), stream.total_out());
        stream.decompress_vec(bytes, &mut out, FlushDecompress::Sync).unwrap();
        bytes = &bytes[(stream.total_in() - before_in) as usize..];
        if bytes.is_empty() && stream.total_out() == before_out {
            return out;
        }
    }
}
