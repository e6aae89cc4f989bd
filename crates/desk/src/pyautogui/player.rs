//! Plays PyAutoGUI's functions, event by event, as version 0.9.54 does them on X11.

use super::easing::Easing;
use super::gestures::{Arguments, Bound, Gesture, seconds};
use super::keys;
use super::operate::truth;
use super::stop::{Outcome, raise, refuse};
use super::value::{Items, Pair, Unknown, Value};
use super::world::World;

/// No place outside of this is meant; X itself ends at twice that. Screens are smaller, which is
/// checked before a program starts, so that sums of two places can't leave X's 16 bits.
pub(super) const FARTHEST: i64 = 16_383;
/// The most events of one program. Beyond it, it takes longer than its time limit anyway.
const MOST_EVENTS: usize = 200_000;
/// PyAutoGUI's `MINIMUM_DURATION` and `MINIMUM_SLEEP`.
const SHORTEST_GLIDE: f64 = 0.1;
const SHORTEST_STEP: f64 = 0.05;
const FAIL_SAFE: &str = "PyAutoGUI fail-safe triggered from mouse moving to a corner of the screen. \
     To disable this fail-safe, set pyautogui.FAILSAFE to False. DISABLING FAIL-SAFE IS NOT RECOMMENDED.";
const BUTTONS: &str = "button argument must be one of ('left', 'middle', 'right', 'primary', 'secondary', 1, 2, 3, 4, 5, 6, 7)";

/// Plays gestures on a world.
pub(super) struct Player<W> {
    pub(super) world: W,
    /// `pyautogui.FAILSAFE`
    pub(super) fail_safe: bool,
    /// `pyautogui.PAUSE`
    pub(super) pause: Value,
    /// Pauses that were earned but not made: the one after the last call is never waited for.
    owed: f64,
    events: usize,
}

impl<W: World> Player<W> {
    pub(super) fn new(world: W) -> Self {
        Self { world, fail_safe: true, pause: Value::Float(0.1), owed: 0.0, events: 0 }
    }

    /// Calls a function of pyautogui.
    pub(super) fn play(&mut self, gesture: Gesture, arguments: &Arguments) -> Outcome<()> {
        self.check_fail_safe()?;
        let bound = Bound::new(gesture, arguments)?;
        match gesture {
            Gesture::MouseDown | Gesture::MouseUp => self.mouse(&bound, gesture == Gesture::MouseDown)?,
            Gesture::Click => {
                let button = self.button(bound.get("button"), "primary")?;
                self.clicks(&bound, bound.count("clicks", 1)?, button)?;
            }
            Gesture::LeftClick => self.plain_click(&bound, 1)?,
            Gesture::MiddleClick => self.plain_click(&bound, 2)?,
            Gesture::RightClick => self.plain_click(&bound, 3)?,
            Gesture::DoubleClick | Gesture::TripleClick => {
                self.check_fail_safe()?;
                let button = self.button(bound.get("button"), "left")?;
                self.clicks(&bound, if gesture == Gesture::DoubleClick { 2 } else { 3 }, button)?;
            }
            Gesture::Scroll => self.scroll(&bound, 4, 5)?,
            Gesture::HorizontalScroll => self.scroll(&bound, 7, 6)?,
            Gesture::MoveTo => {
                let (x, y) = self.place(bound.get("x"), bound.get("y"))?;
                self.glide(x, y, bound.duration()?, bound.easing()?)?;
            }
            Gesture::MoveBy => self.move_by(&bound)?,
            Gesture::DragTo => {
                let (x, y) = self.place(bound.get("x"), bound.get("y"))?;
                self.drag(&bound, x, y)?;
            }
            Gesture::DragBy => self.drag_by(&bound)?,
            Gesture::KeyDown => self.key_down(&keys::normal(&text(bound.get("key"))?))?,
            Gesture::KeyUp => self.key_up(&keys::normal(&text(bound.get("key"))?))?,
            Gesture::Press => self.press(&bound)?,
            Gesture::Type => self.type_text(&bound)?,
            Gesture::Hotkey => self.hotkey(arguments)?,
        }
        // The decorator that pauses sees keywords only.
        if arguments.keyword("_pause").map_or(Ok(true), truth)? {
            self.owe_pause();
        }
        Ok(())
    }

