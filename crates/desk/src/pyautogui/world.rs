//! What a program acts on: the display and its clock, or a rehearsal of them.

use super::keys;
use super::stop::{Outcome, Stop};
use crate::error::Error;
use crate::input::PooledHands;
use crate::lease::Pass;
use crate::place::Place;
use crate::trace;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::ConnectionExt as _;

pub(super) trait World {
    /// Nothing is done and nothing can be known: the program is only tried.
    fn rehearsing(&self) -> bool;
    /// Width and height of the screen when the program started.
    fn size(&mut self) -> Outcome<(i64, i64)>;
    fn pointer(&mut self) -> Outcome<(i64, i64)>;
    fn motion(&mut self, x: i16, y: i16) -> Outcome<()>;
    fn button(&mut self, button: u8, down: bool) -> Outcome<()>;
    fn key(&mut self, keycode: u8, down: bool) -> Outcome<()>;
    /// 0 if no key has the keysym.
    fn keycode(&mut self, keysym: u32) -> Outcome<u8>;
    /// Waits until everything so far has happened. python3-xlib does it after every event or key,
    /// so applications get them one by one.
    fn sync(&mut self) -> Outcome<()>;
    /// The primary button is the right one.
    fn left_handed(&mut self) -> bool;
    fn sleep(&mut self, seconds: f64) -> Outcome<()>;
    fn variable(&mut self, name: &str) -> Option<String>;
    /// What python3-xlib would have written to stderr since the last time it was asked.
    fn complaints(&mut self) -> Outcome<String>;
}

/// The desk itself.
pub(super) struct Desk {
    pub(super) place: Arc<Place>,
    /// Missing if the program does not import pyautogui.
    pub(super) hands: Option<PooledHands>,
    pub(super) deadline: Instant,
    pass: Pass,
    /// At least one input event was made.
    pub(super) touched: bool,
    size: Option<(i64, i64)>,
    keymap: Option<Keymap>,
    /// What each key was last pressed for.
    meant: BTreeMap<u8, u32>,
}

struct Keymap {
    first: u8,
    columns: u8,
    keysyms: Vec<u32>,
}

impl Desk {
    pub(super) fn new(place: Arc<Place>, hands: Option<PooledHands>, deadline: Instant, pass: Pass) -> Self {
        Self { place, hands, deadline, pass, touched: false, size: None, keymap: None, meant: BTreeMap::new() }
    }

    fn hands(&self) -> Outcome<&PooledHands> {
        self.hands.as_ref().ok_or(Stop::Refuse("input without an import of pyautogui"))
    }

    /// Everything before the deadline, nothing after it.
    fn in_time(&self) -> Outcome<()> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(Stop::Late) }
    }

    /// Tells whoever records what was done.
    fn note(&self, event: trace::Event) {
        if let Some(scribe) = &self.pass.scribe {
            scribe.note(event);
        }
    }

    fn make(&mut self, event: impl FnOnce(&PooledHands) -> crate::Result<()>) -> Outcome<()> {
        self.in_time()?;
        self.pass.check().map_err(Stop::Taken)?;
        event(self.hands()?).map_err(Stop::Display)?;
        self.touched = true;
        Ok(())
    }
}

impl World for Desk {
    fn rehearsing(&self) -> bool {
        false
    }

    fn size(&mut self) -> Outcome<(i64, i64)> {
        if let Some(size) = self.size {
            return Ok(size);
        }
        // Asked anew for every program: the screen may have been resized since we connected.
        let hands = self.hands()?;
        let geometry = hands.watch(|| Ok(hands.connection.get_geometry(hands.root)?.reply()?)).map_err(Stop::Display)?;
        let size = (i64::from(geometry.width), i64::from(geometry.height));
        self.size = Some(size);
        Ok(size)
    }

    fn pointer(&mut self) -> Outcome<(i64, i64)> {
        let (x, y) = self.hands()?.pointer().map_err(Stop::Display)?;
        Ok((i64::from(x), i64::from(y)))
    }

    fn motion(&mut self, x: i16, y: i16) -> Outcome<()> {
        self.make(|hands| hands.motion(x, y))?;
        self.note(trace::Event::Motion { x: x.into(), y: y.into() });
        Ok(())
    }

    fn button(&mut self, button: u8, down: bool) -> Outcome<()> {
        self.make(|hands| hands.button(button, down))?;
        self.note(trace::Event::Button { button, down });
        Ok(())
    }

    fn key(&mut self, keycode: u8, down: bool) -> Outcome<()> {
        self.make(|hands| hands.key(keycode, down))?;
        if let Some(keysym) = self.meant.get(&keycode) {
            self.note(trace::Event::Key { keysym: *keysym, down });
        }
        Ok(())
    }

    fn keycode(&mut self, keysym: u32) -> Outcome<u8> {
        if self.keymap.is_none() {
            // PyAutoGUI reads the map once per program, too.
            let hands = self.hands()?;
            let setup = hands.connection.setup();
            let (first, count) = (setup.min_keycode, setup.max_keycode - setup.min_keycode + 1);
            let map = hands.watch(|| Ok(hands.connection.get_keyboard_mapping(first, count)?.reply()?)).map_err(Stop::Display)?;
            self.keymap = Some(Keymap { first, columns: map.keysyms_per_keycode, keysyms: map.keysyms });
        }
        let keymap = self.keymap.as_ref();
        let code = keymap.map_or(0, |map| keys::keycode(&map.keysyms, map.columns, map.first, keysym));
        self.meant.insert(code, keysym);
        Ok(code)
    }

