//! Raw hands: single X events through XTEST, each of them acknowledged by the server.
//!
//! `input` and `pyautogui` both act through this; what keys and places mean is theirs to know.

use crate::error::{Error, Result};
use crate::place::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{self, ConnectionExt as _};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

/// One connection that makes input events.
pub struct Hands {
    pub connection: RustConnection,
    pub root: xproto::Window,
    broken: AtomicBool,
}

impl Hands {
    pub fn connect(display: &Display) -> Result<Self> {
        let (connection, screen) = display.connect()?;
        let root = connection.setup().roots[screen].root;
        Ok(Self { connection, root, broken: AtomicBool::new(false) })
    }

    /// Moves the pointer; the server clamps the place to the screen.
    pub fn motion(&self, x: i16, y: i16) -> Result<()> {
        self.fake(xproto::MOTION_NOTIFY_EVENT, 0, x, y)
    }

    pub fn button(&self, button: u8, down: bool) -> Result<()> {
        let kind = if down { xproto::BUTTON_PRESS_EVENT } else { xproto::BUTTON_RELEASE_EVENT };
        self.fake(kind, button, 0, 0)
    }

    pub fn key(&self, keycode: u8, down: bool) -> Result<()> {
        let kind = if down { xproto::KEY_PRESS_EVENT } else { xproto::KEY_RELEASE_EVENT };
        self.fake(kind, keycode, 0, 0)
    }

    /// Where the pointer is.
    pub fn pointer(&self) -> Result<(i16, i16)> {
        let p = self.watch(|| Ok(self.connection.query_pointer(self.root)?.reply()?))?;
        Ok((p.root_x, p.root_y))
    }

    /// Waits until the server has done everything sent so far.
    pub fn sync(&self) -> Result<()> {
        self.watch(|| Ok(self.connection.get_input_focus()?.reply().map(drop)?))
    }

    /// True once the connection failed; it never comes back to life.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn fake(&self, kind: u8, detail: u8, x: i16, y: i16) -> Result<()> {
        self.watch(|| {
            self.connection.xtest_fake_input(kind, detail, x11rb::CURRENT_TIME, self.root, x, y, 0)?;
            Ok(())
        })
    }

    /// Runs one request and remembers when the connection broke over it.
    pub fn watch<T>(&self, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = request();
        if matches!(result, Err(Error::Unavailable { .. })) {
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }
}
