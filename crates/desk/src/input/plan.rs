//! A list of actions, checked as a whole before anything is done.

use super::keys;
use crate::error::{Error, Result};
use hotdesk_api::action::{Action, Button, Easing, Point, Size};
use std::time::Duration;

/// More actions than anybody writes; a list is done while others wait for their turn.
pub(super) const MOST_ACTIONS: usize = 10_000;
/// The longest that a list may take. Clients and proxies give up at about this time.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// Characters of all texts of a list: a page is 3,000. Longer texts belong on the clipboard.
const MOST_CHARACTERS: usize = 50_000;
/// Repetitions of one click or key.
const MOST_TIMES: u32 = 1_000;
/// Notches of one turn of the wheel.
const MOST_NOTCHES: u32 = 1_000;
/// Repetitions, notches and points of a whole list: each is a few events.
const MOST_REPETITIONS: u64 = 100_000;
/// Keys held at once.
const MOST_KEYS: usize = 16;
/// Points of a path.
const MOST_POINTS: usize = 1_000;

/// A checked list.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
}

/// An action with its keys looked up.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Move { to: Point, ms: u32, easing: Easing },
    Click { at: Option<Point>, button: u8, times: u32, hold: Vec<u32> },
    ButtonDown { at: Option<Point>, button: u8 },
    ButtonUp { at: Option<Point>, button: u8 },
    Drag { path: Vec<Point>, button: u8, ms: u32, easing: Easing, hold: Vec<u32> },
    Scroll { at: Option<Point>, dx: i32, dy: i32, hold: Vec<u32> },
    Key { keys: Vec<u32>, times: u32 },
    KeyDown { keys: Vec<u32> },
    KeyUp { keys: Vec<u32> },
    Type { text: Vec<char>, interval_ms: u32 },
    Wait { ms: u32 },
}

impl Plan {
    pub(super) fn new(actions: Vec<Action>) -> Result<Self> {
        if actions.len() > MOST_ACTIONS {
            return Err(Error::Invalid(format!("{} actions are more than the {MOST_ACTIONS} of one list", actions.len())));
        }
        let mut milliseconds = 0u64;
        let mut characters = 0usize;
        let mut repetitions = 0u64;
        let mut steps = Vec::with_capacity(actions.len());
        for (index, action) in actions.into_iter().enumerate() {
            let step = step(action).map_err(|reason| Error::Invalid(format!("actions[{index}]: {reason}")))?;
            milliseconds += step.milliseconds();
            repetitions += step.repetitions();
            characters += if let Step::Type { text, .. } = &step { text.len() } else { 0 };
            steps.push(step);
        }
        let lasts = Duration::from_millis(milliseconds);
        if lasts > LONGEST {
            let (sum, limit) = (lasts.as_secs_f32(), LONGEST.as_secs());
            return Err(Error::Invalid(format!("the pauses and movements add up to {sum:.1} s, more than {limit} s")));
        }
        if characters > MOST_CHARACTERS {
            return Err(Error::Invalid(format!(
                "{characters} characters are more than the {MOST_CHARACTERS} of one list; paste long texts with the clipboard"
            )));
        }
        if repetitions > MOST_REPETITIONS {
            return Err(Error::Invalid(format!("{repetitions} repetitions are more than the {MOST_REPETITIONS} of one list")));
        }
        Ok(Self { steps })
    }

    /// Whether every place lies on the screen: a place beside it is a mistake, and what is there
    /// would be hit instead of what was meant.
    pub(super) fn check_places(&self, screen: Size) -> Result<()> {
        let inside =
            |p: &Point| u32::try_from(p.x).is_ok_and(|x| x < screen.width) && u32::try_from(p.y).is_ok_and(|y| y < screen.height);
        for (index, step) in self.steps.iter().enumerate() {
            if let Some(p) = step.places().iter().find(|p| !inside(p)) {
                return Err(Error::Invalid(format!(
                    "actions[{index}]: ({}, {}) lies outside of the screen, which is {}×{}",
                    p.x, p.y, screen.width, screen.height
                )));
            }
        }
        Ok(())
    }
}

