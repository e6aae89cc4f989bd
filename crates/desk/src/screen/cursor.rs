//! The pointer's picture, and the two ways of painting it.

use super::Cursor;
use super::frame::{PIXEL, clip};
use hotdesk_api::action::{Point, Rect, Size};
use std::sync::Arc;

/// Where the pointer is and what it looks like.
#[derive(Debug, Clone)]
pub struct CursorImage {
    /// Position of the hot spot.
    pub x: i32,
    pub y: i32,
    /// The same `Arc` as long as the shape stays the same.
    pub shape: Arc<CursorShape>,
    /// Grows with every move and every change of shape.
    pub version: u64,
}

/// What the pointer looks like.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CursorShape {
    pub width: u32,
    pub height: u32,
    /// The pixel of the shape that lies at the pointer's position.
    pub hot_x: i32,
    pub hot_y: i32,
    /// `0xAARRGGBB`, colours premultiplied with alpha, row by row.
    pub pixels: Vec<u32>,
}

impl CursorImage {
    /// A pointer without a picture.
    pub(crate) fn none() -> Self {
        Self { x: 0, y: 0, shape: Arc::default(), version: 0 }
    }

    pub fn position(&self) -> Point {
        Point { x: self.x, y: self.y }
    }

    /// What painting in this manner touches on a screen of this size.
    pub(crate) fn area(&self, manner: Cursor, size: Size) -> Option<Rect> {
        let shape = &self.shape;
        let (x, y) = match manner {
            Cursor::Hidden => return None,
            Cursor::True => (self.x - shape.hot_x, self.y - shape.hot_y),
            Cursor::Osworld => (self.x, self.y),
        };
        clip(Rect { x, y, width: shape.width, height: shape.height }, size)
    }

    /// Paints onto a part of the screen whose top left corner is `origin` and whose rows are `width` pixels long.
    pub(crate) fn paint(&self, manner: Cursor, pixels: &mut [u8], origin: Point, width: u32) {
        if width == 0 {
            return;
        }
        let size = Size { width, height: (pixels.len() / (width as usize * PIXEL)) as u32 };
        let moved = Self { x: self.x - origin.x, y: self.y - origin.y, ..self.clone() };
        let Some(area) = moved.area(manner, size) else { return };
        let (left, top) = match manner {
            Cursor::True => (moved.x - self.shape.hot_x, moved.y - self.shape.hot_y),
            _ => (moved.x, moved.y),
        };
        let blend = if manner == Cursor::Osworld { blend_osworld } else { blend_true };
        for y in area.y..area.y + area.height as i32 {
            for x in area.x..area.x + area.width as i32 {
                let from = (y - top) as usize * self.shape.width as usize + (x - left) as usize;
                let to = (y as usize * width as usize + x as usize) * PIXEL;
                let (Some(&argb), Some(pixel)) = (self.shape.pixels.get(from), pixels.get_mut(to..to + 3)) else { continue };
                blend(argb, pixel);
            }
        }
    }
}

/// Premultiplied colours over an opaque background, `pixel` being blue, green, red.
fn blend_true(argb: u32, pixel: &mut [u8]) {
    let [b, g, r, a] = argb.to_le_bytes();
    let rest = 255 - u32::from(a);
    for (out, colour) in pixel.iter_mut().zip([b, g, r]) {
        *out = (u32::from(colour) + (u32::from(*out) * rest + 127) / 255).min(255) as u8;
    }
}

