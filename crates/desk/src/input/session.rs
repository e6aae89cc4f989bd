//! One open display: does the steps of a list, and knows what they pressed.

use super::hands::Hands;
use super::keyboard::{self, CORE_KEYBOARD, Keyboard, State, Stroke};
use super::keys::character_keysym;
use super::motion::{self, Pass};
use super::plan::{LONGEST, Plan, Step};
use super::spare::Spare;
use super::worker::{Control, Progress, halted};
use crate::error::{Error, Result};
use crate::place::Display;
use hotdesk_api::action::{Easing, Point, Receipt, Size};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xkb::ConnectionExt as _;
use x11rb::protocol::xproto::ConnectionExt as _;
use xkeysym::key;

/// Between the clicks of a double click: programs that compare times in milliseconds must see two.
const CLICK_GAP: Duration = Duration::from_millis(10);
/// Before a drag's button goes up, so that the program below has answered whether it takes the thing.
const DROP_PAUSE: Duration = Duration::from_millis(40);
/// Characters between two looks at whether to stop.
const CHUNK: usize = 256;
/// A list whose work takes longer than planned is stopped this long after the limit.
const GRACE: Duration = Duration::from_secs(60);

pub(super) struct Session {
    hands: Hands,
    keyboard: Keyboard,
    spare: Spare,
    /// Keys that stay down on purpose: their symbol and the keycodes pressed for it.
    held: Vec<(u32, Vec<u8>)>,
    /// Buttons beyond the five that the X server tells about.
    held_buttons: Vec<u8>,
}

/// One list at work: what it may do and what it must undo.
struct Turn<'a> {
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

/// The keyboard at one moment.
struct Look {
    /// With everything that is pressed, for text: what comes out must be exact.
    state: State,
    /// Without what is pressed and without caps lock, for keys: a key is a place, not a letter.
    locked: State,
    /// Keys that are down.
    down: [u8; 32],
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
        let mut turn = Turn {
            session: self,
            control,
            progress,
            asked,
            deadline,
            keys: Vec::new(),
            buttons: Vec::new(),
            down: [0; 32],
            uncapped: false,
        };
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
    fn look(&mut self) -> Result<Look> {
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
    fn lend(&mut self, new: &[u32], keep: &[u32]) -> Result<()> {
        let Self { hands, spare, .. } = self;
        hands.watch(|| spare.assign(&hands.connection, hands.root, new, keep))?;
        self.reload()
    }
}

impl Turn<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
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
                self.touch().button(*button, true)?;
                self.session.held_buttons.push(*button);
            }
            Step::ButtonUp { at, button } => {
                self.go(*at)?;
                self.touch().button(*button, false)?;
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
            Some(Point { x, y }) => self.touch().motion(short(x), short(y)),
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
        if ms > 0 {
            self.pause(DROP_PAUSE)?;
            self.go(whole.last().copied())?;
        }
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
        self.touch().button(button, true)
    }

    fn release_button(&mut self, button: u8) -> Result<()> {
        self.touch().button(button, false)?;
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
                    self.touch().key(keycode, false)?;
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
            self.touch();
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
        self.touch().key(keycode, true)
    }

    /// Releases the keys of this step, down to the first `rest`.
    fn release_keys(&mut self, rest: usize) -> Result<()> {
        while self.keys.len() > rest {
            let Some(keycode) = self.keys.last().copied() else { break };
            self.touch().key(keycode, false)?;
            self.keys.pop();
        }
        Ok(())
    }

    // Text.

    fn write(&mut self, text: &[char], interval_ms: u32) -> Result<()> {
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

    fn cap(&mut self) -> Result<()> {
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

    // Time.

    fn pause(&mut self, duration: Duration) -> Result<()> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&mut self, then: Instant) -> Result<()> {
        self.session.hands.watch(|| Ok(self.session.hands.connection.flush()?))?;
        if self.control.sleep(self.asked, then) { Ok(()) } else { Err(stopped()) }
    }

    fn may_go_on(&self) -> Result<()> {
        if self.control.stops() != self.asked {
            return Err(stopped());
        }
        if Instant::now() > self.deadline {
            return Err(Error::Conflict("the list took too long".into()));
        }
        Ok(())
    }

    /// The hands, for an event: from now on the list had an effect.
    fn touch(&mut self) -> &Hands {
        self.progress.touched.store(true, Ordering::Release);
        &self.session.hands
    }

    /// Releases what a step that failed has pressed. Whether it works is for the X server to decide.
    fn undo(&mut self) {
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

fn is_down(keys: &[u8; 32], keycode: u8) -> bool {
    keys[usize::from(keycode / 8)] & (1 << (keycode % 8)) != 0
}

fn clear(keys: &mut [u8; 32], keycode: u8) {
    keys[usize::from(keycode / 8)] &= !(1 << (keycode % 8));
}

/// Places were checked to lie on the screen, which is never larger than this.
fn short(coordinate: i32) -> i16 {
    coordinate.clamp(0, i16::MAX.into()) as i16
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