impl Step {
    fn milliseconds(&self) -> u64 {
        match self {
            Self::Move { ms, .. } | Self::Drag { ms, .. } | Self::Wait { ms } => u64::from(*ms),
            Self::Type { text, interval_ms } => u64::from(*interval_ms).saturating_mul(text.len() as u64),
            _ => 0,
        }
    }

    fn repetitions(&self) -> u64 {
        match self {
            Self::Click { times, .. } => u64::from(*times),
            Self::Key { times, keys } => u64::from(*times) * keys.len() as u64,
            Self::Scroll { dx, dy, .. } => u64::from(dx.unsigned_abs()) + u64::from(dy.unsigned_abs()),
            Self::Drag { path, .. } => path.len() as u64,
            _ => 0,
        }
    }

    fn places(&self) -> &[Point] {
        match self {
            Self::Move { to, .. } => std::slice::from_ref(to),
            Self::Click { at, .. } | Self::ButtonDown { at, .. } | Self::ButtonUp { at, .. } | Self::Scroll { at, .. } => {
                at.as_slice()
            }
            Self::Drag { path, .. } => path,
            _ => &[],
        }
    }
}

fn step(action: Action) -> Result<Step, String> {
    Ok(match action {
        Action::Move { to, ms, easing } => Step::Move { to, ms, easing },
        Action::Click { at, button, times, hold } => {
            Step::Click { at, button: number(button), times: repeat(times)?, hold: lookup(&hold)? }
        }
        Action::ButtonDown { at, button } => Step::ButtonDown { at, button: number(button) },
        Action::ButtonUp { at, button } => Step::ButtonUp { at, button: number(button) },
        Action::Drag { path, button, ms, easing, hold } => {
            if path.is_empty() {
                return Err("a drag needs a path of at least one point".into());
            }
            if path.len() > MOST_POINTS {
                return Err(format!("a path of {} points is longer than {MOST_POINTS}", path.len()));
            }
            Step::Drag { path, button: number(button), ms, easing, hold: lookup(&hold)? }
        }
        Action::Scroll { at, dx, dy, hold } => {
            if dx.unsigned_abs().max(dy.unsigned_abs()) > MOST_NOTCHES {
                return Err(format!("a turn of ({dx}, {dy}) notches is more than {MOST_NOTCHES}"));
            }
            Step::Scroll { at, dx, dy, hold: lookup(&hold)? }
        }
        Action::Key { keys, times } => Step::Key { keys: some(lookup(&keys)?)?, times: repeat(times)? },
        Action::KeyDown { keys } => Step::KeyDown { keys: some(lookup(&keys)?)? },
        Action::KeyUp { keys } => Step::KeyUp { keys: some(lookup(&keys)?)? },
        Action::Type { text, interval_ms, .. } => Step::Type { text: characters(&text)?, interval_ms },
        Action::Wait { ms } => Step::Wait { ms },
    })
}

/// The number that X gives to a button.
fn number(button: Button) -> u8 {
    match button {
        Button::Left => 1,
        Button::Middle => 2,
        Button::Right => 3,
        Button::Back => 8,
        Button::Forward => 9,
    }
}

fn repeat(times: u32) -> Result<u32, String> {
    if times > MOST_TIMES { Err(format!("{times} times is more than {MOST_TIMES}")) } else { Ok(times) }
}

fn some(keys: Vec<u32>) -> Result<Vec<u32>, String> {
    if keys.is_empty() { Err("no key is named".into()) } else { Ok(keys) }
}

fn lookup(names: &[String]) -> Result<Vec<u32>, String> {
    let parts = names.iter().take(MOST_KEYS + 1).flat_map(|name| keys::split(name));
    let keys = parts.map(|name| keys::keysym(name).ok_or_else(|| unknown(name))).collect::<Result<Vec<_>, _>>()?;
    if keys.len() > MOST_KEYS {
        return Err(format!("more than {MOST_KEYS} keys at once"));
    }
    Ok(keys)
}

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(40).collect();
    format!("no key is called {shown:?}; GET /v1/input/keys lists the names")
}