/// As OSWorld's server does it: red and blue swapped, and premultiplied colours multiplied once more.
fn blend_osworld(argb: u32, pixel: &mut [u8]) {
    let [b, g, r, a] = argb.to_le_bytes();
    let (a, rest) = (u32::from(a), 255 - u32::from(a));
    for (out, colour) in pixel.iter_mut().zip([r, g, b]) {
        *out = ((u32::from(colour) * a + u32::from(*out) * rest) / 255) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(x: i32, y: i32, hot: i32, pixels: &[u32], width: u32) -> CursorImage {
        let shape = CursorShape { width, height: pixels.len() as u32 / width, hot_x: hot, hot_y: hot, pixels: pixels.to_vec() };
        CursorImage { x, y, shape: Arc::new(shape), version: 1 }
    }

    /// Paints on a 4×4 screen of one grey and returns the pixel at a place as red, green, blue.
    fn painted(image: &CursorImage, manner: Cursor, at: (usize, usize)) -> [u8; 3] {
        let mut screen = vec![100; 4 * 4 * PIXEL];
        image.paint(manner, &mut screen, Point { x: 0, y: 0 }, 4);
        let at = (at.1 * 4 + at.0) * PIXEL;
        [screen[at + 2], screen[at + 1], screen[at]]
    }

    #[test]
    fn true_cursor_minds_the_hot_spot_and_colours() {
        let red = image(2, 2, 1, &[0xFFFF_0000], 1);
        assert_eq!(painted(&red, Cursor::True, (1, 1)), [255, 0, 0]);
        assert_eq!(painted(&red, Cursor::True, (2, 2)), [100, 100, 100]);
    }

    #[test]
    fn true_cursor_blends_premultiplied() {
        // Half transparent white: 128 + 100 * 127 / 255.
        assert_eq!(painted(&image(0, 0, 0, &[0x8080_8080], 1), Cursor::True, (0, 0)), [178, 178, 178]);
        // A colour above its alpha is against the rules, but must not wrap around.
        assert_eq!(painted(&image(0, 0, 0, &[0x01FF_FFFF], 1), Cursor::True, (0, 0)), [255, 255, 255]);
    }

    #[test]
    fn osworld_cursor_ignores_the_hot_spot_and_swaps_red_and_blue() {
        let red = image(2, 2, 1, &[0xFFFF_0000], 1);
        assert_eq!(painted(&red, Cursor::Osworld, (2, 2)), [0, 0, 255]);
        assert_eq!(painted(&red, Cursor::Osworld, (1, 1)), [100, 100, 100]);
    }

    #[test]
    fn osworld_cursor_blends_as_if_straight() {
        let expect = |c: u32| ((c * 128 + 100 * 127) / 255) as u8;
        let got = painted(&image(0, 0, 0, &[0x8040_2010], 1), Cursor::Osworld, (0, 0));
        assert_eq!(got, [expect(0x10), expect(0x20), expect(0x40)]);
    }

    #[test]
    fn hidden_cursor_touches_nothing() {
        let red = image(2, 2, 1, &[0xFFFF_0000], 1);
        assert_eq!(painted(&red, Cursor::Hidden, (2, 2)), [100, 100, 100]);
        assert_eq!(red.area(Cursor::Hidden, Size { width: 4, height: 4 }), None);
    }

    #[test]
    fn every_edge_clips() {
        let block = [0xFF00_00FFu32; 16];
        for (x, y) in [(-2, -2), (3, 3), (-2, 3), (3, -2), (-4, 0), (4, 4), (i32::MAX / 2, i32::MIN / 2)] {
            for manner in [Cursor::True, Cursor::Osworld] {
                let image = image(x, y, 0, &block, 4);
                let mut screen = vec![0; 4 * 4 * PIXEL];
                image.paint(manner, &mut screen, Point { x: 0, y: 0 }, 4);
                let touched = screen.chunks(PIXEL).filter(|p| p[..3] != [0, 0, 0]).count();
                let area = image.area(manner, Size { width: 4, height: 4 }).map_or(0, |a| a.width * a.height);
                assert_eq!(touched as u32, area, "at {x}, {y}");
            }
        }
    }

    #[test]
    fn painting_on_a_part_of_the_screen() {
        let image = image(10, 10, 0, &[0xFF00_00FF; 4], 2);
        let mut part = vec![0; 3 * 3 * PIXEL];
        image.paint(Cursor::True, &mut part, Point { x: 9, y: 9 }, 3);
        let blue: Vec<usize> = part.chunks(PIXEL).enumerate().filter(|(_, p)| p[0] == 255).map(|(n, _)| n).collect();
        assert_eq!(blue, vec![4, 5, 7, 8]);
    }
}
