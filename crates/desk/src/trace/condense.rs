//! Single events of a mouse and a keyboard, condensed into the words of lists of actions: a press and a
//! release are a click, or a drag if the pointer went somewhere between them; characters become text.

use crate::input::key_name;
use hotdesk_api::action::{Action, Button, Easing, Point};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use xkeysym::{Keysym, key};

/// Clicks that follow each other faster than this, at one place, are one double click.
const DOUBLE: Duration = Duration::from_millis(500);
/// A pointer that moves less than this between press and release clicks; people's hands shake.
const SHAKE: i32 = 4;
/// What is not continued for so long is over.
pub(super) const PAUSE: Duration = Duration::from_millis(800);
/// Points of a drag that are kept; more are not needed to tell its way.
const MOST_POINTS: usize = 64;
/// Characters of one text; what is longer becomes several.
const LONGEST_TEXT: usize = 4000;
/// A wait inside a program that is worth being told.
const WORTH_A_WAIT: Duration = Duration::from_millis(200);

/// What hands did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Motion {
        x: i32,
        y: i32,
    },
    /// X's number of the button.
    Button {
        button: u8,
        down: bool,
    },
    Key {
        keysym: u32,
        down: bool,
    },
}

/// An action that is over.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Done {
    pub(super) action: Action,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

#[derive(Default)]
pub(super) struct Condenser {
    at: Point0,
    /// Keys that are down and change what others mean, and whether they did.
    held: BTreeMap<u32, (bool, Instant)>,
    pressed: Option<Pressed>,
    open: Option<Done>,
    done: Vec<Done>,
}

#[derive(Default, Clone, Copy, PartialEq)]
struct Point0(i32, i32);

struct Pressed {
    button: u8,
    path: Vec<Point>,
    hold: Vec<String>,
    began: Instant,
}

impl Condenser {
    pub(super) fn feed(&mut self, event: Event, now: Instant) {
        match event {
            Event::Motion { x, y } => {
                self.at = Point0(x, y);
                if let Some(pressed) = &mut self.pressed {
                    pressed.path.push(Point { x, y });
                }
            }
            Event::Button { button: wheel @ 4..=7, down } => {
                if down {
                    self.wheel(wheel, now);
                }
            }
            Event::Button { button, down: true } => {
                let path = vec![self.point()];
                self.pressed = Some(Pressed { button, path, hold: self.hold(), began: now });
            }
            Event::Button { button, down: false } => {
                if let Some(pressed) = self.pressed.take().filter(|pressed| pressed.button == button) {
                    self.released(pressed, now);
                }
            }
            Event::Key { keysym, down } if is_modifier(keysym) => self.modifier(keysym, down, now),
            Event::Key { keysym, down: true } => self.key(keysym, now),
            Event::Key { .. } => {}
        }
    }

