//! Pixel formats: what a viewer asks for and how our pixels are written in it.
//!
//! Inside the view a pixel is a `u32` of the form `0x00RRGGBB`.

/// How one viewer wants its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PixelFormat {
    pub bits: u8,
    pub depth: u8,
    pub big_endian: bool,
    /// Largest value of red, green and blue; always a power of two less one.
    pub max: [u16; 3],
    pub shift: [u8; 3],
}

/// What `SetPixelFormat` asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    TrueColour(PixelFormat),
    /// Eight bits through a table of colours, which we have to send.
    ColourMap,
}

impl PixelFormat {
    /// Our own format, offered to every viewer: that of nearly all X servers, so nothing is converted.
    pub(super) const NATIVE: Self = Self { bits: 32, depth: 24, big_endian: false, max: [255, 255, 255], shift: [16, 8, 0] };

    /// Eight bits: three of red, three of green, two of blue. Stands in for every colour map.
    pub(super) const EIGHT_BIT: Self = Self { bits: 8, depth: 8, big_endian: false, max: [7, 7, 3], shift: [0, 3, 6] };

    /// Reads the 16 bytes of the protocol. The error is a sentence about what is wrong.
    pub(super) fn parse(b: &[u8; 16]) -> Result<Wanted, &'static str> {
        let bits = b[0];
        if !matches!(bits, 8 | 16 | 32) {
            return Err("a pixel format has 8, 16 or 32 bits per pixel");
        }
        if b[3] == 0 {
            return if bits == 8 { Ok(Wanted::ColourMap) } else { Err("a colour map needs 8 bits per pixel") };
        }
        let max = [u16::from_be_bytes([b[4], b[5]]), u16::from_be_bytes([b[6], b[7]]), u16::from_be_bytes([b[8], b[9]])];
        let shift = [b[10], b[11], b[12]];
        for (max, shift) in max.into_iter().zip(shift) {
            let width = (u32::from(max) + 1).trailing_zeros();
            if max == 0 || (u32::from(max) + 1).count_ones() != 1 {
                return Err("the largest value of a colour is a power of two less one");
            }
            if u32::from(shift) + width > u32::from(bits) {
                return Err("a colour lies outside of its pixel");
            }
        }
        Ok(Wanted::TrueColour(Self { bits, depth: b[1], big_endian: b[2] != 0, max, shift }))
    }

    pub(super) fn bytes(&self) -> [u8; 16] {
        let mut b = [0; 16];
        b[0] = self.bits;
        b[1] = self.depth;
        b[2] = self.big_endian.into();
        b[3] = 1;
        for (i, max) in self.max.iter().enumerate() {
            b[4 + 2 * i..6 + 2 * i].copy_from_slice(&max.to_be_bytes());
        }
        b[10..13].copy_from_slice(&self.shift);
        b
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn bytes_per_pixel(&self) -> usize {
        usize::from(self.bits / 8)
    }

    /// Whether Tight sends three bytes (red, green, blue) for a pixel instead of the whole pixel.
    pub(super) fn is_packed_in_tight(&self) -> bool {
        self.bits == 32 && self.depth == 24 && self.max == [255; 3]
    }
}

/// Writes pixels in one format.
#[derive(Debug, Clone)]
pub(super) struct Translator {
    format: PixelFormat,
    /// For each colour and each of its values: the bits of the pixel. Empty for the native format.
    tables: Vec<[u32; 256]>,
}

impl Translator {
    pub(super) fn new(format: PixelFormat) -> Self {
        let table = |i: usize| {
            let max = u32::from(format.max[i]);
            let mut table = [0; 256];
            for (value, bits) in (0u32..).zip(table.iter_mut()) {
                *bits = ((value * max + 127) / 255) << format.shift[i];
            }
            table
        };
        let native = PixelFormat { depth: format.depth, ..PixelFormat::NATIVE } == format;
        Self { format, tables: if native { Vec::new() } else { (0..3).map(table).collect() } }
    }

    pub(super) fn format(&self) -> &PixelFormat {
        &self.format
    }

