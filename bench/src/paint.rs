//! Changes the screen in known amounts, with pictures of real content.
//!
//! What the screen shows is copied into two pixmaps, the second with other colours, and a window over
//! everything shows one or the other. So "wholly changed" means: every pixel differs, and the picture is
//! as hard to compress as the scene itself.

use anyhow::Result;
use serde::Deserialize;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::*;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// Every pixel.
    Full,
    /// A hundredth of the pixels as a line of text: the whole width, a hundredth of the height.
    Line,
    /// A hundredth of the pixels as a box: a tenth of the width, a tenth of the height.
    Part,
}

pub(crate) struct Painter {
    connection: RustConnection,
    window: Window,
    gc: Gcontext,
    pictures: [Pixmap; 2],
    width: u16,
    height: u16,
    turn: usize,
}

impl Painter {
    pub(crate) fn new() -> Result<Self> {
        let (connection, number) = x11rb::connect(None)?;
        let screen = &connection.setup().roots[number];
        let (root, depth, width, height) = (screen.root, screen.root_depth, screen.width_in_pixels, screen.height_in_pixels);
        let gc = connection.generate_id()?;
        let below = CreateGCAux::new().subwindow_mode(SubwindowMode::INCLUDE_INFERIORS).graphics_exposures(0);
        connection.create_gc(gc, root, &below)?;
        let mut pictures = [0; 2];
        for picture in &mut pictures {
            *picture = connection.generate_id()?;
            connection.create_pixmap(depth, *picture, root, width, height)?;
            connection.copy_area(root, *picture, gc, 0, 0, 0, 0, width, height)?;
        }
        let other = connection.generate_id()?;
        connection.create_gc(other, pictures[1], &CreateGCAux::new().function(GX::XOR).foreground(0x0028_5a14))?;
        connection.poly_fill_rectangle(pictures[1], other, &[Rectangle { x: 0, y: 0, width, height }])?;

        let window = connection.generate_id()?;
        let values = CreateWindowAux::new().override_redirect(1).background_pixmap(pictures[0]);
        connection.create_window(depth, window, root, 0, 0, width, height, 0, WindowClass::INPUT_OUTPUT, 0, &values)?;
        connection.map_window(window)?;
        connection.sync()?;
        Ok(Self { connection, window, gc, pictures, width, height, turn: 0 })
    }

    pub(crate) fn paint(&mut self, what: What) -> Result<()> {
        self.turn += 1;
        let picture = self.pictures[self.turn % 2];
        let (x, y, width, height) = match what {
            What::Full => (0, 0, self.width, self.height),
            What::Line => (0, self.height as i16 / 3, self.width, self.height.div_ceil(100)),
            What::Part => (self.width as i16 / 3, self.height as i16 / 3, self.width / 10, self.height / 10),
        };
        self.connection.copy_area(picture, self.window, self.gc, x, y, x, y, width, height)?;
        self.connection.sync()?;
        Ok(())
    }
}
