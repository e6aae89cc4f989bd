//! Typing text: exact whatever the layout, the locks and the characters.

use super::Turn;
use crate::error::{Error, Result};
use crate::input::keyboard::{self, State};
use crate::input::keys::character_keysym;
use crate::input::session::{Look, Session, is_down};
use std::time::{Duration, Instant};

/// Characters between two looks at whether to stop.
const CHUNK: usize = 256;

impl Turn<'_> {
    pub(super) fn write(&mut self, text: &[char], interval_ms: u32) -> Result<()> {
        let Look { state, down, .. } = self.session.look()?;
        self.down = down;
        // Programs capitalise by themselves what no level of a key answers for, so a text that is to
        // come out as it stands needs the lock to be off.
        if state.caps() && !text.is_empty() {
            keyboard::set_caps(&self.touch().connection, false)?;
            self.uncapped = true;
        }
        self.write_uncapped(text, state.without_caps(), interval_ms)?;
        self.cap()
    }

    /// Locks capital letters again if they were unlocked for a text.
    pub(super) fn cap(&mut self) -> Result<()> {
        if std::mem::take(&mut self.uncapped) {
            keyboard::set_caps(&self.session.hands.connection, true)?;
        }
        Ok(())
    }

    fn write_uncapped(&mut self, text: &[char], state: State, interval_ms: u32) -> Result<()> {
        let mut rest = text;
        while !rest.is_empty() {
            let (run, new, keep) = self.run_of(rest, state);
            if run == 0 {
                return Err(Error::Conflict("the keyboard has no unused keycodes for characters that it lacks".into()));
            }
            if !new.is_empty() {
                self.touch();
                self.session.lend(&new, &keep)?;
            }
            let (now, later) = rest.split_at(run);
            self.write_run(now, state, Duration::from_millis(interval_ms.into()))?;
            rest = later;
        }
        Ok(())
    }

    /// How many of the characters can be typed with one map, which symbols must be given a keycode for
    /// it, and which of the lent ones are used.
    fn run_of(&mut self, text: &[char], state: State) -> (usize, Vec<u32>, Vec<u32>) {
        let Session { keyboard, spare, .. } = &mut *self.session;
        let (mut new, mut keep) = (Vec::new(), Vec::new());
        for (index, character) in text.iter().enumerate() {
            let lent = match keyboard.character(*character, state) {
                Some(stroke) => match spare.symbol_of(stroke.keycode) {
                    Some(symbol) => (symbol, true),
                    None => continue,
                },
                None => match character_keysym(*character) {
                    Some(symbol) => (symbol, false),
                    None => return (index, new, keep),
                },
            };
            let (symbol, list) = if lent.1 { (lent.0, &keep) } else { (lent.0, &new) };
            if list.contains(&symbol) {
                continue;
            }
            if new.len() + keep.len() == spare.room() {
                return (index, new, keep);
            }
            if lent.1 { keep.push(symbol) } else { new.push(symbol) }
        }
        (text.len(), new, keep)
    }

    fn write_run(&mut self, text: &[char], state: State, interval: Duration) -> Result<()> {
        let mut modifiers = 0;
        for (index, character) in text.iter().enumerate() {
            let Some(stroke) = self.session.keyboard.character(*character, state) else {
                return Err(Error::Conflict("the keyboard's map was changed by somebody else meanwhile".into()));
            };
            if stroke.modifiers != modifiers {
                self.release_keys(0)?;
                let holders: Vec<u8> = self.session.keyboard.holders(stroke.modifiers).collect();
                for keycode in holders {
                    self.press_key(keycode)?;
                }
                modifiers = stroke.modifiers;
            }
            self.session.spare.note(stroke.keycode);
            let held = self.keys.len();
            if is_down(&self.down, stroke.keycode) {
                // It is held by somebody; a program only sees a stroke if it comes up first.
                self.touch().key(stroke.keycode, false)?;
                clear(&mut self.down, stroke.keycode);
            }
            self.press_key(stroke.keycode)?;
            self.release_keys(held)?;
            if !interval.is_zero() {
                self.release_keys(0)?;
                modifiers = 0;
                self.pause(interval)?;
            } else if index % CHUNK == CHUNK - 1 {
                self.session.hands.sync()?;
                self.control.lives_until(Instant::now());
                self.may_go_on()?;
            }
        }
        self.release_keys(0)
    }
}

fn clear(keys: &mut [u8; 32], keycode: u8) {
    keys[usize::from(keycode / 8)] &= !(1 << (keycode % 8));
}
