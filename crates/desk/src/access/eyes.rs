//! Notices what changed on the screen since it last looked, and whose it is.
//!
//! Programs do not announce everything: after scrolling, moving a window or scaling, areas are
//! different and nobody said so. All of that is seen, though. XDamage keeps the region that was
//! painted since it was last asked; what is painted belongs to the topmost window there. The list of
//! top-level windows with their geometry shows moves that paint nothing.

use super::tree::Area;
use crate::error::{Error, Result};
use crate::place::Display;
use std::collections::HashSet;
use x11rb::connection::Connection;
use x11rb::protocol::damage::{self, ConnectionExt as _, ReportLevel};
use x11rb::protocol::xfixes::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{Atom, AtomEnum, ConnectionExt as _, MapState, Window, WindowClass};
use x11rb::rust_connection::RustConnection;

/// A blinking caret is this thin. Text that changes inside so little room is announced.
const CARET_WIDTH: i32 = 2;
/// A frame with a client inside, which may have one inside again. Nothing that matters lies deeper.
const DEEPEST: usize = 3;
/// A frame has a few parts; the client is among the topmost.
const MOST_PARTS: usize = 32;

/// A connection that looks at windows.
pub(super) struct Eyes {
    connection: RustConnection,
    root: Window,
    pid_atom: Atom,
    /// `None` where only the present is looked at.
    damage: Option<(damage::Damage, xfixes::Region)>,
    /// All top-level windows at the last look, the topmost first.
    stack: Vec<(Window, Shape)>,
}

/// A top-level window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) area: Area,
    /// The program, where the window says it.
    pub(super) pid: Option<u32>,
    shows: bool,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Nothing is known: everything may have changed.
    pub(super) blind: bool,
    /// Programs that painted, or whose windows came, went, moved or were resized.
    pub(super) owners: HashSet<u32>,
    /// What was painted or changed by windows that do not say whose they are.
    pub(super) unowned: Vec<Area>,
    /// Everything that was painted.
    pub(super) painted: Vec<Area>,
}

impl Eyes {
    /// Eyes that see only the present.
    pub(super) fn open(display: &Display) -> Result<Self> {
        let (connection, screen) = display.connect()?;
        let root = connection.setup().roots.get(screen).map(|s| s.root);
        let root = root.ok_or_else(|| Error::display_down("it has no screen"))?;
        let pid_atom = connection.intern_atom(false, b"_NET_WM_PID")?.reply()?.atom;
        Ok(Self { connection, root, pid_atom, damage: None, stack: Vec::new() })
    }

    /// Eyes that notice changes from now on.
    pub(super) fn watch(display: &Display) -> Result<Self> {
        let mut eyes = Self::open(display)?;
        let c = &eyes.connection;
        c.xfixes_query_version(5, 0)?.reply()?;
        c.damage_query_version(1, 1)?.reply()?;
        let (damage, region) = (c.generate_id()?, c.generate_id()?);
        // `NON_EMPTY`: one event, whatever is painted, so that nothing piles up between looks.
        c.damage_create(damage, eyes.root, ReportLevel::NON_EMPTY)?;
        c.xfixes_create_region(region, &[])?;
        eyes.damage = Some((damage, region));
        eyes.look()?;
        Ok(eyes)
    }

    /// The topmost window at a point; `None` where there is only the background.
    pub(super) fn top_at(&mut self, x: i32, y: i32) -> Result<Option<Shape>> {
        let stack = self.windows()?;
        Ok(stack.into_iter().map(|(_, shape)| shape).find(|s| s.shows && s.area.holds(x, y)))
    }

    /// Everything that changed since the last call.
    pub(super) fn look(&mut self) -> Result<Seen> {
        let mut painted = Vec::new();
        if let Some((damage, region)) = self.damage {
            self.connection.damage_subtract(damage, x11rb::NONE, region)?;
            let region = self.connection.xfixes_fetch_region(region)?.reply()?;
            painted.extend(region.rectangles.iter().map(|r| area(r.x, r.y, r.width, r.height)));
            painted.retain(|a| a.width > CARET_WIDTH);
        }
        let stack = self.windows()?;
        let mut seen = Seen::default();
        for rectangle in &painted {
            seen.add_painted(rectangle, stack.iter().map(|(_, shape)| shape));
        }
        seen.painted = painted;
        if stack != self.stack {
            // Who was on top when it was painted is no longer known.
            seen.unowned.extend(seen.painted.iter().copied());
            let only_in = |a: &[(Window, Shape)], b: &[(Window, Shape)]| -> Vec<Shape> {
                a.iter().filter(|w| !b.contains(w)).map(|(_, shape)| *shape).collect()
            };
            for shape in only_in(&stack, &self.stack).iter().chain(&only_in(&self.stack, &stack)) {
                seen.add(shape);
            }
        }
        self.stack = stack;
        while self.connection.poll_for_event()?.is_some() {}
        Ok(seen)
    }