/// The characters of a text as keys make them: a line break of any kind is one Return.
fn characters(text: &str) -> Result<Vec<char>, String> {
    let mut characters = Vec::with_capacity(text.len());
    let mut previous = None;
    for (index, character) in text.chars().enumerate() {
        match character {
            '\n' if previous == Some('\r') => {}
            '\r' => characters.push('\n'),
            _ if keys::character_keysym(character).is_some() => characters.push(character),
            _ => return Err(format!("character {index} of the text, U+{:04X}, can't be typed", character as u32)),
        }
        previous = Some(character);
    }
    Ok(characters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xkeysym::key;

    fn refused(json: &str) -> String {
        let actions: Vec<Action> = serde_json::from_str(json).unwrap();
        match Plan::new(actions) {
            Err(Error::Invalid(reason)) => reason,
            other => panic!("{json} is not refused: {other:?}"),
        }
    }

    #[test]
    fn bad_lists_are_refused_with_a_reason() {
        assert!(refused(r#"[{"do":"wait","ms":1},{"do":"key","keys":["ctrl","nonsense"]}]"#).contains("actions[1]"));
        assert!(refused(r#"[{"do":"key","keys":["nonsense"]}]"#).contains("\"nonsense\""));
        assert!(refused(r#"[{"do":"key","keys":[]}]"#).contains("no key"));
        assert!(refused(r#"[{"do":"key","keys":["a"],"times":1001}]"#).contains("1001"));
        assert!(refused(r#"[{"do":"wait","ms":100000},{"do":"wait","ms":20001}]"#).contains("120 s"));
        assert!(refused(r#"[{"do":"wait","ms":4294967295},{"do":"wait","ms":4294967295}]"#).contains("120 s"));
        assert!(refused(r#"[{"do":"type","text":"aa","interval_ms":4294967295}]"#).contains("120 s"));
        assert!(refused(r#"[{"do":"type","text":"a\u0007"}]"#).contains("U+0007"));
        assert!(refused(r#"[{"do":"drag","path":[]}]"#).contains("path"));
        assert!(refused(r#"[{"do":"scroll","dy":-2147483648}]"#).contains("notches"));
        let many = format!("[{}]", vec![r#"{"do":"wait","ms":0}"#; 10_001].join(","));
        assert!(refused(&many).contains("10001"));
        let long = format!(r#"[{{"do":"type","text":"{}"}}]"#, "x".repeat(50_001));
        assert!(refused(&long).contains("clipboard"));
        let plus = format!(r#"[{{"do":"key","keys":["{}"]}}]"#, "a+".repeat(500));
        assert!(!refused(&plus).is_empty());
    }

    #[test]
    fn keys_and_texts_are_looked_up() {
        let actions =
            serde_json::from_str(r#"[{"do":"key","keys":["ctrl+shift","t"]},{"do":"type","text":"a\r\nb\rc\n"},{"do":"click"}]"#);
        let plan = Plan::new(actions.unwrap()).unwrap();
        assert_eq!(plan.steps[0], Step::Key { keys: vec![key::Control_L, key::Shift_L, key::t], times: 1 });
        assert_eq!(plan.steps[1], Step::Type { text: "a\nb\nc\n".chars().collect(), interval_ms: 0 });
        assert_eq!(plan.steps[2], Step::Click { at: None, button: 1, times: 1, hold: vec![] });
    }

    #[test]
    fn places_beside_the_screen_are_refused() {
        let screen = Size { width: 100, height: 50 };
        for (json, good) in [
            (r#"[{"do":"move","to":{"x":99,"y":49}}]"#, true),
            (r#"[{"do":"move","to":{"x":100,"y":49}}]"#, false),
            (r#"[{"do":"click","at":{"x":0,"y":-1}}]"#, false),
            (r#"[{"do":"drag","path":[{"x":0,"y":0},{"x":5000,"y":1}]}]"#, false),
        ] {
            let plan = Plan::new(serde_json::from_str(json).unwrap()).unwrap();
            assert_eq!(plan.check_places(screen).is_ok(), good, "{json}");
        }
    }
}
