//! The real binary, on real displays: it comes up, heals, and leaves nothing behind.
//!
//! Needs Xvfb, openbox, dbus-daemon, at-spi2-core and ffmpeg; fails where one is missing.

mod attach;
mod healing;
mod lifecycle;
mod places;
mod recording;
mod settings;
mod support;
