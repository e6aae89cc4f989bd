//! Which parts of the screen a viewer has yet to get: a grid of cells, so that any number of
//! small changes costs the same little memory and no pixel is ever sent twice in one update.

use hotdesk_api::action::{Rect, Size};

/// Side of a cell in pixels. A typed character touches one to four of them.
const CELL: u32 = 16;

/// Cells of one screen that are marked.
#[derive(Debug, Clone, Default)]
pub(super) struct Region {
    size: (u32, u32),
    columns: usize,
    cells: Vec<bool>,
    marked: usize,
}

impl Region {
    pub(super) fn new(size: Size) -> Self {
        let columns = size.width.div_ceil(CELL) as usize;
        let rows = size.height.div_ceil(CELL) as usize;
        Self { size: (size.width, size.height), columns, cells: vec![false; columns * rows], marked: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.marked == 0
    }

    pub(super) fn mark_all(&mut self) {
        self.cells.fill(true);
        self.marked = self.cells.len();
    }

    /// Marks every cell that the rectangle touches; what lies off the screen is left out.
    pub(super) fn mark(&mut self, rect: Rect) {
        let Some((columns, rows)) = self.cells_of(rect) else { return };
        for row in rows {
            for cell in &mut self.cells[row * self.columns + columns.start..row * self.columns + columns.end] {
                self.marked += usize::from(!*cell);
                *cell = true;
            }
        }
    }

    /// Removes the marks inside a rectangle and gives what they were as rectangles that don't
    /// overlap and lie on the screen.
    pub(super) fn take(&mut self, within: Rect) -> Vec<Rect> {
        let mut taken = Vec::new();
        let Some((columns, rows)) = self.cells_of(within) else { return taken };
        for row in rows.clone() {
            let mut column = columns.start;
            while column < columns.end {
                let width = self.run(row, column, columns.end);
                if width == 0 {
                    column += 1;
                    continue;
                }
                // The same run in the rows below makes one taller rectangle.
                let mut height = 1;
                while row + height < rows.end
                    && self.run(row + height, column, columns.end) == width
                    && (column == columns.start || !self.cells[(row + height) * self.columns + column - 1])
                {
                    height += 1;
                }
                for row in row..row + height {
                    self.cells[row * self.columns + column..][..width].fill(false);
                }
                self.marked -= width * height;
                taken.push(self.pixels(column, row, width, height));
                column += width;
            }
        }
        taken
    }

    /// The same for the topmost marked rows of about so many pixels, at least one row of cells.
    pub(super) fn take_some(&mut self, pixels: u32) -> Vec<Rect> {
        let Some(first) = self.cells.iter().position(|cell| *cell) else { return Vec::new() };
        let top = (first / self.columns.max(1)) as u32 * CELL;
        let height = (pixels / self.size.0.max(1)).next_multiple_of(CELL).max(CELL);
        self.take(Rect { x: 0, y: top as i32, width: self.size.0, height })
    }

    /// Whether anything inside a rectangle is marked.
    pub(super) fn touches(&self, rect: Rect) -> bool {
        let Some((columns, rows)) = self.cells_of(rect).filter(|_| self.marked > 0) else { return false };
        let mut rows = rows.map(|row| &self.cells[row * self.columns..][columns.clone()]);
        rows.any(|cells| cells.contains(&true))
    }

    /// Number of marked cells in a row from a column on.
    fn run(&self, row: usize, column: usize, end: usize) -> usize {
        self.cells[row * self.columns + column..row * self.columns + end].iter().take_while(|c| **c).count()
    }

    fn cells_of(&self, rect: Rect) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
        let span = |start: i32, length: u32, limit: u32| {
            let end = (i64::from(start) + i64::from(length)).clamp(0, i64::from(limit)) as u32;
            let start = i64::from(start).clamp(0, i64::from(limit)) as u32;
            (start < end).then(|| (start / CELL) as usize..end.div_ceil(CELL) as usize)
        };
        Some((span(rect.x, rect.width, self.size.0)?, span(rect.y, rect.height, self.size.1)?))
    }

    fn pixels(&self, column: usize, row: usize, width: usize, height: usize) -> Rect {
        let (x, y) = (column as u32 * CELL, row as u32 * CELL);
        Rect {
            x: x as i32,
            y: y as i32,
            width: (width as u32 * CELL).min(self.size.0 - x),
            height: (height as u32 * CELL).min(self.size.1 - y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rect(x: i32, y: i32, width: u32, height: u32) -> Rect {
        Rect { x, y, width, height }
    }

    const SIZE: Size = Size { width: 100, height: 70 };

    #[test]
    fn a_whole_screen_is_one_rectangle() {
        let mut region = Region::new(SIZE);
        region.mark_all();
        assert_eq!(region.take(rect(0, 0, 100, 70)), [rect(0, 0, 100, 70)]);
        assert!(region.is_empty());
    }

    #[test]
    fn what_is_off_the_screen_is_left_out() {
        let mut region = Region::new(SIZE);
        region.mark(rect(-50, -50, 40, 40));
        region.mark(rect(100, 0, 5, 5));
        region.mark(rect(i32::MAX, i32::MAX, u32::MAX, u32::MAX));
        assert!(region.is_empty());
        region.mark(rect(i32::MIN, i32::MIN, u32::MAX, u32::MAX));
        assert!(!region.is_empty());
    }

    proptest! {
        #[test]
        fn every_marked_pixel_is_taken_once(marks in prop::collection::vec((-20i32..120, -20i32..90, 0u32..60, 0u32..60), 0..12),
                                            within in (0i32..100, 0i32..70, 1u32..120, 1u32..90)) {
            let mut region = Region::new(SIZE);
            let mut wanted = vec![false; 7000];
            for (x, y, w, h) in marks {
                region.mark(rect(x, y, w, h));
                for y in y.max(0)..(y + h as i32).min(70) {
                    for x in x.max(0)..(x + w as i32).min(100) { wanted[(y * 100 + x) as usize] = true; }
                }
            }
            let mut seen = vec![0; 7000];
            let inside = rect(within.0, within.1, within.2, within.3);
            prop_assert_eq!(region.touches(inside), !region.clone().take(inside).is_empty());
            let mut all = region.take_some(700);
            all.extend(region.take(rect(within.0, within.1, within.2, within.3)));
            all.extend(region.take(rect(0, 0, 100, 70)));
            for r in all {
                for y in r.y..r.y + r.height as i32 {
                    for x in r.x..r.x + r.width as i32 { seen[(y * 100 + x) as usize] += 1; }
                }
            }
            prop_assert!(region.is_empty());
            prop_assert!(seen.iter().all(|n| *n <= 1));
            prop_assert!(wanted.iter().zip(&seen).all(|(w, n)| !w || *n == 1));
        }
    }
}
