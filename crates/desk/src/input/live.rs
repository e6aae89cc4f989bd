//! Live hands: a person's keys and mouse, as a viewer passes them on, event by event.
//!
//! Each viewer that acts has a thread and a connection of its own, so that nobody waits for
//! anybody's turn and nothing is left pressed when a viewer goes away.

use super::hands::Hands;
use super::keyboard::{self, CORE_KEYBOARD, Keyboard, State, Stroke};
use super::spare::Spare;
use crate::error::Result;
use crate::place::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, error::TryRecvError};
use x11rb::connection::Connection;
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::xkb::ConnectionExt as _;
use xkeysym::key;

/// Events that wait for the X server. Nobody moves a mouse faster than they are taken.
const QUEUE: usize = 256;

/// While the display is down, how often it is looked for. Events meanwhile are lost.
const RETRY: Duration = Duration::from_millis(250);

/// Keys that choose another level of the others.
const LEVELS: [u32; 6] =
    [key::Shift_L, key::Shift_R, key::ISO_Level3_Shift, key::Mode_switch, key::ISO_Level5_Shift, key::Shift_Lock];

/// Keysyms have 29 bits.
const LARGEST_KEYSYM: u32 = 0x1fff_ffff;

/// What a viewer's keyboard or mouse did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Bit n of `buttons` is X's button n + 1.
    Pointer { x: u16, y: u16, buttons: u16 },
    Key { keysym: u32, down: bool },
}

/// Hands for one viewer. They do what is sent and let go of everything when the sender is dropped.
pub fn hands(place: Arc<Place>) -> mpsc::Sender<Event> {
    let (sender, events) = mpsc::channel(QUEUE);
    // Without a thread the sender finds the channel closed.
    let started = std::thread::Builder::new().name("live-hands".into()).spawn(move || work(&place, events));
    if let Err(e) = started {
        tracing::error!("no thread for a viewer's hands: {e}");
    }
    sender
}

fn work(place: &Place, mut events: mpsc::Receiver<Event>) {
    let mut open: Option<Live> = None;
    let mut retry_at = Instant::now();
    while let Some(first) = events.blocking_recv() {
        if open.is_none() && Instant::now() >= retry_at {
            open = Live::open(place).inspect_err(|reason| tracing::debug!(%reason, "no hands for a viewer")).ok();
            retry_at = Instant::now() + RETRY;
        }
        let Some(live) = &mut open else { continue };
        if let Err(reason) = live.take(first, &mut events)
            && live.hands.is_broken()
        {
            tracing::debug!(%reason, "a viewer's hands lost the display");
            open = None;
        }
    }
    if let Some(mut live) = open
        && let Err(reason) = live.let_go()
    {
        tracing::debug!(%reason, "a viewer's keys could not be released");
    }
}

/// An open display and what this viewer holds down.
struct Live {
    hands: Hands,
    /// Loaded with the first key: many viewers only use the mouse.
    keys: Option<(Keyboard, Spare)>,
    /// Keysyms that are down and the key that was pressed for each.
    down: BTreeMap<u32, u8>,
    buttons: u16,
    at: Option<(u16, u16)>,
}

impl Live {
    fn open(place: &Place) -> Result<Self> {
        Ok(Self { hands: Hands::connect(&place.display)?, keys: None, down: BTreeMap::new(), buttons: 0, at: None })
    }

