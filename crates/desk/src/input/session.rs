//! One open display: does lists of actions, and knows what is pressed and lent.

use super::hands::Hands;
use super::keyboard::{self, CORE_KEYBOARD, Keyboard, State};
use super::plan::{LONGEST, Plan};
use super::spare::Spare;
use super::turn::Turn;
use super::worker::{Control, Progress, halted};
use crate::error::Result;
use crate::place::Display;
use hotdesk_api::action::{Receipt, Size};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xkb::ConnectionExt as _;
use x11rb::protocol::xproto::ConnectionExt as _;

/// A list whose work takes longer than planned is stopped this long after the limit.
const GRACE: Duration = Duration::from_secs(60);

pub(super) struct Session {
    pub(super) hands: Hands,
    pub(super) keyboard: Keyboard,
    pub(super) spare: Spare,
    /// Keys that stay down on purpose: their symbol and the keycodes pressed for it.
    pub(super) held: Vec<(u32, Vec<u8>)>,
    /// Buttons that stay down on purpose; the X server tells about the first five only.
    pub(super) held_buttons: Vec<u8>,
}

/// The keyboard at one moment.
pub(super) struct Look {
    /// With everything that is pressed, for text: what comes out must be exact.
    pub(super) state: State,
    /// Without what is pressed and without caps lock, for keys: a key is a place, not a letter.
    pub(super) locked: State,
    /// Keys that are down.
    pub(super) down: [u8; 32],
}

impl Session {
    pub(super) fn open(display: &Display) -> Result<Self> {
        let hands = Hands::connect(display)?;
        keyboard::subscribe(&hands.connection)?;
        let keyboard = Keyboard::load(&hands.connection)?;
        let mut spare = Spare::new();
        spare.refresh(&keyboard);
        Ok(Self { hands, keyboard, spare, held: Vec::new(), held_buttons: Vec::new() })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.hands.sync().is_ok()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.hands.is_broken()
    }

    pub(super) fn has_lent(&self) -> bool {
        self.spare.in_use()
    }

    /// Gives back keycodes that were lent to missing symbols.
    pub(super) fn give_back(&mut self) -> Result<()> {
        let Self { hands, spare, .. } = self;
        hands.watch(|| spare.restore(&hands.connection, hands.root))?;
        self.reload()
    }

    pub(super) fn run(&mut self, plan: &Plan, control: &Control, asked: u64, progress: &Progress) -> Result<Vec<Receipt>> {
        plan.check_places(self.screen()?)?;
        let deadline = Instant::now() + LONGEST + GRACE;
        let mut turn = Turn::new(self, control, progress, asked, deadline);
        let mut receipts = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.iter().enumerate() {
            let start = Instant::now();
            if let Err(error) = turn.step(step) {
                turn.undo();
                return Err(match error {
                    error if !progress.touched.load(Ordering::Acquire) => error,
                    error => halted(index, plan.steps.len(), &error.to_string()),
                });
            }
            progress.done.store(index + 1, Ordering::Release);
            receipts.push(Receipt { index: index as u32, done: true, ms: milliseconds(start.elapsed()) });
        }
        Ok(receipts)
    }

    /// Releases every key and button that is down, whoever pressed it.
    pub(super) fn release_all(&mut self) -> Result<()> {
        let Self { hands, .. } = &*self;
        let keys = hands.watch(|| Ok(hands.connection.query_keymap()?.reply()?.keys))?;
        let mask = hands.watch(|| Ok(u16::from(hands.connection.query_pointer(hands.root)?.reply()?.mask)))?;
        for keycode in (8..=255u8).filter(|keycode| is_down(&keys, *keycode)) {
            hands.key(keycode, false)?;
        }
        let held = (1..=5u8).filter(|button| mask & (0x80 << button) != 0).chain(self.held_buttons.iter().copied());
        for button in held {
            hands.button(button, false)?;
        }
        hands.sync()?;
        self.held.clear();
        self.held_buttons.clear();
        Ok(())
    }

    fn screen(&self) -> Result<Size> {
        let root = self.hands.watch(|| Ok(self.hands.connection.get_geometry(self.hands.root)?.reply()?))?;
        Ok(Size { width: root.width.into(), height: root.height.into() })
    }

    /// The keyboard's state and the keys that are down; the map is loaded again when it is a new one.
    pub(super) fn look(&mut self) -> Result<Look> {
        let connection = &self.hands.connection;
        let look = self.hands.watch(|| {
            let down = connection.query_keymap()?;
            let state = connection.xkb_get_state(CORE_KEYBOARD)?.reply()?;
            Ok(Look { state: State::now(&state), locked: State::locked(&state), down: down.reply()?.keys })
        })?;
        let mut stale = false;
        while let Some(event) = self.hands.watch(|| Ok(self.hands.connection.poll_for_event()?))? {
            stale |= matches!(event, Event::XkbMapNotify(_) | Event::XkbNewKeyboardNotify(_) | Event::MappingNotify(_));
        }
        if stale {
            self.reload()?;
        }
        Ok(look)
    }

    fn reload(&mut self) -> Result<()> {
        self.keyboard = self.hands.watch(|| Keyboard::load(&self.hands.connection))?;
        self.spare.refresh(&self.keyboard);
        Ok(())
    }

    /// Gives keycodes to symbols that have none.
    pub(super) fn lend(&mut self, new: &[u32], keep: &[u32]) -> Result<()> {
        let Self { hands, spare, .. } = self;
        hands.watch(|| spare.assign(&hands.connection, hands.root, new, keep))?;
        self.reload()
    }
}

/// Whether a key is down in X's map of keys.
pub(super) fn is_down(keys: &[u8; 32], keycode: u8) -> bool {
    keys[usize::from(keycode / 8)] & (1 << (keycode % 8)) != 0
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