    /// `time.sleep(value)`
    pub(super) fn sleep(&mut self, time: &Value) -> Outcome<()> {
        let time = seconds(time)?;
        self.wait(time)
    }

    /// `pyautogui.position(x, y)`: where the pointer is, or the place that was given.
    pub(super) fn position(&mut self, x: Option<&Value>, y: Option<&Value>) -> Outcome<Value> {
        self.settle()?;
        let unknown = Value::Unknown(Unknown::Int(FARTHEST as f64));
        let (px, py) = self.world.pointer()?;
        let (px, py) = if self.world.rehearsing() { (unknown.clone(), unknown) } else { (Value::Int(px), Value::Int(py)) };
        let or = |given: Option<&Value>, here: Value| match given {
            None | Some(Value::None) => Ok(here),
            Some(Value::Int(n)) => Ok(Value::Int(*n)),
            Some(_) => refuse("a place that is no whole number"),
        };
        Ok(Value::Pair(Pair::Point, Items::new([or(x, px)?, or(y, py)?])?))
    }

    /// `pyautogui.size()`
    pub(super) fn size(&mut self) -> Outcome<Value> {
        let unknown = Value::Unknown(Unknown::Int(FARTHEST as f64));
        let (width, height) = self.world.size()?;
        let (width, height) =
            if self.world.rehearsing() { (unknown.clone(), unknown) } else { (Value::Int(width), Value::Int(height)) };
        Ok(Value::Pair(Pair::Size, Items::new([width, height])?))
    }

    fn mouse(&mut self, bound: &Bound, down: bool) -> Outcome<()> {
        let button = self.button(bound.get("button"), "primary")?;
        let (x, y) = self.place(bound.get("x"), bound.get("y"))?;
        self.hold(x, y, button, down)
    }

    /// The pointer goes there, and the button goes down or up.
    fn hold(&mut self, x: i64, y: i64, button: u8, down: bool) -> Outcome<()> {
        self.glide(x, y, 0.0, Easing::LINEAR)?;
        self.motion(x, y)?;
        self.press_button(button, down)
    }

    /// leftClick and its sisters call click, so the fail-safe and the pause come twice.
    fn plain_click(&mut self, bound: &Bound, button: u8) -> Outcome<()> {
        self.check_fail_safe()?;
        self.clicks(bound, 1, button)?;
        if bound.is_set("_pause")? {
            self.owe_pause();
        }
        Ok(())
    }

    fn clicks(&mut self, bound: &Bound, count: i64, button: u8) -> Outcome<()> {
        let (x, y) = self.place(bound.get("x"), bound.get("y"))?;
        let interval = bound.interval()?;
        self.glide(x, y, bound.duration()?, bound.easing()?)?;
        for _ in 0..count {
            self.check_fail_safe()?;
            self.click_once(x, y, button)?;
            self.wait(interval)?;
        }
        Ok(())
    }

    fn click_once(&mut self, x: i64, y: i64, button: u8) -> Outcome<()> {
        self.motion(x, y)?;
        self.press_button(button, true)?;
        self.motion(x, y)?;
        self.press_button(button, false)
    }

    fn scroll(&mut self, bound: &Bound, forward: u8, backward: u8) -> Outcome<()> {
        let (x, y) = match bound.get("x") {
            Some(Value::Tuple(items) | Value::List(items)) => match &items[..] {
                [x, y, ..] => (Some(x), Some(y)),
                _ => return refuse("a place without two numbers"),
            },
            x => (x, bound.get("y")),
        };
        let here = self.pointer()?;
        let x = x.filter(|x| **x != Value::None).map_or(Ok(here.0), coordinate)?;
        let y = y.filter(|y| **y != Value::None).map_or(Ok(here.1), coordinate)?;
        let clicks = match bound.get("clicks") {
            Some(Value::Int(n)) => *n,
            Some(Value::Bool(b)) => i64::from(*b),
            Some(Value::Float(n)) if n.abs() < 1e15 => n.trunc() as i64,
            _ => return refuse("an amount to scroll that is no number"),
        };
        for _ in 0..clicks.unsigned_abs() {
            self.click_once(x, y, if clicks > 0 { forward } else { backward })?;
        }
        Ok(())
    }