    /// What is over by now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Done> {
        if self.open.as_ref().is_some_and(|open| now.duration_since(open.ended) >= PAUSE) {
            self.close();
        }
        std::mem::take(&mut self.done)
    }

    /// Everything, finished or not.
    pub(super) fn finish(&mut self) -> Vec<Done> {
        self.close();
        std::mem::take(&mut self.done)
    }

    /// When [`Condenser::take`] gives something even if nothing more comes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.ended + PAUSE)
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none() && self.pressed.is_none() && self.done.is_empty()
    }

    fn point(&self) -> Point {
        Point { x: self.at.0, y: self.at.1 }
    }

    fn close(&mut self) {
        self.done.extend(self.open.take());
    }

    /// Names of the keys that are held, which thereby mean something.
    fn hold(&mut self) -> Vec<String> {
        self.held.values_mut().for_each(|(used, _)| *used = true);
        self.held.keys().map(|keysym| key_name(*keysym)).collect()
    }

    fn put(&mut self, action: Action, began: Instant, ended: Instant) {
        self.close();
        self.open = Some(Done { action, began, ended });
    }

    fn released(&mut self, pressed: Pressed, now: Instant) {
        let Pressed { button, path, hold, began } = pressed;
        let button = match button {
            2 => Button::Middle,
            3 => Button::Right,
            8 => Button::Back,
            9 => Button::Forward,
            _ => Button::Left,
        };
        let start = path.first().copied().unwrap_or(Point { x: 0, y: 0 });
        let near = |point: &Point, other: &Point| (point.x - other.x).abs() <= SHAKE && (point.y - other.y).abs() <= SHAKE;
        if !path.iter().all(|point| near(point, &start)) {
            let ms = now.duration_since(began).as_millis().min(60_000) as u32;
            return self.put(Action::Drag { path: thinned(&path), button, ms, easing: Easing::Linear, hold }, began, now);
        }
        if let Some(Done { action: Action::Click { at: Some(at), button: last, times, hold: held }, ended, .. }) = &mut self.open
            && *last == button
            && *held == hold
            && near(at, &start)
            && began.duration_since(*ended) < DOUBLE
            && *times < 3
        {
            *times += 1;
            *ended = now;
            return;
        }
        self.put(Action::Click { at: Some(start), button, times: 1, hold }, began, now);
    }

    fn wheel(&mut self, button: u8, now: Instant) {
        let (right, below) = match button {
            4 => (0, -1),
            5 => (0, 1),
            6 => (-1, 0),
            _ => (1, 0),
        };
        let (place, hold) = (self.point(), self.hold());
        if let Some(Done { action: Action::Scroll { at: Some(at), dx, dy, hold: held }, ended, .. }) = &mut self.open
            && *at == place
            && *held == hold
            && now.duration_since(*ended) < PAUSE
        {
            (*dx, *dy, *ended) = (*dx + right, *dy + below, now);
            return;
        }
        self.put(Action::Scroll { at: Some(place), dx: right, dy: below, hold }, now, now);
    }

    fn modifier(&mut self, keysym: u32, down: bool, now: Instant) {
        if down {
            self.held.entry(keysym).or_insert((false, now));
        } else if let Some((false, began)) = self.held.remove(&keysym)
            && !is_level(keysym)
        {
            // Pressed and released alone, as the key that opens a menu is.
            self.put(Action::Key { keys: vec![key_name(keysym)], times: 1 }, began, now);
        }
    }

    fn key(&mut self, keysym: u32, now: Instant) {
        let chord = self.held.keys().any(|keysym| !is_level(*keysym));
        let character = Keysym::new(keysym).key_char().filter(|c| !c.is_control());
        if let (false, Some(character)) = (chord, character) {
            self.held.values_mut().for_each(|(used, _)| *used = true);
            if let Some(Done { action: Action::Type { text, .. }, ended, .. }) = &mut self.open
                && now.duration_since(*ended) < PAUSE
                && text.len() < LONGEST_TEXT
            {
                text.push(character);
                *ended = now;
                return;
            }
            return self.put(Action::Type { text: character.into(), interval_ms: 0, secret: false }, now, now);
        }
        let mut keys = self.hold();
        keys.push(key_name(keysym));
        if let Some(Done { action: Action::Key { keys: last, times }, ended, .. }) = &mut self.open
            && *last == keys
            && now.duration_since(*ended) < PAUSE
        {
            *times += 1;
            *ended = now;
            return;
        }
        self.put(Action::Key { keys, times: 1 }, now, now);
    }
}

/// All that a program did, with the waits that are worth being told and where it left the pointer.
pub(super) fn whole(events: &[(Instant, Event)]) -> Vec<Action> {
    let mut condenser = Condenser::default();
    let mut moved = None;
    for (at, event) in events {
        condenser.feed(*event, *at);
        moved = match event {
            Event::Motion { x, y } => Some(Point { x: *x, y: *y }),
            Event::Button { .. } => None,
            Event::Key { .. } => moved,
        };
    }
    let mut actions = Vec::new();
    let mut last: Option<Instant> = None;
    for done in condenser.finish() {
        if let Some(wait) = last.map(|last| done.began.saturating_duration_since(last)).filter(|wait| *wait >= WORTH_A_WAIT) {
            actions.push(Action::Wait { ms: wait.as_millis().min(60_000) as u32 });
        }
        last = Some(done.ended);
        actions.push(done.action);
    }
    actions.extend(moved.map(|to| Action::Move { to, ms: 0, easing: Easing::Linear }));
    actions
}

fn thinned(path: &[Point]) -> Vec<Point> {
    let step = path.len().div_ceil(MOST_POINTS).max(1);
    let mut points: Vec<Point> = path.iter().step_by(step).copied().collect();
    points.extend(path.last().copied());
    points.dedup();
    points
}

/// Keys that choose another character of the others.
fn is_level(keysym: u32) -> bool {
    matches!(keysym, key::Shift_L | key::Shift_R | key::ISO_Level3_Shift | key::Mode_switch | key::ISO_Level5_Shift)
}