    /// All top-level windows, the topmost first.
    fn windows(&self) -> Result<Vec<(Window, Shape)>> {
        let c = &self.connection;
        let children = c.query_tree(self.root)?.reply()?.children;
        let mut asked = Vec::with_capacity(children.len());
        for &window in children.iter().rev() {
            asked.push((window, c.get_geometry(window)?, c.get_window_attributes(window)?));
        }
        let mut stack = Vec::with_capacity(asked.len());
        for (window, geometry, attributes) in asked {
            // A window may vanish between two questions.
            let (Ok(g), Ok(a)) = (geometry.reply(), attributes.reply()) else { continue };
            let border = g.border_width.saturating_mul(2);
            let shows = a.map_state == MapState::VIEWABLE && a.class == WindowClass::INPUT_OUTPUT;
            let area = area(g.x, g.y, g.width.saturating_add(border), g.height.saturating_add(border));
            // A program does not change, but a window may say its own only after it was made.
            let known = self.stack.iter().find(|(w, _)| *w == window).and_then(|(_, s)| s.pid);
            let pid = match known {
                Some(pid) => Some(pid),
                None if shows => self.pid_of(window, DEEPEST)?,
                None => None,
            };
            stack.push((window, Shape { area, pid, shows }));
        }
        Ok(stack)
    }

    /// The process by the window's own word, or by that of one inside it.
    fn pid_of(&self, window: Window, depth: usize) -> Result<Option<u32>> {
        let property = self.connection.get_property(false, window, self.pid_atom, AtomEnum::CARDINAL, 0, 1)?.reply();
        if let Some(pid) = property.ok().and_then(|p| p.value32().and_then(|mut v| v.next())) {
            return Ok(Some(pid));
        }
        if depth == 0 {
            return Ok(None);
        }
        let Ok(tree) = self.connection.query_tree(window)?.reply() else { return Ok(None) };
        for child in tree.children.into_iter().rev().take(MOST_PARTS) {
            if let Some(pid) = self.pid_of(child, depth - 1)? {
                return Ok(Some(pid));
            }
        }
        Ok(None)
    }
}

impl Seen {
    pub(super) fn blind() -> Self {
        Self { blind: true, ..Self::default() }
    }

    /// Finds the windows that a painted rectangle may belong to: from the top down to the first that covers it.
    fn add_painted<'s>(&mut self, painted: &Area, stack: impl Iterator<Item = &'s Shape>) {
        for shape in stack.filter(|s| s.shows && s.area.meets(painted)) {
            match shape.pid {
                Some(pid) => drop(self.owners.insert(pid)),
                None => self.unowned.push(*painted),
            }
            if shape.area.contains(painted) {
                return;
            }
        }
    }

    fn add(&mut self, changed: &Shape) {
        match changed.pid {
            Some(pid) => drop(self.owners.insert(pid)),
            // What never showed can't matter.
            None if changed.shows => self.unowned.push(changed.area),
            None => {}
        }
    }

    /// Programs that are not known here can't be owners: a process inside a sandbox has another number there.
    pub(super) fn keep_owners(&mut self, known: &HashSet<u32>) {
        let before = self.owners.len();
        self.owners.retain(|pid| known.contains(pid));
        if self.owners.len() < before {
            self.unowned.extend(self.painted.iter().copied());
        }
    }
}

fn area(x: i16, y: i16, width: u16, height: u16) -> Area {
    Area { x: x.into(), y: y.into(), width: width.into(), height: height.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(x: i16, width: u16, pid: Option<u32>) -> Shape {
        Shape { area: area(x, 0, width, 100), pid, shows: true }
    }

    #[test]
    fn paint_belongs_to_the_topmost_window() {
        let stack = [shape(0, 50, Some(1)), shape(0, 100, Some(2)), shape(0, 200, Some(3))];
        let owners = |x, width| {
            let mut seen = Seen::default();
            seen.add_painted(&area(x, 10, width, 10), stack.iter());
            let mut owners: Vec<u32> = seen.owners.into_iter().collect();
            owners.sort_unstable();
            owners
        };
        assert_eq!(owners(10, 10), [1]);
        assert_eq!(owners(40, 20), [1, 2]);
        assert_eq!(owners(90, 20), [2, 3]);
        assert_eq!(owners(300, 20), [0; 0]);
    }

    #[test]
    fn paint_of_unknown_programs_is_nobodys() {
        let mut seen = Seen { painted: vec![area(0, 0, 10, 10)], ..Seen::default() };
        seen.add_painted(&area(0, 0, 10, 10), [shape(0, 50, None)].iter());
        assert_eq!(seen.unowned.len(), 1);
        seen.owners.insert(2);
        seen.keep_owners(&HashSet::from([1]));
        assert_eq!((seen.owners.len(), seen.unowned.len()), (0, 2));
    }

    #[test]
    fn hidden_windows_cover_nothing() {
        let hidden = Shape { shows: false, ..shape(0, 100, Some(1)) };
        let mut seen = Seen::default();
        seen.add_painted(&area(0, 0, 10, 10), [hidden, shape(0, 100, Some(2))].iter());
        assert_eq!(seen.owners, HashSet::from([2]));
    }
}
