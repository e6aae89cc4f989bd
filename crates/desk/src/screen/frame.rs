//! The pixels of one moment, and which of them are newer than a version that somebody knows.

use super::memory::Memory;
use hotdesk_api::action::{Rect, Size};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a pixel: blue, green, red and one that means nothing.
pub const PIXEL: usize = 4;

/// Changes are tracked by tiles of this size. The height is that of a strip of the PNG, so that a row of tiles
/// tells whether a strip is still good; the width keeps a blinking text cursor at 4 KB.
pub(crate) const TILE_WIDTH: usize = 64;
pub(crate) const TILE_HEIGHT: usize = 16;

/// More rectangles than this are merged into fewer, larger ones.
const MOST_RECTS: usize = 128;

/// One consistent picture of the screen, without the pointer.
///
/// The capture engine writes the next picture into the same memory when nobody else holds this one, and copies it
/// otherwise: hold a frame while reading it, not while waiting for a slow client.
#[derive(Clone)]
pub struct Frame {
    size: Size,
    version: u64,
    pixels: Memory,
    /// The version in which each tile last changed, row by row.
    tiles: Vec<u64>,
}

impl Frame {
    /// A black picture. All of it counts as changed in `version`.
    pub(crate) fn black(size: Size, version: u64) -> Self {
        let bytes = size.width as usize * size.height as usize * PIXEL;
        let tiles = columns(size) * rows(size);
        Self { size, version, pixels: Memory::new(bytes), tiles: vec![version; tiles] }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    /// Grows with every change of the picture.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Bytes from one row to the next.
    pub fn stride(&self) -> usize {
        self.size.width as usize * PIXEL
    }

    /// All rows, each pixel as the bytes B, G, R, X.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// One row; empty when there is no such row.
    pub fn row(&self, y: u32) -> &[u8] {
        let start = y as usize * self.stride();
        self.pixels.get(start..start + self.stride()).unwrap_or(&[])
    }

    /// Consecutive rows; empty when not all of them exist.
    pub fn rows(&self, rows: Range<u32>) -> &[u8] {
        let stride = self.stride();
        self.pixels.get(rows.start as usize * stride..rows.end as usize * stride).unwrap_or(&[])
    }

    /// The whole picture as a rectangle.
    pub fn area(&self) -> Rect {
        Rect { x: 0, y: 0, width: self.size.width, height: self.size.height }
    }

    /// What changed after `version`, as rectangles that do not overlap. Version 0 is before everything.
    pub fn changed_since(&self, version: u64) -> Vec<Rect> {
        if version >= self.version {
            return Vec::new();
        }
        let columns = columns(self.size).max(1);
        // Rectangles still growing downwards, with their columns.
        let mut open: Vec<(Range<usize>, Rect)> = Vec::new();
        let mut done = Vec::new();
        for (row, tiles) in self.tiles.chunks(columns).enumerate() {
            let top = (row * TILE_HEIGHT) as u32;
            let height = (TILE_HEIGHT as u32).min(self.size.height - top);
            let mut next = Vec::new();
            for run in runs(tiles, version) {
                match open.iter().position(|(r, _)| *r == run) {
                    Some(n) => {
                        let (run, mut rect) = open.swap_remove(n);
                        rect.height += height;
                        next.push((run, rect));
                    }
                    None => {
                        let x = (run.start * TILE_WIDTH) as u32;
                        let width = ((run.end * TILE_WIDTH) as u32).min(self.size.width) - x;
                        next.push((run, Rect { x: x as i32, y: top as i32, width, height }));
                    }
                }
            }
            done.extend(open.into_iter().map(|(_, rect)| rect));
            open = next;
        }
        done.extend(open.into_iter().map(|(_, rect)| rect));
        if done.len() > MOST_RECTS {
            done = vec![bounds(&done)];
        }
        done.sort_by_key(|r| (r.y, r.x));
        done
    }

    /// The version in which anything inside `rect` last changed (in steps of tiles).
    pub fn version_within(&self, rect: Rect) -> u64 {
        let Some(rect) = clip(rect, self.size) else { return 0 };
        let (x, y) = (rect.x as usize, rect.y as usize);
        let across = x / TILE_WIDTH..(x + rect.width as usize).div_ceil(TILE_WIDTH);
        let down = y / TILE_HEIGHT..(y + rect.height as usize).div_ceil(TILE_HEIGHT);
        let columns = columns(self.size);
        down.filter_map(|row| self.tiles.get(row * columns + across.start..row * columns + across.end))
            .flatten()
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// The version in which a row of tiles last changed.
    pub(crate) fn version_of_strip(&self, strip: usize) -> u64 {
        let columns = columns(self.size);
        self.tiles.get(strip * columns..(strip + 1) * columns).unwrap_or(&[]).iter().copied().max().unwrap_or(0)
    }
}

/// Takes freshly captured rows that begin with row `first` over into the frame. Rows that are as they were are left alone, so damage that
/// changed nothing costs one comparison. Returns whether anything changed; the frame then has `version`.
pub(crate) fn absorb(frame: &mut Arc<Frame>, first: u32, fresh: &[u8], version: u64) -> bool {
    let stride = frame.stride();
    if stride == 0 {
        return false;
    }
    let mut changed = false;
    for (n, new) in fresh.chunks_exact(stride).enumerate() {
        let y = first as usize + n;
        match frame.pixels.get(y * stride..(y + 1) * stride) {
            Some(old) if old != new => {}
            _ => continue,
        }
        changed = true;
        // Copies the frame if a reader holds it, once; afterwards it is ours alone.
        let frame = Arc::make_mut(frame);
        frame.version = version;
        let columns = columns(frame.size);
        let start = y / TILE_HEIGHT * columns;
        let old = &mut frame.pixels[y * stride..(y + 1) * stride];
        let tiles = &mut frame.tiles[start..start + columns];
        for ((old, new), tile) in old
            .chunks_mut(TILE_WIDTH * PIXEL)
            .zip(new.chunks(TILE_WIDTH * PIXEL))
            .zip(tiles)
            .filter(|(_, tile)| **tile != version)
        {
            if old != new {
                *tile = version;
            }
        }
        old.copy_from_slice(new);
    }
    changed
}

/// The part of `rect` that lies on a screen of this size.
pub fn clip(rect: Rect, size: Size) -> Option<Rect> {
    let left = i64::from(rect.x).max(0);
    let top = i64::from(rect.y).max(0);
    let right = (i64::from(rect.x) + i64::from(rect.width)).min(i64::from(size.width));
    let bottom = (i64::from(rect.y) + i64::from(rect.height)).min(i64::from(size.height));
    (left < right && top < bottom).then(|| Rect {
        x: left as i32,
        y: top as i32,
        width: (right - left) as u32,
        height: (bottom - top) as u32,
    })
}

fn columns(size: Size) -> usize {
    (size.width as usize).div_ceil(TILE_WIDTH)
}

fn rows(size: Size) -> usize {
    (size.height as usize).div_ceil(TILE_HEIGHT)
}

/// Neighbouring tiles newer than `version`.
fn runs(tiles: &[u64], version: u64) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (n, _) in tiles.iter().enumerate().filter(|(_, v)| **v > version) {
        match runs.last_mut() {
            Some(run) if run.end == n => run.end += 1,
            _ => runs.push(n..n + 1),
        }
    }
    runs
}

fn bounds(rects: &[Rect]) -> Rect {
    let left = rects.iter().map(|r| r.x).min().unwrap_or(0);
    let top = rects.iter().map(|r| r.y).min().unwrap_or(0);
    let right = rects.iter().map(|r| r.x + r.width as i32).max().unwrap_or(0);
    let bottom = rects.iter().map(|r| r.y + r.height as i32).max().unwrap_or(0);
    Rect { x: left, y: top, width: (right - left) as u32, height: (bottom - top) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { width: 200, height: 50 };

    fn paint(rows: &mut [u8], x: usize, y: usize) {
        rows[(y * 200 + x) * PIXEL] = 255;
    }

    #[test]
    fn everything_is_new_at_first() {
        let frame = Frame::black(SIZE, 1);
        assert_eq!(frame.changed_since(0), vec![frame.area()]);
        assert_eq!(frame.changed_since(1), vec![]);
    }

    #[test]
    fn a_pixel_makes_its_tile_new() {
        let mut frame = Arc::new(Frame::black(SIZE, 1));
        let mut fresh = vec![0; 200 * 10 * PIXEL];
        paint(&mut fresh, 130, 3);
        assert!(absorb(&mut frame, 20, &fresh, 2));
        assert_eq!(frame.version(), 2);
        assert_eq!(frame.changed_since(1), vec![Rect { x: 128, y: 16, width: 64, height: 16 }]);
        assert_eq!(frame.row(23)[130 * PIXEL], 255);
        assert_eq!(frame.version_within(Rect { x: 0, y: 0, width: 128, height: 50 }), 1);
        assert_eq!(frame.version_within(Rect { x: 100, y: 0, width: 50, height: 50 }), 2);
        assert_eq!((frame.version_of_strip(0), frame.version_of_strip(1), frame.version_of_strip(9)), (1, 2, 0));
    }

    #[test]
    fn the_same_rows_change_nothing() {
        let mut frame = Arc::new(Frame::black(SIZE, 1));
        let before = Arc::clone(&frame);
        assert!(!absorb(&mut frame, 0, &[0; 200 * 50 * PIXEL], 2));
        assert!(Arc::ptr_eq(&before, &frame), "no copy was made");
        assert_eq!(frame.version(), 1);
    }

    #[test]
    fn readers_keep_their_picture() {
        let mut frame = Arc::new(Frame::black(SIZE, 1));
        let reader = Arc::clone(&frame);
        let mut fresh = vec![0; 200 * PIXEL];
        paint(&mut fresh, 0, 0);
        assert!(absorb(&mut frame, 0, &fresh, 2));
        assert_eq!((reader.row(0)[0], frame.row(0)[0]), (0, 255));
    }

    #[test]
    fn rectangles_join_downwards_and_end_at_the_edge() {
        let mut frame = Arc::new(Frame::black(SIZE, 1));
        let mut fresh = vec![0; 200 * 50 * PIXEL];
        for (x, y) in [(199, 20), (199, 49), (0, 0), (70, 1)] {
            paint(&mut fresh, x, y);
        }
        absorb(&mut frame, 0, &fresh, 2);
        // Row 48 and 49 are the last, cut off strip; between them and the second strip lies an unchanged one.
        assert_eq!(
            frame.changed_since(1),
            vec![
                Rect { x: 0, y: 0, width: 128, height: 16 },
                Rect { x: 192, y: 16, width: 8, height: 16 },
                Rect { x: 192, y: 48, width: 8, height: 2 },
            ]
        );
    }

    #[test]
    fn clipping() {
        assert_eq!(clip(Rect { x: -5, y: 40, width: 10, height: 100 }, SIZE), Some(Rect { x: 0, y: 40, width: 5, height: 10 }));
        assert_eq!(clip(Rect { x: 200, y: 0, width: 1, height: 1 }, SIZE), None);
        assert_eq!(clip(Rect { x: i32::MAX, y: i32::MIN, width: u32::MAX, height: u32::MAX }, SIZE), None);
    }
}