    fn move_by(&mut self, bound: &Bound) -> Outcome<()> {
        // Offsets go through the same function as places: one that is missing becomes the
        // pointer's own coordinate.
        let (x, y) = self.place(bound.get("xOffset"), bound.get("yOffset"))?;
        let (duration, easing) = (bound.duration()?, bound.easing()?);
        if x.abs() > FARTHEST || y.abs() > FARTHEST {
            return refuse("an offset that leaves every screen");
        }
        if (x, y) == (0, 0) {
            return Ok(());
        }
        let here = self.pointer()?;
        self.glide(here.0 + x, here.1 + y, duration, easing)
    }

    fn drag_by(&mut self, bound: &Bound) -> Outcome<()> {
        let (x, y) = match bound.get("xOffset") {
            Some(Value::Tuple(items) | Value::List(items)) => match &items[..] {
                [x, y, ..] => (Some(x), Some(y)),
                _ => return refuse("an offset without two numbers"),
            },
            x => (x, bound.get("yOffset")),
        };
        let zero = |value: Option<&Value>| matches!(value, None | Some(Value::None));
        let x = if zero(x) { &Value::Int(0) } else { x.unwrap_or(&Value::None) };
        let y = if zero(y) { &Value::Int(0) } else { y.unwrap_or(&Value::None) };
        let is_zero = |value: &Value| match value {
            Value::Int(n) => Ok(*n == 0),
            Value::Bool(b) => Ok(!*b),
            Value::Float(n) => Ok(*n == 0.0),
            _ => refuse("an offset that decides whether anything happens"),
        };
        if is_zero(x)? && is_zero(y)? {
            return Ok(());
        }
        let (x, y) = (coordinate(x)?, coordinate(y)?);
        if x.abs() > FARTHEST || y.abs() > FARTHEST {
            return refuse("an offset that leaves every screen");
        }
        let here = self.pointer()?;
        self.drag(bound, here.0 + x, here.1 + y)
    }

    fn drag(&mut self, bound: &Bound, x: i64, y: i64) -> Outcome<()> {
        let (duration, easing) = (bound.duration()?, bound.easing()?);
        let with_button = bound.is_set("mouseDownUp")?;
        if with_button {
            self.hold_here(bound, true)?;
        }
        self.glide(x, y, duration, easing)?;
        if with_button {
            self.hold_here(bound, false)?;
        }
        Ok(())
    }

    fn hold_here(&mut self, bound: &Bound, down: bool) -> Outcome<()> {
        self.check_fail_safe()?;
        let button = self.button(bound.get("button"), "primary")?;
        let (x, y) = self.pointer()?;
        self.hold(x, y, button, down)
    }

    fn press(&mut self, bound: &Bound) -> Outcome<()> {
        let names: Vec<String> = match bound.get("keys") {
            Some(Value::Tuple(items) | Value::List(items)) => {
                items.iter().map(|name| Ok(keys::normal(&text(Some(name))?))).collect::<Outcome<_>>()?
            }
            keys => vec![keys::normal(&text(keys)?)],
        };
        let (presses, interval) = (bound.count("presses", 1)?, bound.interval()?);
        for _ in 0..presses {
            self.spend(1)?;
            for name in &names {
                self.check_fail_safe()?;
                self.key_down(name)?;
                self.key_up(name)?;
            }
            self.wait(interval)?;
        }
        Ok(())
    }

    fn type_text(&mut self, bound: &Bound) -> Outcome<()> {
        let interval = bound.interval()?;
        let names: Vec<String> = match bound.get("message") {
            Some(Value::Str(message)) => message.chars().map(|c| c.to_string()).collect(),
            Some(Value::Tuple(items) | Value::List(items)) => {
                items.iter().map(|name| text(Some(name))).collect::<Outcome<_>>()?
            }
            // Whatever the characters are: none makes more than four events.
            Some(Value::Unknown(Unknown::Str(length))) => return self.spend(4 * length),
            _ => return refuse("a text that is none"),
        };
        for name in names {
            let name = keys::normal(&name);
            self.spend(1)?;
            self.check_fail_safe()?;
            self.check_fail_safe()?;
            self.key_down(&name)?;
            self.key_up(&name)?;
            self.wait(interval)?;
            self.check_fail_safe()?;
        }
        Ok(())
    }

