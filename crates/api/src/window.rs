//! Windows of a desk, as its window manager knows them.

use crate::action::Rect;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One managed window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// The X window; paths take it in decimal or as `0x…`.
    pub id: u32,
    pub title: String,
    /// `WM_CLASS`: the instance, mostly the program's name in small letters.
    pub instance: String,
    /// `WM_CLASS`: the class.
    pub class: String,
    /// The process, if the window names one.
    pub pid: Option<u32>,
    /// The virtual desktop; -1 is all of them.
    pub desktop: i32,
    /// The host that the program runs on.
    pub machine: String,
    /// The client's own area on the screen, without the frame.
    pub area: Rect,
    pub active: bool,
    pub minimized: bool,
    pub maximized: bool,
    pub fullscreen: bool,
    /// Kept above the others.
    pub above: bool,
}

/// All windows, in the window manager's order: oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowList {
    pub windows: Vec<Window>,
}

/// What can be done to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowChange {
    /// Goes to its desktop, shows it, raises it and gives it the keyboard.
    Activate,
    /// Asks it to close, as its close button does. The program may ask back.
    Close,
    Minimize,
    Maximize,
    Fullscreen,
    /// Neither minimized nor maximized nor full screen.
    Restore,
}

/// The area that a window should take. What is left out stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewArea {
    #[serde(default)]
    pub x: Option<i32>,
    #[serde(default)]
    pub y: Option<i32>,
    #[serde(default)]
    pub width: Option<u32>,
    #[serde(default)]
    pub height: Option<u32>,
}

/// Which window to wait for. At least one of `title` and `class` must be given; both must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitForWindow {
    /// A part of the title, upper and lower case alike.
    #[serde(default)]
    pub title: Option<String>,
    /// A part of `instance.class`, upper and lower case alike.
    #[serde(default)]
    pub class: Option<String>,
    /// The whole text instead, case and all.
    #[serde(default)]
    pub strict: bool,
    /// Wait until no such window is left.
    #[serde(default)]
    pub gone: bool,
    /// The longest wait in milliseconds; 10,000 unless said.
    #[serde(default)]
    pub limit_ms: Option<u32>,
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// The window; none when it was waited for its end.
    pub window: Option<Window>,
    /// Milliseconds that it took.
    pub ms: u64,
}