    /// Does an event and those that came meanwhile.
    fn take(&mut self, first: Event, events: &mut mpsc::Receiver<Event>) -> Result<()> {
        let mut next = Ok(first);
        let mut result = Ok(());
        loop {
            let done = match next {
                Ok(Event::Pointer { x, y, buttons }) => self.pointer(x, y, buttons),
                Ok(Event::Key { keysym, down: true }) => self.press(keysym),
                Ok(Event::Key { keysym, down: false }) => self.release(keysym),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    self.hands.watch(|| Ok(self.hands.connection.flush()?))?;
                    return result;
                }
            };
            if self.hands.is_broken() {
                return done;
            }
            result = result.and(done);
            next = events.try_recv();
        }
    }

    fn pointer(&mut self, x: u16, y: u16, buttons: u16) -> Result<()> {
        let changed = self.buttons ^ buttons;
        // Somebody else may have moved the pointer since: a click goes where this viewer sees it go.
        if self.at != Some((x, y)) || changed != 0 {
            let side = |n: u16| i16::try_from(n).unwrap_or(i16::MAX);
            self.hands.motion(side(x), side(y))?;
            self.at = Some((x, y));
        }
        for bit in (0..9).filter(|bit| changed & 1 << bit != 0) {
            self.hands.button(bit + 1, buttons & 1 << bit != 0)?;
        }
        self.buttons = buttons & 0x1ff;
        Ok(())
    }

    fn press(&mut self, keysym: u32) -> Result<()> {
        // A viewer repeats a key that is held; so does the X server.
        if keysym == 0 || keysym > LARGEST_KEYSYM || self.down.contains_key(&keysym) {
            return Ok(());
        }
        let state = self.state()?;
        let (stroke, lift) = match self.stroke(keysym, state) {
            Some(found) => found,
            None => {
                self.lend(keysym, state)?;
                let Some(found) = self.stroke(keysym, state) else { return Ok(()) };
                found
            }
        };
        let Some((keyboard, spare)) = &mut self.keys else { return Ok(()) };
        // Levels that the viewer's keyboard needs for this symbol and ours does not.
        let lifted: Vec<u8> = if lift { self.down.iter().filter(|(k, _)| LEVELS.contains(k)).map(|(_, code)| *code).collect() } else { Vec::new() };
        let added: Vec<u8> = keyboard.holders(stroke.modifiers).collect();
        lifted.iter().try_for_each(|code| self.hands.key(*code, false))?;
        added.iter().try_for_each(|code| self.hands.key(*code, true))?;
        if self.down.values().any(|code| *code == stroke.keycode) {
            self.hands.key(stroke.keycode, false)?;
        }
        self.hands.key(stroke.keycode, true)?;
        added.iter().rev().try_for_each(|code| self.hands.key(*code, false))?;
        lifted.iter().try_for_each(|code| self.hands.key(*code, true))?;
        spare.note(stroke.keycode);
        self.down.insert(keysym, stroke.keycode);
        Ok(())
    }

    fn release(&mut self, keysym: u32) -> Result<()> {
        let keycode = match self.down.remove(&keysym) {
            Some(keycode) => keycode,
            None => {
                // Pressed as `a`, released as `A`: shift came between.
                if self.down.is_empty() || self.keys.is_none() {
                    return Ok(());
                }
                let state = self.state()?;
                let Some((stroke, _)) = self.stroke(keysym, state) else { return Ok(()) };
                let Some(held) = self.down.iter().find(|(_, code)| **code == stroke.keycode).map(|(k, _)| *k) else { return Ok(()) };
                self.down.remove(&held);
                stroke.keycode
            }
        };
        if self.down.values().any(|code| *code == keycode) { Ok(()) } else { self.hands.key(keycode, false) }
    }

    /// The key for a keysym, and whether the level keys that the viewer holds must be lifted for it.
    fn stroke(&mut self, keysym: u32, state: State) -> Option<(Stroke, bool)> {
        let (keyboard, _) = self.keys.as_mut()?;
        if let Some(stroke) = keyboard.key(keysym, state, true) {
            return Some((stroke, false));
        }
        let levels = keyboard.level_modifiers();
        let lifted = State { modifiers: state.modifiers & !levels, ..state };
        keyboard.key(keysym, lifted, true).map(|stroke| (stroke, true))
    }

    /// The keyboard's state; its map is loaded when there is none or a new one.
    fn state(&mut self) -> Result<State> {
        let hands = &self.hands;
        let (mut keyboard, mut spare) = match self.keys.take() {
            Some((keyboard, spare)) => (Some(keyboard), spare),
            None => {
                hands.watch(|| keyboard::subscribe(&hands.connection))?;
                (None, Spare::new())
            }
        };
        let state = hands.watch(|| Ok(State::now(&hands.connection.xkb_get_state(CORE_KEYBOARD)?.reply()?)))?;
        while let Some(event) = hands.watch(|| Ok(hands.connection.poll_for_event()?))? {
            if matches!(event, XEvent::XkbMapNotify(_) | XEvent::XkbNewKeyboardNotify(_) | XEvent::MappingNotify(_)) {
                keyboard = None;
            }
        }
        let keyboard = match keyboard {
            Some(keyboard) => keyboard,
            None => {
                let keyboard = hands.watch(|| Keyboard::load(&hands.connection))?;
                spare.refresh(&keyboard);
                keyboard
            }
        };
        self.keys = Some((keyboard, spare));
        Ok(state)
    }

    /// Gives a keycode to a symbol that has none.
    fn lend(&mut self, keysym: u32, state: State) -> Result<()> {
        let Some((keyboard, spare)) = &mut self.keys else { return Ok(()) };
        let hands = &self.hands;
        let keep: Vec<u32> = self.down.values().filter_map(|code| spare.symbol_of(*code)).collect();
        hands.watch(|| spare.assign(&hands.connection, hands.root, &[keysym], &keep, state.caps()))?;
        *keyboard = hands.watch(|| Keyboard::load(&hands.connection))?;
        spare.refresh(keyboard);
        Ok(())
    }

    /// Releases everything that this viewer pressed.
    fn let_go(&mut self) -> Result<()> {
        for keycode in std::mem::take(&mut self.down).into_values() {
            self.hands.key(keycode, false)?;
        }
        for bit in (0..9).filter(|bit| self.buttons & 1 << bit != 0) {
            self.hands.button(bit + 1, false)?;
        }
        self.buttons = 0;
        self.hands.sync()?;
        match &mut self.keys {
            Some((_, spare)) => spare.restore(&self.hands.connection, self.hands.root),
            None => Ok(()),
        }
    }
}
