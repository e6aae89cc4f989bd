//! Every encoding in every pixel format, read back by a decoder that shares no code with it.

use super::*;
use crate::view::decode::{Canvas, Cursor, Told};
use hotdesk_api::action::Size;
use proptest::prelude::*;

const WIDTH: usize = 200;
const HEIGHT: usize = 150;

/// A screen with text-like, plain, two-coloured and photo-like parts.
fn screen(seed: u32) -> Vec<u32> {
    let mut random = seed | 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random
    };
    let kinds: Vec<u32> = (0..12).map(|_| next() % 5).collect();
    let plain = next() & 0xff_ffff;
    (0..WIDTH * HEIGHT)
        .map(|n| {
            let (x, y) = (n % WIDTH, n / WIDTH);
            match kinds[(y / 50) * 4 + x / 50] {
                0 => plain,
                1 => [0, 0xff_ffff][(next() % 2) as usize],
                2 => (next() % 40) * 0x06_0504,
                3 => next() & 0xff_ffff,
                _ => (x / 9 * 0x01_0000 + y / 7) as u32,
            }
        })
        .collect()
}

fn formats() -> Vec<PixelFormat> {
    let native = PixelFormat::NATIVE;
    let r5g6b5 = PixelFormat { bits: 16, depth: 16, big_endian: false, max: [31, 63, 31], shift: [11, 5, 0] };
    vec![
        native,
        PixelFormat { shift: [0, 8, 16], ..native },
        PixelFormat { shift: [24, 16, 8], ..native },
        PixelFormat { big_endian: true, ..native },
        PixelFormat { big_endian: true, shift: [8, 16, 24], ..native },
        PixelFormat { depth: 32, ..native },
        PixelFormat { shift: [0, 12, 22], max: [1023, 1023, 255], depth: 30, ..native },
        r5g6b5,
        PixelFormat { big_endian: true, ..r5g6b5 },
        PixelFormat { depth: 15, max: [31, 31, 31], shift: [10, 5, 0], ..r5g6b5 },
        PixelFormat::EIGHT_BIT,
    ]
}

/// What a format leaves of a screen.
fn seen(format: PixelFormat, pixels: &[u32]) -> Vec<u32> {
    let mut bytes = Vec::new();
    Translator::new(format).write(pixels, &mut bytes);
    let size = Size { width: pixels.len() as u32, height: 1 };
    let mut canvas = Canvas::new(size, format);
    let mut body = Body::default();
    body.rect(0, 0, size.width as u16, 1, 0);
    body.bytes.extend(bytes);
    canvas.rect(&mut Cursor(&body.bytes));
    canvas.pixels
}

fn part(pixels: &[u32], x: usize, y: usize, width: usize, height: usize) -> Vec<u32> {
    (y..y + height).flat_map(|y| &pixels[y * WIDTH + x..y * WIDTH + x + width]).copied().collect()
}

fn decode(canvas: &mut Canvas, body: &Body) -> Vec<Told> {
    let mut c = Cursor(&body.bytes);
    let told = (0..body.rects).map(|_| canvas.rect(&mut c)).collect();
    assert!(c.0.is_empty(), "nothing is left over");
    told
}

const SIZE: Size = Size { width: WIDTH as u32, height: HEIGHT as u32 };

/// Sends whole screens and parts of them through one stream.
fn round_trip(number: i32, format: PixelFormat, seed: u32) {
    let mut encoder = Encoder::default();
    encoder.set_wishes(Wishes::new(&[number]));
    encoder.set_format(format);
    let mut canvas = Canvas::new(SIZE, format);
    for turn in 0..2 {
        let screen = screen(seed.wrapping_mul(31).wrapping_add(turn));
        if turn == 1 {
            // A viewer may change its mind about compression.
            encoder.set_wishes(Wishes::new(&[number, -250]));
        }
        let mut body = Body::default();
        for (x, y, width, height) in [(0, 0, WIDTH, 70), (0, 70, 33, 80), (33, 70, 1, 80), (34, 70, WIDTH - 34, 80)] {
            let pixels = part(&screen, x, y, width, height);
            let block = Block { x: x as u16, y: y as u16, width: width as u16, height: height as u16, pixels: &pixels };
            encoder.encode(block, true, &mut body).unwrap();
        }
        assert!(body.lossy.is_empty());
        decode(&mut canvas, &body);
        assert!(canvas.pixels == seen(format, &screen), "encoding {number}, {format:?}");
    }
}

#[test]
fn every_encoding_in_every_format_gives_the_screen() {
    for number in [0, 5, 6, 7, 16] {
        for format in formats() {
            round_trip(number, format, 7);
        }
    }
}

#[test]
fn photographs_become_jpeg_only_with_leave_and_are_remembered() {
    let noise: Vec<u32> = (0..128 * 128u32).map(|n| n.wrapping_mul(2_654_435_761) >> 8).collect();
    let block = Block { x: 0, y: 0, width: 128, height: 128, pixels: &noise };
    let size = Size { width: 128, height: 128 };
    for (wishes, exact, jpeg) in [(&[7, -26][..], false, true), (&[7, -26], true, false), (&[7], false, false)] {
        let mut encoder = Encoder::default();
        encoder.set_wishes(Wishes::new(wishes));
        let mut body = Body::default();
        encoder.encode(block, exact, &mut body).unwrap();
        let told = decode(&mut Canvas::new(size, PixelFormat::NATIVE), &body);
        assert_eq!(told.contains(&Told::Jpeg), jpeg);
        let lossy: u32 = body.lossy.iter().map(|r| r.width * r.height).sum();
        assert_eq!(lossy, if jpeg { 128 * 128 } else { 0 });
    }
}

#[test]
fn plain_areas_cost_next_to_nothing() {
    let blue = vec![0x33_5577; 1920 * 1080];
    let mut encoder = Encoder::default();
    encoder.set_wishes(Wishes::new(&[7]));
    let mut body = Body::default();
    encoder.encode(Block { x: 0, y: 0, width: 1920, height: 1080, pixels: &blue }, true, &mut body).unwrap();
    assert!(body.bytes.len() < 400, "{}", body.bytes.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn any_screen_comes_through(seed: u32, number in prop::sample::select(vec![5, 6, 7, 16]), format in prop::sample::select(formats())) {
        round_trip(number, format, seed);
    }
}
