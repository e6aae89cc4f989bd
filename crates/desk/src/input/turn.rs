//! One list at work: does its steps, and undoes what a step that fails has pressed.

mod text;

use super::hands::Hands;
use super::keyboard::Stroke;
use super::motion::{self, Pass};
use super::plan::Step;
use super::session::{Look, Session, is_down};
use super::worker::{Control, Progress};
use crate::error::{Error, Result};
use hotdesk_api::action::{Easing, Point};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use xkeysym::key;

/// Between the clicks of a double click: programs that compare times in milliseconds must see two.
const CLICK_GAP: Duration = Duration::from_millis(10);
/// Before a drag's button goes up, so that the program below has answered whether it takes the thing.
const DROP_PAUSE: Duration = Duration::from_millis(40);

/// What a list may do and what it must undo.
pub(super) struct Turn<'a> {
    session: &'a mut Session,
    control: &'a Control,
    progress: &'a Progress,
    asked: u64,
    deadline: Instant,
    /// Pressed by the current step and not meant to stay.
    keys: Vec<u8>,
    buttons: Vec<u8>,
    /// Keys that are down, by whomever.
    down: [u8; 32],
    /// Caps lock was unlocked for a text.
    uncapped: bool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        control: &'a Control,
        progress: &'a Progress,
        asked: u64,
        deadline: Instant,
    ) -> Self {
        let (keys, buttons) = (Vec::new(), Vec::new());
        Self { session, control, progress, asked, deadline, keys, buttons, down: [0; 32], uncapped: false }
    }
}

