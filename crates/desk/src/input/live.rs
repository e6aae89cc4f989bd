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
    Pointer {
        x: u16,
        y: u16,
        buttons: u16,
    },
    Key {
        keysym: u32,
        down: bool,
    },
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
                self.lend(keysym)?;
                // With caps lock on, the program makes its own capital of it.
                let found = self.stroke(keysym, state).or_else(|| self.stroke(keysym, state.without_caps()));
                let Some(found) = found else { return Ok(()) };
                found
            }
        };
        let Some((keyboard, spare)) = &mut self.keys else { return Ok(()) };
        // Levels that the viewer's keyboard needs for this symbol and ours does not.
        let lifted: Vec<u8> =
            if lift { self.down.iter().filter(|(k, _)| LEVELS.contains(k)).map(|(_, code)| *code).collect() } else { Vec::new() };
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
                let Some(held) = self.down.iter().find(|(_, code)| **code == stroke.keycode).map(|(k, _)| *k) else {
                    return Ok(());
                };
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
    fn lend(&mut self, keysym: u32) -> Result<()> {
        let Some((keyboard, spare)) = &mut self.keys else { return Ok(()) };
        let hands = &self.hands;
        let keep: Vec<u32> = self.down.values().filter_map(|code| spare.symbol_of(*code)).collect();
        hands.watch(|| spare.assign(&hands.connection, hands.root, &[keysym], &keep))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x11::next_event;
    use crate::x11::tests::TestDisplay;
    use x11rb::protocol::xproto::{ConnectionExt as _, CreateWindowAux, EventMask, InputFocus, WindowClass};
    use x11rb::rust_connection::RustConnection;
    use x11rb::wrapper::ConnectionExt as _;
    use xkeysym::Keysym;

    /// A window that has the keyboard and writes down what it gets.
    struct Paper {
        connection: RustConnection,
    }

    impl Paper {
        fn new(display: &TestDisplay) -> Self {
            let (connection, _) = display.place.display.connect().unwrap();
            let root = connection.setup().roots[0].clone();
            let window = connection.generate_id().unwrap();
            let mask = EventMask::KEY_PRESS | EventMask::KEY_RELEASE;
            let how = CreateWindowAux::new().override_redirect(1).event_mask(mask);
            connection.create_window(0, window, root.root, 0, 0, 99, 99, 0, WindowClass::INPUT_OUTPUT, 0, &how).unwrap();
            connection.map_window(window).unwrap();
            connection.sync().unwrap();
            connection.set_input_focus(InputFocus::PARENT, window, 0u32).unwrap();
            connection.sync().unwrap();
            Self { connection }
        }

        /// The characters that a simple program would write, until so many keys were pressed.
        fn written(&self, count: usize) -> String {
            let mut text = String::new();
            let deadline = Instant::now() + Duration::from_secs(20);
            while text.chars().count() < count {
                match next_event(&self.connection, deadline).unwrap() {
                    Some(XEvent::KeyPress(event)) => {
                        let map = self.connection.get_keyboard_mapping(event.detail, 1).unwrap().reply().unwrap();
                        let shift = u16::from(event.state) & 1 == 1;
                        let capitals = u16::from(event.state) & 2 == 2;
                        let symbol = map.keysyms[usize::from(shift ^ (capitals && map.keysyms[0] != map.keysyms[1]))];
                        text.extend(Keysym::new(symbol).key_char().filter(|c| !c.is_control()));
                    }
                    Some(_) => {}
                    None => panic!("only {text:?} was written"),
                }
            }
            text
        }

        fn is_all_released(&self) -> bool {
            self.connection.query_keymap().unwrap().reply().unwrap().keys == [0; 32]
        }
    }

    fn key(hands: &mpsc::Sender<Event>, keysym: u32, down: bool) {
        hands.blocking_send(Event::Key { keysym, down }).unwrap();
    }

    fn tap(hands: &mpsc::Sender<Event>, keysym: u32) {
        key(hands, keysym, true);
        key(hands, keysym, false);
    }

    fn until(what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn keys_come_as_the_viewer_means_them() {
        let display = TestDisplay::bare();
        let paper = Paper::new(&display);
        let hands = hands(display.place.clone());
        // A keyboard like ours: shift comes as a key of its own.
        tap(&hands, key::a);
        key(&hands, key::Shift_L, true);
        tap(&hands, key::A);
        tap(&hands, key::exclam);
        // A German one: `/` is shift and 7 there, and no shift here.
        tap(&hands, key::slash);
        tap(&hands, key::B);
        key(&hands, key::Shift_L, false);
        // A French one: a digit without shift is no news; `?` without shift is.
        tap(&hands, key::question);
        tap(&hands, key::c);
        // What no key has, thrice, and what a phone sends: capitals without shift.
        tap(&hands, 0x0100_0416);
        tap(&hands, key::adiaeresis);
        tap(&hands, 0x0101_f642);
        tap(&hands, key::D);
        assert_eq!(paper.written(11), "aA!/B?cЖä🙂D");
        until("everything is released", || paper.is_all_released());
    }

    #[test]
    fn a_shift_between_press_and_release_leaves_nothing_behind() {
        let display = TestDisplay::bare();
        let paper = Paper::new(&display);
        let hands = hands(display.place.clone());
        key(&hands, key::a, true);
        key(&hands, key::Shift_L, true);
        key(&hands, key::A, false);
        key(&hands, key::Shift_L, false);
        tap(&hands, key::z);
        assert_eq!(paper.written(2), "az");
        until("everything is released", || paper.is_all_released());
    }

    #[test]
    fn who_goes_away_lets_go() {
        let display = TestDisplay::bare();
        let paper = Paper::new(&display);
        let hands = hands(display.place.clone());
        for keysym in [key::Control_L, key::Alt_L, key::x] {
            key(&hands, keysym, true);
        }
        // Rubbish is no key.
        key(&hands, 0, true);
        key(&hands, u32::MAX, true);
        key(&hands, 0x1234_5678, false);
        assert_eq!(paper.written(1), "x");
        assert!(!paper.is_all_released());
        drop(hands);
        until("everything is released", || paper.is_all_released());
    }

    #[test]
    fn hands_survive_a_display_that_dies() {
        let mut display = TestDisplay::bare();
        let hands = hands(display.place.clone());
        tap(&hands, key::a);
        display.kill();
        display.restart();
        let paper = Paper::new(&display);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    tap(&hands, key::b);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            assert_eq!(paper.written(1), "b");
            done.store(true, std::sync::atomic::Ordering::Release);
        });
    }
}
