//! The cells of a spreadsheet that are on the screen.
//!
//! A sheet of LibreOffice claims two thousand million children. The original looks for those that
//! show by trying: along row 0 up to column 500, then row 1, and so on up to row 500; the first
//! showing cell fixes the base column; from there rows are read until a cell does not show, and the
//! sheet until a row does not. Here the sheet is asked which cell lies in its corner, and the rest
//! is checked: the same cells come out, without a quarter of a million tries when the view is scrolled away.

use super::ask::{Ended, Question};
use super::tree::{Area, Node, Place};
use super::walk::{Reference, Walk, place_of, states_of};
use super::words::SHOWING;
use zbus::zvariant::Value as Variant;

/// The original gives up beyond this row or column while nothing was found.
const FURTHEST_START: i32 = 500;
/// Columns of a sheet since LibreOffice 7.4, where the sheet does not tell.
const USUAL_COLUMNS: i32 = 16384;
/// Cells of a line tried at once.
const CELLS_AT_ONCE: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    row: i32,
    column: i32,
}

/// A cell on the screen and its states.
pub(super) type Shown = (Place, u64);

/// The showing cells of the table, row by row.
pub(super) fn cells(walk: &mut Walk<'_>, table: u32) -> Result<Vec<Shown>, Ended> {
    let Some(table) = walk.nodes.get(table as usize).map(|n| n.place.clone()) else { return Ok(Vec::new()) };
    let mut sheet = Sheet { walk, table, columns: USUAL_COLUMNS };
    let corner = sheet.corner()?;
    let start = match corner {
        Some(cell) if sheet.is_corner(cell)? => Some(cell),
        _ => sheet.search()?,
    };
    match start {
        Some(cell) if cell.row <= FURTHEST_START && cell.column <= FURTHEST_START => sheet.read_from(cell),
        _ => Ok(Vec::new()),
    }
}

struct Sheet<'w, 't> {
    walk: &'w mut Walk<'t>,
    table: Place,
    columns: i32,
}