impl Turn<'_> {
    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        self.may_go_on()?;
        match step {
            Step::Move { to, ms, easing } => self.travel(*to, *ms, *easing)?,
            Step::Click { at, button, times, hold } => {
                self.held_with(hold, |turn| {
                    turn.go(*at)?;
                    for index in 0..*times {
                        if index > 0 {
                            turn.pause(CLICK_GAP)?;
                        }
                        turn.press_button(*button)?;
                        turn.release_button(*button)?;
                    }
                    Ok(())
                })?;
            }
            Step::ButtonDown { at, button } => {
                self.go(*at)?;
                self.touch()?.button(*button, true)?;
                self.session.held_buttons.push(*button);
            }
            Step::ButtonUp { at, button } => {
                self.go(*at)?;
                self.touch()?.button(*button, false)?;
                self.session.held_buttons.retain(|held| held != button);
            }
            Step::Drag { path, button, ms, easing, hold } => {
                self.held_with(hold, |turn| turn.drag(path, *button, *ms, *easing))?;
            }
            Step::Scroll { at, dx, dy, hold } => {
                self.held_with(hold, |turn| {
                    turn.go(*at)?;
                    turn.turn_wheel(*dy, 4, 5)?;
                    turn.turn_wheel(*dx, 6, 7)
                })?;
            }
            Step::Key { keys, times } => {
                for _ in 0..*times {
                    self.held_with(keys, |_| Ok(()))?;
                    self.may_go_on()?;
                }
            }
            Step::KeyDown { keys } => self.keep_down(keys)?,
            Step::KeyUp { keys } => self.let_go(keys)?,
            Step::Type { text, interval_ms } => self.write(text, *interval_ms)?,
            Step::Wait { ms } => return self.pause(Duration::from_millis((*ms).into())),
        }
        self.session.hands.sync()?;
        self.control.lives_until(Instant::now());
        Ok(())
    }

    // Pointer.

    fn go(&mut self, at: Option<Point>) -> Result<()> {
        match at {
            Some(Point { x, y }) => self.touch()?.motion(short(x), short(y)),
            None => Ok(()),
        }
    }

    fn travel(&mut self, to: Point, ms: u32, easing: Easing) -> Result<()> {
        let from = if ms == 0 { to } else { self.pointer()? };
        self.pass(&motion::straight(from, to, ms, easing), ms)
    }

    fn drag(&mut self, path: &[Point], button: u8, ms: u32, easing: Easing) -> Result<()> {
        let mut whole = Vec::with_capacity(path.len() + 1);
        if path.len() == 1 {
            whole.push(self.pointer()?);
        }
        whole.extend_from_slice(path);
        self.go(whole.first().copied())?;
        self.press_button(button)?;
        self.pass(&motion::dragged(&whole, ms, easing), ms)?;
        self.pause(DROP_PAUSE)?;
        self.go(whole.last().copied())?;
        self.release_button(button)
    }

    fn pass(&mut self, passes: &[Pass], ms: u32) -> Result<()> {
        let (start, whole) = (Instant::now(), Duration::from_millis(ms.into()));
        for pass in passes {
            if ms > 0 {
                self.sleep_until(start + whole.mul_f64(pass.time))?;
            }
            self.go(Some(pass.at))?;
        }
        Ok(())
    }

    fn pointer(&self) -> Result<Point> {
        let (x, y) = self.session.hands.pointer()?;
        Ok(Point { x: x.into(), y: y.into() })
    }

    fn turn_wheel(&mut self, notches: i32, negative: u8, positive: u8) -> Result<()> {
        let button = if notches < 0 { negative } else { positive };
        for _ in 0..notches.unsigned_abs() {
            self.press_button(button)?;
            self.release_button(button)?;
        }
        Ok(())
    }

    fn press_button(&mut self, button: u8) -> Result<()> {
        self.buttons.push(button);
        self.touch()?.button(button, true)
    }

    fn release_button(&mut self, button: u8) -> Result<()> {
        self.touch()?.button(button, false)?;
        self.buttons.retain(|pressed| *pressed != button);
        Ok(())
    }

    // Keys.

    /// Presses keys, does something and releases them in reverse order.
    fn held_with(&mut self, keys: &[u32], act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if keys.is_empty() {
            return act(self);
        }
        for stroke in self.strokes(keys)? {
            self.press_stroke(stroke)?;
        }
        act(self)?;
        self.release_keys(0)
    }

    fn keep_down(&mut self, keys: &[u32]) -> Result<()> {
        let strokes = self.strokes(keys)?;
        for (symbol, stroke) in keys.iter().zip(strokes) {
            let before = self.keys.len();
            self.press_stroke(stroke)?;
            let pressed = self.keys.split_off(before);
            if !pressed.is_empty() {
                self.session.held.push((*symbol, pressed));
            }
        }
        Ok(())
    }

    fn let_go(&mut self, keys: &[u32]) -> Result<()> {
        for symbol in keys {
            let held = self.session.held.iter().rposition(|(held, _)| held == symbol);
            let keycodes = match held {
                Some(index) => self.session.held.remove(index).1,
                // Somebody else pressed it.
                None => self.strokes(&[*symbol])?.into_iter().map(|stroke| stroke.keycode).collect(),
            };
            for keycode in keycodes.into_iter().rev() {
                if !self.session.held.iter().any(|(_, others)| others.contains(&keycode)) {
                    self.touch()?.key(keycode, false)?;
                }
            }
        }
        Ok(())
    }

    /// The strokes for a chord. Symbols that the layout lacks get keycodes first.
    fn strokes(&mut self, keys: &[u32]) -> Result<Vec<Stroke>> {
        let Look { locked: state, down, .. } = self.session.look()?;
        self.down = down;
        let command = keys.iter().any(|symbol| is_command(*symbol));
        let wanted: Vec<u32> = keys.iter().map(|symbol| if command { small_letter(*symbol) } else { *symbol }).collect();
        let missing: Vec<u32> =
            wanted.iter().copied().filter(|symbol| self.session.keyboard.key(*symbol, state, command).is_none()).collect();
        if !missing.is_empty() {
            self.touch()?;
            self.session.lend(&missing, &wanted)?;
        }
        let lost = || Error::Conflict("the keyboard's map was changed by somebody else meanwhile".into());
        let stroke = |symbol| self.session.keyboard.key(symbol, state, command).ok_or_else(lost);
        wanted.into_iter().map(stroke).collect()
    }

    fn press_stroke(&mut self, stroke: Stroke) -> Result<()> {
        let holders: Vec<u8> = self.session.keyboard.holders(stroke.modifiers).collect();
        for keycode in holders {
            self.press_key(keycode)?;
        }
        self.session.spare.note(stroke.keycode);
        self.press_key(stroke.keycode)
    }

    fn press_key(&mut self, keycode: u8) -> Result<()> {
        // A key that is down already was pressed on purpose and stays.
        if is_down(&self.down, keycode) || self.keys.contains(&keycode) {
            return Ok(());
        }
        self.keys.push(keycode);
        self.touch()?.key(keycode, true)
    }

    /// Releases the keys of this step, down to the first `rest`.
    fn release_keys(&mut self, rest: usize) -> Result<()> {
        while self.keys.len() > rest {
            let Some(keycode) = self.keys.last().copied() else { break };
            self.touch()?.key(keycode, false)?;
            self.keys.pop();
        }
        Ok(())
    }

    // Time.

    fn pause(&mut self, duration: Duration) -> Result<()> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&mut self, then: Instant) -> Result<()> {
        self.session.hands.watch(|| Ok(self.session.hands.connection.flush()?))?;
        if self.control.sleep(self.asked, then) { Ok(()) } else { Err(stopped()) }
    }

    fn may_go_on(&self) -> Result<()> {
        self.progress.pass.check()?;
        if self.control.stops() != self.asked {
            return Err(stopped());
        }
        if Instant::now() > self.deadline {
            return Err(Error::Conflict("the list took too long".into()));
        }
        Ok(())
    }

    /// The hands, for an event: from now on the list had an effect.
    fn touch(&mut self) -> Result<&Hands> {
        if self.progress.touch() { Ok(&self.session.hands) } else { Err(Error::display_down("it did not answer in time")) }
    }

    /// Releases what a step that failed has pressed. Whether it works is for the X server to decide.
    pub(super) fn undo(&mut self) {
        let hands = &self.session.hands;
        for button in self.buttons.drain(..).rev() {
            let _ = hands.button(button, false);
        }
        for keycode in self.keys.drain(..).rev() {
            let _ = hands.key(keycode, false);
        }
        let _ = self.cap();
        let _ = self.session.hands.sync();
    }
}

fn stopped() -> Error {
    Error::Conflict("everything was released".into())
}

/// Modifiers that make a command of a letter.
fn is_command(symbol: u32) -> bool {
    matches!(symbol, key::Control_L | key::Control_R | key::Alt_L | key::Alt_R | key::Meta_L | key::Meta_R)
        || matches!(symbol, key::Super_L | key::Super_R | key::Hyper_L | key::Hyper_R)
}

fn small_letter(symbol: u32) -> u32 {
    match symbol {
        key::A..=key::Z => symbol + (key::a - key::A),
        _ => symbol,
    }
}

/// Places were checked to lie on the screen, which is never larger than this.
fn short(coordinate: i32) -> i16 {
    coordinate.clamp(0, i16::MAX.into()) as i16
}
