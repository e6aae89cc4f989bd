//! The pointer, as a viewer shows it: told by its shape, or painted into the pixels.

use super::encode::Body;
use super::pixel::Translator;
use super::wishes::{CursorWish, pseudo};
use crate::screen::{CursorImage, CursorShape};
use hotdesk_api::action::Rect;

/// Largest side of a shape that is sent. X's own are at most 64 or so; a program can make any.
const LARGEST: u32 = 256;

/// Appends the shape in the way that the viewer knows. An empty shape hides the viewer's pointer.
pub(super) fn tell(shape: &CursorShape, wish: CursorWish, translator: &Translator, body: &mut Body) {
    let hidden = CursorShape { width: 1, height: 1, hot_x: 0, hot_y: 0, pixels: vec![0] };
    let whole = shape.pixels.len() == shape.width as usize * shape.height as usize;
    let shape =
        if whole && (1..=LARGEST).contains(&shape.width) && (1..=LARGEST).contains(&shape.height) { shape } else { &hidden };
    let (width, height) = (shape.width as u16, shape.height as u16);
    let (x, y) = (shape.hot_x.clamp(0, i32::from(width) - 1) as u16, shape.hot_y.clamp(0, i32::from(height) - 1) as u16);
    match wish {
        CursorWish::WithAlpha => {
            body.rect(x, y, width, height, pseudo::CURSOR_WITH_ALPHA);
            body.bytes.extend([0; 4]);
            body.bytes.extend(shape.pixels.iter().flat_map(|p| [(p >> 16) as u8, (p >> 8) as u8, *p as u8, (p >> 24) as u8]));
        }
        CursorWish::Vmware => {
            body.rect(x, y, width, height, pseudo::VMWARE_CURSOR);
            body.bytes.extend([1, 0]);
            body.bytes.extend(shape.pixels.iter().flat_map(|p| {
                let [red, green, blue] = straight(*p);
                [red, green, blue, (p >> 24) as u8]
            }));
        }
        CursorWish::Plain => {
            body.rect(x, y, width, height, pseudo::CURSOR);
            let colours: Vec<u32> =
                shape.pixels.iter().map(|p| u32::from_be_bytes([0, straight(*p)[0], straight(*p)[1], straight(*p)[2]])).collect();
            translator.write(&colours, &mut body.bytes);
            for row in shape.pixels.chunks(usize::from(width)) {
                let bits =
                    |eight: &[u32]| eight.iter().enumerate().fold(0, |bits, (n, p)| bits | u8::from(p >> 31 != 0) << (7 - n));
                body.bytes.extend(row.chunks(8).map(bits));
            }
        }
    }
}

/// Colours without the alpha that they were multiplied with.
fn straight(pixel: u32) -> [u8; 3] {
    let alpha = pixel >> 24;
    [pixel >> 16, pixel >> 8, pixel].map(|colour| match alpha {
        0 => 0,
        _ => ((colour & 255) * 255 / alpha).min(255) as u8,
    })
}

/// What painting the pointer touches, not cut to the screen.
pub(super) fn area(cursor: &CursorImage) -> Rect {
    let shape = &cursor.shape;
    Rect {
        x: cursor.x.saturating_sub(shape.hot_x),
        y: cursor.y.saturating_sub(shape.hot_y),
        width: shape.width,
        height: shape.height,
    }
}

/// Paints the pointer onto a part of the screen.
pub(super) fn paint(cursor: &CursorImage, part: Rect, pixels: &mut [u32]) {
    let (place, width) = (area(cursor), part.width as usize);
    for (y, row) in (i64::from(place.y)..).zip(cursor.shape.pixels.chunks(cursor.shape.width.max(1) as usize)) {
        for (x, &over) in (i64::from(place.x)..).zip(row) {
            let (Some(x), Some(y)) = (within(x, part.x, part.width), within(y, part.y, part.height)) else { continue };
            if let Some(under) = pixels.get_mut(y * width + x) {
                *under = blend(over, *under);
            }
        }
    }
}

fn within(at: i64, start: i32, length: u32) -> Option<usize> {
    usize::try_from(at - i64::from(start)).ok().filter(|n| *n < length as usize)
}

fn blend(over: u32, under: u32) -> u32 {
    let rest = 255 - (over >> 24);
    [16, 8, 0].into_iter().fold(0, |pixel, shift| {
        let colour = ((over >> shift) & 255) + (((under >> shift) & 255) * rest + 127) / 255;
        pixel << 8 | colour.min(255)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::pixel::PixelFormat;
    use std::sync::Arc;

    fn shape() -> CursorShape {
        // Opaque red, half transparent white, nothing; a row of 3 and one more row.
        CursorShape { width: 3, height: 2, hot_x: 1, hot_y: 0, pixels: vec![0xffff_0000, 0x8080_8080, 0, 0, 0, 0xff00_00ff] }
    }

    fn told(wish: CursorWish) -> Vec<u8> {
        let mut body = Body::default();
        tell(&shape(), wish, &Translator::new(PixelFormat::NATIVE), &mut body);
        assert_eq!(body.rects, 1);
        assert_eq!(body.bytes[..8], [0, 1, 0, 0, 0, 3, 0, 2]);
        body.bytes[12..].to_vec()
    }

    #[test]
    fn shapes_are_told_in_every_way() {
        assert_eq!(told(CursorWish::WithAlpha)[..12], [0, 0, 0, 0, 255, 0, 0, 255, 128, 128, 128, 128]);
        assert_eq!(told(CursorWish::Vmware)[..10], [1, 0, 255, 0, 0, 255, 255, 255, 255, 128]);
        let plain = told(CursorWish::Plain);
        assert_eq!(plain[..8], [0, 0, 255, 0, 255, 255, 255, 0]);
        assert_eq!(plain[24..], [0b1100_0000, 0b0010_0000]);
    }

    #[test]
    fn what_can_not_be_sent_is_hidden() {
        let huge = CursorShape { width: 5000, height: 1, hot_x: 0, hot_y: 0, pixels: vec![0; 5000] };
        for shape in [huge, CursorShape::default(), CursorShape { width: 9, ..shape() }] {
            let mut body = Body::default();
            tell(&shape, CursorWish::WithAlpha, &Translator::new(PixelFormat::NATIVE), &mut body);
            assert_eq!(body.bytes[4..8], [0, 1, 0, 1]);
        }
    }

    #[test]
    fn painting_stays_on_the_part() {
        for (x, y) in [(-1, -1), (0, 0), (3, 3), (i32::MAX, i32::MIN), (i32::MIN, i32::MAX)] {
            let cursor = CursorImage { x, y, shape: Arc::new(shape()), version: 1 };
            let mut pixels = vec![0; 16];
            paint(&cursor, Rect { x: 0, y: 0, width: 4, height: 4 }, &mut pixels);
        }
        let cursor = CursorImage { x: 11, y: 20, shape: Arc::new(shape()), version: 1 };
        let mut pixels = vec![0x0064_6464; 6];
        paint(&cursor, Rect { x: 10, y: 20, width: 3, height: 2 }, &mut pixels);
        assert_eq!(pixels, [0xff_0000, 0xb2_b2b2, 0x64_6464, 0x64_6464, 0x64_6464, 0x00_00ff]);
    }
}