impl Sheet<'_, '_> {
    /// The cell in the corner of the visible part, by the sheet's own word. Also learns the number of columns.
    fn corner(&mut self) -> Result<Option<Cell>, Ended> {
        let mut scratch = vec![Node::at(self.table.clone())];
        let (mut columns, mut area) = (USUAL_COLUMNS, None);
        self.walk.talk.ask(&mut scratch, &[(0, Question::Columns), (0, Question::Extents)], |_, i, answer| {
            if i == 0 {
                if let Ok(Variant::I32(n @ 1..)) = answer.read::<Variant<'_>>() {
                    columns = n;
                }
            } else if let Ok((x, y, width, height)) = answer.read::<(i32, i32, i32, i32)>() {
                area = Some(Area { x, y, width, height });
            }
        })?;
        self.columns = columns;
        let Some(area) = area.filter(|a| a.width > 1 && a.height > 1) else { return Ok(None) };
        let bus = self.table.bus.clone();
        let mut at_corner = None;
        let question = Question::AtPoint(area.x.saturating_add(1), area.y.saturating_add(1));
        self.walk.talk.ask(&mut scratch, &[(0, question)], |_, _, answer| {
            at_corner = answer.read::<Reference<'_>>().ok().and_then(|r| place_of(&bus, &r));
        })?;
        let Some(place) = at_corner else { return Ok(None) };
        let mut scratch = vec![Node::at(place)];
        let mut index = None;
        self.walk.talk.ask(&mut scratch, &[(0, Question::IndexInParent)], |_, _, answer| {
            index = answer.read::<i32>().ok().filter(|i| *i >= 0);
        })?;
        Ok(index.map(|i| Cell { row: i / columns, column: i % columns }))
    }

    /// Whether the original would have found this cell first: it shows, and those above and before it do not.
    fn is_corner(&mut self, cell: Cell) -> Result<bool, Ended> {
        let tried = [cell, Cell { row: cell.row - 1, ..cell }, Cell { column: cell.column - 1, ..cell }];
        let showing = self.showing(&tried)?;
        Ok(showing.iter().map(Option::is_some).eq([true, false, false]))
    }

    /// The way of the original, a row at a time.
    fn search(&mut self) -> Result<Option<Cell>, Ended> {
        for row in 0..=FURTHEST_START {
            let tried: Vec<_> = (0..=FURTHEST_START.min(self.columns - 1)).map(|column| Cell { row, column }).collect();
            let showing = self.showing(&tried)?;
            if let Some((cell, _)) = tried.into_iter().zip(showing).find(|(_, s)| s.is_some()) {
                return Ok(Some(cell));
            }
        }
        Ok(None)
    }

    /// Columns have the same place in every row, so the first row and the base column tell how far the
    /// visible part goes; inside it every cell has its own word.
    fn read_from(&mut self, start: Cell) -> Result<Vec<Shown>, Ended> {
        let first = self.line(start, |cell| Cell { column: cell.column.saturating_add(1), ..cell })?;
        let base = self.line(start, |cell| Cell { row: cell.row.saturating_add(1), ..cell })?;
        let (width, height) = (first.len() as i32, base.len() as i32);
        let inner: Vec<_> =
            (1..height).flat_map(|r| (1..width).map(move |c| Cell { row: start.row + r, column: start.column + c })).collect();
        let mut inner = self.showing(&inner)?.into_iter();
        let mut found = first;
        for base in base.into_iter().skip(1) {
            found.push(base);
            let row: Vec<_> = inner.by_ref().take((width - 1).max(0) as usize).collect();
            found.extend(row.into_iter().map_while(|cell| cell));
        }
        Ok(found)
    }

    /// The showing cells from one on, up to the first that does not show.
    fn line(&mut self, start: Cell, next: impl Fn(Cell) -> Cell) -> Result<Vec<Shown>, Ended> {
        let mut found = Vec::new();
        let mut cell = start;
        loop {
            let tried: Vec<_> = std::iter::successors(Some(cell), |&c| Some(next(c))).take(CELLS_AT_ONCE).collect();
            let showing = self.showing(&tried)?;
            let whole = showing.iter().all(Option::is_some);
            found.extend(showing.into_iter().map_while(|c| c));
            let Some(&last) = tried.last().filter(|_| whole) else { return Ok(found) };
            cell = next(last);
        }
    }

    /// Each cell, if it shows.
    fn showing(&mut self, cells: &[Cell]) -> Result<Vec<Option<Shown>>, Ended> {
        let mut places: Vec<Option<Place>> = vec![None; cells.len()];
        let mut scratch = vec![Node::at(self.table.clone())];
        let (mut questions, mut asked) = (Vec::new(), Vec::new());
        for (i, cell) in cells.iter().enumerate() {
            if let Some(index) = index_of(*cell, self.columns) {
                questions.push((0, Question::Child(index)));
                asked.push(i);
            }
        }
        let bus = self.table.bus.clone();
        self.walk.talk.ask(&mut scratch, &questions, |_, i, answer| {
            let Some(place) = asked.get(i).and_then(|&i| places.get_mut(i)) else { return };
            *place = answer.read::<Reference<'_>>().ok().and_then(|r| place_of(&bus, &r));
        })?;
        scratch.clear();
        asked.clear();
        for (i, place) in places.iter_mut().enumerate() {
            if let Some(place) = place.take() {
                scratch.push(Node::at(place));
                asked.push(i);
            }
        }
        let questions: Vec<_> = (0..scratch.len() as u32).map(|n| (n, Question::State)).collect();
        self.walk.talk.ask(&mut scratch, &questions, |nodes, i, answer| {
            let states = answer.read::<Vec<u32>>().map(|s| states_of(&s)).unwrap_or_default();
            if let Some(node) = nodes.get_mut(i) {
                node.states = states;
            }
        })?;
        let mut shown: Vec<Option<Shown>> = vec![None; cells.len()];
        for (i, node) in asked.into_iter().zip(scratch) {
            if let (Some(slot), true) = (shown.get_mut(i), node.has_state(SHOWING)) {
                *slot = Some((node.place, node.states));
            }
        }
        Ok(shown)
    }
}

/// The child's number; `None` outside the sheet or beyond what AT-SPI can number.
fn index_of(cell: Cell, columns: i32) -> Option<i32> {
    if cell.row < 0 || cell.column < 0 || cell.column >= columns {
        return None;
    }
    cell.row.checked_mul(columns)?.checked_add(cell.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_numbered_row_by_row() {
        assert_eq!(index_of(Cell { row: 0, column: 0 }, 16384), Some(0));
        assert_eq!(index_of(Cell { row: 3, column: 4 }, 1024), Some(3076));
        assert_eq!(index_of(Cell { row: -1, column: 4 }, 1024), None);
        assert_eq!(index_of(Cell { row: 1, column: -1 }, 1024), None);
        assert_eq!(index_of(Cell { row: 1, column: 1024 }, 1024), None);
        assert_eq!(index_of(Cell { row: 131_072, column: 0 }, 16384), None);
    }
}