    /// Appends pixels in the viewer's format.
    pub(super) fn write(&self, pixels: &[u32], out: &mut Vec<u8>) {
        let [red, green, blue] = self.tables.as_slice() else {
            out.extend(pixels.iter().flat_map(|p| p.to_le_bytes()));
            return;
        };
        let value = |p: &u32| red[(p >> 16) as usize & 255] | green[(p >> 8) as usize & 255] | blue[*p as usize & 255];
        match (self.format.bits, self.format.big_endian) {
            (8, _) => out.extend(pixels.iter().map(|p| value(p) as u8)),
            (16, false) => out.extend(pixels.iter().flat_map(|p| (value(p) as u16).to_le_bytes())),
            (16, true) => out.extend(pixels.iter().flat_map(|p| (value(p) as u16).to_be_bytes())),
            (_, false) => out.extend(pixels.iter().flat_map(|p| value(p).to_le_bytes())),
            (_, true) => out.extend(pixels.iter().flat_map(|p| value(p).to_be_bytes())),
        }
    }

    /// Appends pixels as Tight wants them.
    pub(super) fn write_tight(&self, pixels: &[u32], out: &mut Vec<u8>) {
        if self.format.is_packed_in_tight() {
            out.extend(pixels.iter().flat_map(|p| [(p >> 16) as u8, (p >> 8) as u8, *p as u8]));
        } else {
            self.write(pixels, out);
        }
    }
}

/// `SetColourMapEntries` for a viewer that wants a colour map: [`PixelFormat::EIGHT_BIT`] as a table.
pub(super) fn colour_map() -> Vec<u8> {
    let mut out = vec![1, 0, 0, 0, 1, 0];
    for entry in 0..256u32 {
        let format = PixelFormat::EIGHT_BIT;
        for (max, shift) in format.max.into_iter().zip(format.shift) {
            let value = (entry >> shift) & u32::from(max);
            out.extend(((value * 65535 / u32::from(max)) as u16).to_be_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(format: PixelFormat, pixel: u32) -> Vec<u8> {
        let mut out = Vec::new();
        Translator::new(format).write(&[pixel], &mut out);
        out
    }

    #[test]
    fn native_pixels_stay_as_they_are() {
        assert_eq!(written(PixelFormat::NATIVE, 0x0012_3456), [0x56, 0x34, 0x12, 0]);
    }

    #[test]
    fn thirty_two_bits_in_any_order() {
        let rgbx = PixelFormat { shift: [0, 8, 16], ..PixelFormat::NATIVE };
        assert_eq!(written(rgbx, 0x0012_3456), [0x12, 0x34, 0x56, 0]);
        let big = PixelFormat { big_endian: true, shift: [24, 16, 8], ..PixelFormat::NATIVE };
        assert_eq!(written(big, 0x0012_3456), [0x12, 0x34, 0x56, 0]);
    }

    #[test]
    fn fewer_bits_keep_black_white_and_the_primaries() {
        let r5g6b5 = PixelFormat { bits: 16, depth: 16, big_endian: false, max: [31, 63, 31], shift: [11, 5, 0] };
        assert_eq!(written(r5g6b5, 0x00ff_ffff), 0xffffu16.to_le_bytes());
        assert_eq!(written(r5g6b5, 0x00ff_0000), 0xf800u16.to_le_bytes());
        assert_eq!(written(PixelFormat { big_endian: true, ..r5g6b5 }, 0x0000_ff00), 0x07e0u16.to_be_bytes());
        assert_eq!(written(PixelFormat::EIGHT_BIT, 0x00ff_ff00), [0b0011_1111]);
        assert_eq!(written(PixelFormat::EIGHT_BIT, 0), [0]);
    }

    #[test]
    fn the_colour_map_is_whole() {
        let map = colour_map();
        assert_eq!(map.len(), 6 + 256 * 6);
        assert_eq!(map[map.len() - 6..], [0xff; 6]);
    }

    #[test]
    fn impossible_formats_are_refused() {
        let mut b = PixelFormat::NATIVE.bytes();
        b[0] = 24;
        assert!(PixelFormat::parse(&b).is_err());
        let mut b = PixelFormat::NATIVE.bytes();
        b[10] = 200;
        assert!(PixelFormat::parse(&b).is_err());
        let mut b = PixelFormat::NATIVE.bytes();
        b[4..6].copy_from_slice(&[0, 0]);
        assert!(PixelFormat::parse(&b).is_err());
    }

    proptest! {
        #[test]
        fn any_accepted_format_can_be_written(b: [u8; 16], pixels: Vec<u32>) {
            if let Ok(Wanted::TrueColour(format)) = PixelFormat::parse(&b) {
                let mut out = Vec::new();
                Translator::new(format).write(&pixels, &mut out);
                prop_assert_eq!(out.len(), pixels.len() * format.bytes_per_pixel());
                prop_assert_eq!(PixelFormat::parse(&format.bytes()), Ok(Wanted::TrueColour(format)));
            }
        }
    }
}
