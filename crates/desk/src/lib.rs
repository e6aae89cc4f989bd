//! One desktop: its session, its eyes and hands, its accessibility, programs and files, and the
//! server that offers them.
//!
//! ```text
//!   server ── osworld (the OSWorld dialect) ─┐
//!          └─ v1 (the native API) ───────────┤
//!   view (VNC) ──────────────────────────────┤
//!                                            ▼
//!   screen  input  access  windows  clipboard  processes  terminals  files  recorder
//!      └──────┴───────┴───────┴─────────┘              │
//!                  display (X11, D-Bus)              place (home, environment)
//!                          └───────── session (starts, watches, heals) ──────┘
//! ```
//!
//! A dialect translates to the engines below it; it never implements.

pub mod access;
pub mod clipboard;
pub mod config;
pub mod error;
pub mod files;
pub mod input;
pub mod place;
pub mod process;
pub mod pyautogui;
pub mod recorder;
pub mod screen;
pub mod server;
pub mod session;
pub mod terminal;
pub mod view;
pub mod windows;
mod x11;

pub use config::Config;
pub use error::{Error, Result};
pub use place::{Display, Place};

use std::sync::Arc;

/// Everything that a server needs to offer one desktop. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pub config: Arc<Config>,
    pub place: Arc<Place>,
    pub session: session::Session,
    pub screen: screen::Screen,
    pub input: input::Input,
    pub access: access::Access,
    pub windows: windows::Windows,
    pub clipboard: clipboard::Clipboard,
    pub processes: process::Processes,
    pub terminals: terminal::Terminals,
    pub recorder: recorder::Recorder,
    pub view: view::View,
}