    fn sync(&mut self) -> Outcome<()> {
        self.hands()?.sync().map_err(Stop::Display)
    }

    fn left_handed(&mut self) -> bool {
        super::handed::left_handed(&self.place)
    }

    fn sleep(&mut self, seconds: f64) -> Outcome<()> {
        self.in_time()?;
        let rest = self.deadline.saturating_duration_since(Instant::now());
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if time <= rest => std::thread::sleep(time),
            _ => {
                std::thread::sleep(rest);
                return Err(Stop::Late);
            }
        }
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        self.place.env.get(name).cloned()
    }

    fn complaints(&mut self) -> Outcome<String> {
        let mut text = String::new();
        if let Some(hands) = &self.hands
            && self.touched
        {
            let poll = || hands.connection.poll_for_event().map_err(Error::from);
            while let Some(event) = hands.watch(poll).map_err(Stop::Display)? {
                if let x11rb::protocol::Event::Error(error) = event {
                    text.push_str(&complaint(&error));
                }
            }
        }
        Ok(text)
    }
}

/// An error of the X server in the words of python3-xlib.
fn complaint(error: &x11rb::x11_utils::X11Error) -> String {
    let class = match error.error_kind {
        x11rb::protocol::ErrorKind::Value => "BadValue",
        x11rb::protocol::ErrorKind::Access => "BadAccess",
        x11rb::protocol::ErrorKind::Match => "BadMatch",
        _ => "XError",
    };
    protocol_error(class, error.error_code, error.bad_value, error.sequence, error.major_opcode, error.minor_opcode)
}

fn protocol_error(class: &str, code: u8, value: u32, sequence: u16, major: u8, minor: u16) -> String {
    format!(
        "X protocol error:\n<class 'Xlib.error.{class}'>: code = {code}, resource_id = {value}, \
         sequence_number = {sequence}, major_opcode = {major}, minor_opcode = {minor}\n"
    )
}

/// Something that a program did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    Motion(i16, i16),
    Button(u8, bool),
    Key(u8, bool),
    /// Seconds.
    Sleep(f64),
}

/// A world where nothing happens but what the program does. Keys have made-up codes.
#[derive(Debug)]
pub(super) struct Rehearsal {
    /// What the world would answer is not known yet.
    pub(super) unknown: bool,
    pub(super) size: (i64, i64),
    pub(super) pointer: (i64, i64),
    pub(super) left_handed: bool,
    pub(super) home: String,
    /// Kept only if somebody looks at it.
    pub(super) events: Option<Vec<Event>>,
    complaints: String,
}

impl Rehearsal {
    /// Before the run: everything that depends on the world is unknown.
    pub(super) fn blind() -> Self {
        Self { unknown: true, events: None, ..Self::seeing((1920, 1080), (640, 360)) }
    }

    /// As if on a screen of this size, with the pointer there.
    pub(super) fn seeing(size: (i64, i64), pointer: (i64, i64)) -> Self {
        let home = "/home/user".to_owned();
        Self { unknown: false, size, pointer, left_handed: false, home, events: Some(Vec::new()), complaints: String::new() }
    }

    fn record(&mut self, event: Event) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
    }
}

impl World for Rehearsal {
    fn rehearsing(&self) -> bool {
        self.unknown
    }

    fn size(&mut self) -> Outcome<(i64, i64)> {
        Ok(self.size)
    }

    fn pointer(&mut self) -> Outcome<(i64, i64)> {
        Ok(self.pointer)
    }

    fn motion(&mut self, x: i16, y: i16) -> Outcome<()> {
        if !self.unknown {
            self.pointer = (i64::from(x).clamp(0, self.size.0 - 1), i64::from(y).clamp(0, self.size.1 - 1));
        }
        self.record(Event::Motion(x, y));
        Ok(())
    }

    fn button(&mut self, button: u8, down: bool) -> Outcome<()> {
        self.record(Event::Button(button, down));
        Ok(())
    }

    fn key(&mut self, keycode: u8, down: bool) -> Outcome<()> {
        if keycode == 0 {
            if !self.unknown {
                self.complaints.push_str(&protocol_error("BadValue", 2, 0, 0, 132, 2));
            }
            return Ok(());
        }
        self.record(Event::Key(keycode, down));
        Ok(())
    }

    /// Latin letters have their own number, other keys the low byte of their keysym; keys beyond
    /// F12 are missing, as on most keyboards.
    fn keycode(&mut self, keysym: u32) -> Outcome<u8> {
        Ok(if (0xffca..=0xffd5).contains(&keysym) { 0 } else { u8::try_from(keysym & 0xff).unwrap_or(0) })
    }

    fn sync(&mut self) -> Outcome<()> {
        Ok(())
    }

    fn left_handed(&mut self) -> bool {
        self.left_handed
    }

    fn sleep(&mut self, seconds: f64) -> Outcome<()> {
        self.record(Event::Sleep(seconds));
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        match name {
            "HOME" => Some(self.home.clone()),
            "DISPLAY" => Some(":0".to_owned()),
            _ => None,
        }
    }

    fn complaints(&mut self) -> Outcome<String> {
        Ok(std::mem::take(&mut self.complaints))
    }
}
