//! Which window is on top at a point, by the X server's word.

use super::tree::Area;
use crate::error::Result;
use crate::place::Display;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{AtomEnum, ConnectionExt, MapState, Window, WindowClass};
use x11rb::rust_connection::RustConnection;

/// A frame with a client inside, which may have one inside again. Nothing that matters lies deeper.
const DEEPEST: usize = 3;

/// The topmost window at a point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Top {
    pub(super) area: Area,
    /// The program, where the window says it.
    pub(super) pid: Option<u32>,
}

/// `None` where there is only the background.
pub(super) fn at(display: &Display, x: i32, y: i32) -> Result<Option<Top>> {
    let (connection, screen) = display.connect()?;
    let Some(root) = connection.setup().roots.get(screen).map(|s| s.root) else { return Ok(None) };
    let pid_atom = connection.intern_atom(false, b"_NET_WM_PID")?.reply()?.atom;
    // From the bottom to the top.
    for window in connection.query_tree(root)?.reply()?.children.into_iter().rev() {
        // A window may vanish between two questions.
        let (Ok(attributes), Ok(geometry)) =
            (connection.get_window_attributes(window)?.reply(), connection.get_geometry(window)?.reply())
        else {
            continue;
        };
        let border = i32::from(geometry.border_width) * 2;
        let area = Area {
            x: geometry.x.into(),
            y: geometry.y.into(),
            width: i32::from(geometry.width) + border,
            height: i32::from(geometry.height) + border,
        };
        let shows = attributes.map_state == MapState::VIEWABLE && attributes.class == WindowClass::INPUT_OUTPUT;
        if shows && area.holds(x, y) {
            return Ok(Some(Top { area, pid: pid_of(&connection, window, pid_atom, DEEPEST)? }));
        }
    }
    Ok(None)
}

/// The process by the window's own word, or by that of one inside it.
fn pid_of(connection: &RustConnection, window: Window, atom: u32, depth: usize) -> Result<Option<u32>> {
    let property = connection.get_property(false, window, atom, AtomEnum::CARDINAL, 0, 1)?.reply();
    if let Some(pid) = property.ok().and_then(|p| p.value32().and_then(|mut v| v.next())) {
        return Ok(Some(pid));
    }
    if depth == 0 {
        return Ok(None);
    }
    let Ok(tree) = connection.query_tree(window)?.reply() else { return Ok(None) };
    for child in tree.children.into_iter().rev() {
        if let Some(pid) = pid_of(connection, child, atom, depth - 1)? {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