    /// Any keyword is welcome here, and all but three are ignored.
    fn hotkey(&mut self, arguments: &Arguments) -> Outcome<()> {
        let interval = arguments.keyword("interval").map_or(Ok(0.0), seconds)?;
        if !matches!(arguments.keyword("logScreenshot"), None | Some(Value::None | Value::Bool(false))) {
            return refuse("a logged screenshot");
        }
        let names = match arguments.positional.first() {
            Some(Value::Tuple(items) | Value::List(items)) => &items[..],
            _ => &arguments.positional[..],
        };
        let names: Vec<String> = names.iter().map(|name| text(Some(name))).collect::<Outcome<_>>()?;
        for name in &names {
            self.key_down(&keys::normal(name))?;
            self.wait(interval)?;
        }
        for name in names.iter().rev() {
            self.key_up(&keys::normal(name))?;
            self.wait(interval)?;
        }
        Ok(())
    }

    /// The pointer's way to a place: at once, or in steps.
    fn glide(&mut self, x: i64, y: i64, duration: f64, easing: Easing) -> Outcome<()> {
        if duration > SHORTEST_GLIDE {
            if easing.overshoots() && (x.abs() > FARTHEST || y.abs() > FARTHEST) {
                return refuse("a curve that may leave X's 16 bits");
            }
            let (start_x, start_y) = self.pointer()?;
            let (width, height) = self.world.size()?;
            let mut steps = width.max(height) as f64;
            let mut step = duration / steps;
            if step < SHORTEST_STEP {
                steps = (duration / SHORTEST_STEP).trunc();
                step = duration / steps;
            }
            for i in 0..steps as i64 {
                let part = easing.at(i as f64 / steps);
                let along = |from: i64, to: i64| ((to - from) as f64 * part + from as f64).round_ties_even() as i64;
                self.wait(step)?;
                self.step(along(start_x, x), along(start_y, y))?;
            }
            self.wait(step)?;
        }
        self.step(x, y)?;
        if !self.is_corner(x, y)? {
            self.check_fail_safe()?;
        }
        Ok(())
    }

    /// Going into a corner oneself is no reason to stop; finding the pointer there is.
    fn step(&mut self, x: i64, y: i64) -> Outcome<()> {
        if !self.is_corner(x, y)? {
            self.check_fail_safe()?;
        }
        self.motion(x, y)
    }

    fn is_corner(&mut self, x: i64, y: i64) -> Outcome<bool> {
        if !self.fail_safe {
            return Ok(false);
        }
        let (width, height) = self.world.size()?;
        Ok((x == 0 || x == width - 1) && (y == 0 || y == height - 1))
    }

    fn check_fail_safe(&mut self) -> Outcome<()> {
        if !self.fail_safe {
            return Ok(());
        }
        let (x, y) = self.pointer()?;
        if self.is_corner(x, y)? && !self.world.rehearsing() {
            return raise("pyautogui.FailSafeException", FAIL_SAFE);
        }
        Ok(())
    }

    /// The physical button of an argument.
    fn button(&mut self, button: Option<&Value>, default: &str) -> Outcome<u8> {
        let name = match button {
            None => default.to_owned(),
            Some(Value::Str(name)) => name.to_lowercase(),
            Some(value @ (Value::Int(_) | Value::Float(_) | Value::None)) => {
                let kind = value.type_name().unwrap_or_default();
                return raise("AttributeError", format!("'{kind}' object has no attribute 'lower'"));
            }
            Some(_) => return refuse("a button that is none"),
        };
        match name.as_str() {
            "left" => Ok(1),
            "middle" => Ok(2),
            "right" => Ok(3),
            "primary" => Ok(if self.world.left_handed() { 3 } else { 1 }),
            "secondary" => Ok(if self.world.left_handed() { 1 } else { 3 }),
            _ => raise("pyautogui.PyAutoGUIException", BUTTONS),
        }
    }