fn is_modifier(keysym: u32) -> bool {
    is_level(keysym)
        || matches!(
            keysym,
            key::Control_L
                | key::Control_R
                | key::Alt_L
                | key::Alt_R
                | key::Super_L
                | key::Super_R
                | key::Meta_L
                | key::Meta_R
                | key::Hyper_L
                | key::Hyper_R
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Events a hundredth of a second apart; a dot is a long pause.
    fn said(events: &[&str]) -> serde_json::Value {
        let mut now = Instant::now();
        let mut condenser = Condenser::default();
        let mut done = Vec::new();
        for event in events {
            let words: Vec<&str> = event.split(' ').collect();
            let number = |n: usize| words[n].parse::<i32>().unwrap();
            let sym = |name: &str| crate::input::tests_keysym(name);
            match words[0] {
                "move" => condenser.feed(Event::Motion { x: number(1), y: number(2) }, now),
                "down" => condenser.feed(Event::Button { button: number(1) as u8, down: true }, now),
                "up" => condenser.feed(Event::Button { button: number(1) as u8, down: false }, now),
                "press" => condenser.feed(Event::Key { keysym: sym(words[1]), down: true }, now),
                "release" => condenser.feed(Event::Key { keysym: sym(words[1]), down: false }, now),
                "." => now += PAUSE,
                other => panic!("{other}"),
            }
            done.extend(condenser.take(now));
            now += Duration::from_millis(10);
        }
        done.extend(condenser.finish());
        json!(done.into_iter().map(|done| done.action).collect::<Vec<_>>())
    }

    #[test]
    fn presses_become_clicks_and_drags() {
        let click = ["move 5 6", "down 1", "move 6 6", "up 1"];
        assert_eq!(said(&click), json!([{"do": "click", "at": {"x": 5, "y": 6}, "button": "left", "times": 1, "hold": []}]));
        assert_eq!(said(&[&click[..], &click[..]].concat())[0]["times"], 2);
        assert_eq!(said(&[&click[..], &["."], &click[..]].concat()).as_array().unwrap().len(), 2);
        let drag = said(&["move 5 6", "press ctrl", "down 3", "move 50 6", "move 90 7", "up 3", "release ctrl"]);
        assert_eq!(drag[0]["path"], json!([{"x": 5, "y": 6}, {"x": 50, "y": 6}, {"x": 90, "y": 7}]));
        assert_eq!(
            (&drag[0]["button"], &drag[0]["hold"], drag.as_array().unwrap().len()),
            (&json!("right"), &json!(["ctrl"]), 1)
        );
        let scroll = said(&["move 1 2", "down 5", "up 5", "down 5", "up 5", "down 4", "up 4"]);
        assert_eq!(scroll, json!([{"do": "scroll", "at": {"x": 1, "y": 2}, "dx": 0, "dy": 1, "hold": []}]));
    }

    #[test]
    fn motion_alone_is_no_step() {
        assert_eq!(said(&["move 1 1", "move 2 2", ".", "move 3 3"]), json!([]));
    }

    #[test]
    fn characters_become_text_and_the_rest_keys() {
        let typed = ["press shift", "press H", "release H", "release shift", "press i", "release i"];
        assert_eq!(said(&typed), json!([{"do": "type", "text": "Hi", "interval_ms": 0}]));
        let keys = said(&["press ctrl", "press s", "release s", "release ctrl", "press BackSpace", "press BackSpace", "press a"]);
        assert_eq!(
            keys,
            json!([
                {"do": "key", "keys": ["ctrl", "s"], "times": 1},
                {"do": "key", "keys": ["BackSpace"], "times": 2},
                {"do": "type", "text": "a", "interval_ms": 0},
            ])
        );
        assert_eq!(said(&["press super", "release super"]), json!([{"do": "key", "keys": ["super"], "times": 1}]));
        assert_eq!(said(&["press shift", "press Tab", "release shift"])[0]["keys"], json!(["shift", "Tab"]));
        assert_eq!(said(&["press a", ".", "press b"]).as_array().unwrap().len(), 2);
    }

    #[test]
    fn every_key_can_be_pressed_again() {
        for keysym in
            [key::Return, key::F5, key::Page_Down, key::Left, key::KP_Enter, key::eacute, key::XF86_AudioMute, 0x0100_0416]
        {
            assert_eq!(crate::input::tests_keysym(&key_name(keysym)), keysym, "{}", key_name(keysym));
        }
    }
}
