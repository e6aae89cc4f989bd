//! Windows, as the window manager knows them (EWMH), without any helper program.

use crate::error::{Error, Result};
use crate::place::Place;
use hotdesk_api::action::Rect;
use std::sync::Arc;

/// One managed window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub id: u32,
    /// The virtual desktop; -1 is all of them.
    pub desktop: i32,
    /// `WM_CLIENT_MACHINE`.
    pub machine: String,
    pub title: String,
    /// `WM_CLASS`: instance and class.
    pub instance: String,
    pub class: String,
    pub pid: Option<u32>,
    /// The client's own area on the screen, without the frame.
    pub area: Rect,
    pub active: bool,
    pub minimized: bool,
}

/// How a window is looked for by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Match {
    /// The whole text, case and all, instead of a part of it.
    pub strict: bool,
    /// `instance.class` instead of the title.
    pub by_class: bool,
}

/// The window engine. Cheap to clone.
#[derive(Clone)]
pub struct Windows {
    place: Arc<Place>,
}

impl Windows {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place }
    }

    /// All managed windows, in the order of `_NET_CLIENT_LIST`.
    pub async fn list(&self) -> Result<Vec<Window>> {
        let _ = &self.place;
        Err(Error::internal("windows"))
    }

    /// The lines that `wmctrl -l` prints.
    pub async fn listing(&self) -> Result<String> {
        Err(Error::internal("windows"))
    }

    /// The first window of that name; `wmctrl`'s rules.
    pub async fn find(&self, name: &str, how: Match) -> Result<Option<Window>> {
        let _ = (name, how);
        Err(Error::internal("windows"))
    }

    pub async fn activate(&self, id: u32) -> Result<()> {
        let _ = id;
        Err(Error::internal("windows"))
    }

    pub async fn close(&self, id: u32) -> Result<()> {
        let _ = id;
        Err(Error::internal("windows"))
    }
}