    /// A place from the first two arguments; what is missing is where the pointer is.
    fn place(&mut self, first: Option<&Value>, second: Option<&Value>) -> Outcome<(i64, i64)> {
        let first = first.filter(|value| **value != Value::None);
        let second = second.filter(|value| **value != Value::None);
        match (first, second) {
            (None, None) => self.pointer(),
            (None, Some(y)) => Ok((self.pointer()?.0, coordinate(y)?)),
            (Some(value), None) => match value.items().map(|items| &items[..]) {
                Some([x, y]) => Ok((coordinate(x)?, coordinate(y)?)),
                Some(_) => refuse("a place without two numbers"),
                None => Ok((coordinate(value)?, self.pointer()?.1)),
            },
            (Some(x), Some(y)) => Ok((coordinate(x)?, coordinate(y)?)),
        }
    }

    fn pointer(&mut self) -> Outcome<(i64, i64)> {
        self.settle()?;
        self.world.pointer()
    }

    fn key_down(&mut self, name: &str) -> Outcome<()> {
        let Some(keysym) = keys::keysym(name) else { return Ok(()) };
        let code = self.world.keycode(keysym)?;
        if keys::is_shifted(name) {
            let shift = self.world.keycode(keys::SHIFT)?;
            self.press_key(shift, true)?;
            self.press_key(code, true)?;
            self.press_key(shift, false)?;
        } else {
            self.press_key(code, true)?;
        }
        self.world.sync()
    }

    fn key_up(&mut self, name: &str) -> Outcome<()> {
        let Some(keysym) = keys::keysym(name) else { return Ok(()) };
        let code = self.world.keycode(keysym)?;
        self.press_key(code, false)?;
        self.world.sync()
    }

    fn motion(&mut self, x: i64, y: i64) -> Outcome<()> {
        let (Ok(x), Ok(y)) = (i16::try_from(x), i16::try_from(y)) else {
            return refuse("a place beyond X's 16 bits");
        };
        self.settle()?;
        self.spend(1)?;
        self.world.motion(x, y)?;
        self.world.sync()
    }

    fn press_button(&mut self, button: u8, down: bool) -> Outcome<()> {
        self.settle()?;
        self.spend(1)?;
        self.world.button(button, down)?;
        self.world.sync()
    }

    fn press_key(&mut self, code: u8, down: bool) -> Outcome<()> {
        self.settle()?;
        self.spend(1)?;
        self.world.key(code, down)
    }

    fn owe_pause(&mut self) {
        self.owed += seconds(&self.pause).unwrap_or(0.0);
    }

    /// Makes the pauses that are owed, because something follows.
    fn settle(&mut self) -> Outcome<()> {
        let owed = std::mem::take(&mut self.owed);
        if owed > 0.0 { self.world.sleep(owed) } else { Ok(()) }
    }

    fn wait(&mut self, time: f64) -> Outcome<()> {
        if time <= 0.0 {
            return Ok(());
        }
        self.settle()?;
        self.spend(1)?;
        self.world.sleep(time)
    }

    /// Rehearsals count, so that a program without end is not run by us.
    fn spend(&mut self, events: usize) -> Outcome<()> {
        self.events += events;
        if self.world.rehearsing() && self.events > MOST_EVENTS { refuse("too many events") } else { Ok(()) }
    }
}

/// `int(value)` of a place on the screen.
fn coordinate(value: &Value) -> Outcome<i64> {
    match value {
        Value::Int(n) => Ok(*n),
        Value::Bool(b) => Ok(i64::from(*b)),
        Value::Float(n) if n.abs() < 1e15 => Ok(n.trunc() as i64),
        // The farthest that it can be; if that is fine, so is the rest.
        Value::Unknown(Unknown::Int(bound) | Unknown::Float(bound)) => Ok(bound.ceil() as i64),
        _ => refuse("a place that is no number"),
    }
}

/// The name of a key. One that is unknown yet may be any.
fn text(value: Option<&Value>) -> Outcome<String> {
    match value {
        Some(Value::Str(text)) => Ok(text.to_string()),
        Some(Value::Unknown(Unknown::Str(_))) => Ok("A".to_owned()),
        _ => refuse("a key that is no text"),
    }
}
