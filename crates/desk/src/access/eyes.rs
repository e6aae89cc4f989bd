//! Notices what changed on the screen since it last looked.
//!
//! Programs do not announce everything: after scrolling, moving a window or scaling, areas are
//! different and nobody said so. All of that is seen, though. XDamage keeps the region that was
//! painted since it was last asked, and the list of top-level windows with their geometry shows
//! moves that paint nothing.

use super::tree::Area;
use crate::error::Result;
use crate::place::Display;
use x11rb::connection::RequestConnection;
use x11rb::protocol::damage::{self, ConnectionExt as _, ReportLevel};
use x11rb::protocol::xfixes::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

/// A blinking caret is this thin. Text that changes inside so little room is announced.
const CARET_WIDTH: i32 = 2;

pub(super) struct Eyes {
    connection: RustConnection,
    root: Window,
    damage: damage::Damage,
    region: xfixes::Region,
    windows: Vec<(Window, i16, i16, u16, u16)>,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Painted since the last look.
    pub(super) painted: Vec<Area>,
    /// A window came, went, moved, was resized or restacked.
    pub(super) windows_changed: bool,
}

impl Eyes {
    pub(super) fn open(display: &Display) -> Result<Self> {
        let (connection, screen) = display.connect()?;
        connection.prefetch_extension_information(damage::X11_EXTENSION_NAME)?;
        connection.xfixes_query_version(5, 0)?.reply()?;
        connection.damage_query_version(1, 1)?.reply()?;
        let root = x11rb::connection::Connection::setup(&connection)
            .roots
            .get(screen)
            .map(|s| s.root)
            .ok_or_else(|| crate::error::Error::display_down("it has no screen"))?;
        let damage = x11rb::connection::Connection::generate_id(&connection)?;
        // `NON_EMPTY`: one event, whatever is painted, so that nothing piles up between looks.
        connection.damage_create(damage, root, ReportLevel::NON_EMPTY)?;
        let region = x11rb::connection::Connection::generate_id(&connection)?;
        connection.xfixes_create_region(region, &[])?;
        let mut eyes = Self { connection, root, damage, region, windows: Vec::new() };
        eyes.look()?;
        Ok(eyes)
    }

    /// Everything that changed since the last call.
    pub(super) fn look(&mut self) -> Result<Seen> {
        let c = &self.connection;
        c.damage_subtract(self.damage, x11rb::NONE, self.region)?;
        let region = c.xfixes_fetch_region(self.region)?;
        let children = c.query_tree(self.root)?;
        let painted = region.reply()?.rectangles.into_iter().map(|r| Area {
            x: r.x.into(),
            y: r.y.into(),
            width: r.width.into(),
            height: r.height.into(),
        });
        let painted = painted.filter(|a| a.width > CARET_WIDTH).collect();
        let children = children.reply()?.children;
        let geometries = children.iter().map(|&w| c.get_geometry(w).map(|g| (w, g))).collect::<Result<Vec<_>, _>>()?;
        let mut windows = Vec::with_capacity(geometries.len());
        for (window, geometry) in geometries {
            // A window may vanish between the two questions.
            if let Ok(g) = geometry.reply() {
                windows.push((window, g.x, g.y, g.width, g.height));
            }
        }
        while x11rb::connection::Connection::poll_for_event(c)?.is_some() {}
        let windows_changed = windows != self.windows;
        self.windows = windows;
        Ok(Seen { painted, windows_changed })
    }
}
