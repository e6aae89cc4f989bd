//! PyAutoGUI's functions: their names and what stands between their parentheses.

use super::easing::Easing;
use super::operate::truth;
use super::stop::{Outcome, refuse};
use super::value::{Function, Value};
use std::sync::Arc;

/// `time.sleep` fails somewhere beyond this. It is thirty years.
const LONGEST_SLEEP: f64 = 1e9;

/// A function that makes input. Each checks the fail-safe before and pauses after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gesture {
    MouseDown,
    MouseUp,
    Click,
    LeftClick,
    RightClick,
    MiddleClick,
    DoubleClick,
    TripleClick,
    Scroll,
    HorizontalScroll,
    MoveTo,
    MoveBy,
    DragTo,
    DragBy,
    KeyDown,
    KeyUp,
    Press,
    Type,
    Hotkey,
}

impl Gesture {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "mouseDown" => Self::MouseDown,
            "mouseUp" => Self::MouseUp,
            "click" => Self::Click,
            "leftClick" => Self::LeftClick,
            "rightClick" => Self::RightClick,
            "middleClick" => Self::MiddleClick,
            "doubleClick" => Self::DoubleClick,
            "tripleClick" => Self::TripleClick,
            "scroll" | "vscroll" => Self::Scroll,
            "hscroll" => Self::HorizontalScroll,
            "moveTo" => Self::MoveTo,
            "moveRel" | "move" => Self::MoveBy,
            "dragTo" => Self::DragTo,
            "dragRel" | "drag" => Self::DragBy,
            "keyDown" => Self::KeyDown,
            "keyUp" => Self::KeyUp,
            "press" => Self::Press,
            "typewrite" | "write" => Self::Type,
            "hotkey" | "shortcut" => Self::Hotkey,
            _ => return None,
        })
    }

    /// Names of the parameters, in order.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::MouseDown | Self::MouseUp => &["x", "y", "button", "duration", "tween", "logScreenshot", "_pause"],
            Self::Click => &["x", "y", "clicks", "interval", "button", "duration", "tween", "logScreenshot", "_pause"],
            Self::LeftClick | Self::RightClick | Self::MiddleClick => {
                &["x", "y", "interval", "duration", "tween", "logScreenshot", "_pause"]
            }
            Self::DoubleClick | Self::TripleClick => {
                &["x", "y", "interval", "button", "duration", "tween", "logScreenshot", "_pause"]
            }
            Self::Scroll | Self::HorizontalScroll => &["clicks", "x", "y", "logScreenshot", "_pause"],
            Self::MoveTo => &["x", "y", "duration", "tween", "logScreenshot", "_pause"],
            Self::MoveBy => &["xOffset", "yOffset", "duration", "tween", "logScreenshot", "_pause"],
            Self::DragTo => &["x", "y", "duration", "tween", "button", "logScreenshot", "_pause", "mouseDownUp"],
            Self::DragBy => &["xOffset", "yOffset", "duration", "tween", "button", "logScreenshot", "_pause", "mouseDownUp"],
            Self::KeyDown | Self::KeyUp => &["key", "logScreenshot", "_pause"],
            Self::Press => &["keys", "presses", "interval", "logScreenshot", "_pause"],
            Self::Type => &["message", "interval", "logScreenshot", "_pause"],
            Self::Hotkey => &[],
        }
    }

    fn required(self) -> usize {
        match self {
            Self::Scroll | Self::HorizontalScroll | Self::KeyDown | Self::KeyUp | Self::Press | Self::Type => 1,
            _ => 0,
        }
    }
}

/// What stands between the parentheses of a call.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Vec<(Arc<str>, Value)>,
}

impl Arguments {
    pub(super) fn keyword(&self, name: &str) -> Option<&Value> {
        self.keywords.iter().find(|(keyword, _)| keyword.as_ref() == name).map(|(_, value)| value)
    }
}

/// Arguments by the names of their parameters.
pub(super) struct Bound<'a> {
    gesture: Gesture,
    arguments: &'a Arguments,
}

impl<'a> Bound<'a> {
    pub(super) fn new(gesture: Gesture, arguments: &'a Arguments) -> Outcome<Self> {
        let parameters = gesture.parameters();
        let given = arguments.positional.len();
        if gesture != Gesture::Hotkey {
            let misfit = |name: &str| parameters.iter().position(|p| *p == name).is_none_or(|place| place < given);
            let missing = |name: &&&str| arguments.keyword(name).is_none();
            if given > parameters.len()
                || arguments.keywords.iter().any(|(name, _)| misfit(name))
                || parameters.iter().take(gesture.required()).skip(given).any(|name| missing(&name))
            {
                return refuse("arguments that do not fit the function");
            }
        }
        let this = Self { gesture, arguments };
        match this.get("logScreenshot") {
            None | Some(Value::None | Value::Bool(false)) => Ok(this),
            _ => refuse("a logged screenshot"),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let place = self.gesture.parameters().iter().position(|parameter| *parameter == name);
        place.and_then(|place| self.arguments.positional.get(place)).or_else(|| self.arguments.keyword(name))
    }

    pub(super) fn is_set(&self, name: &str) -> Outcome<bool> {
        self.get(name).map_or(Ok(true), truth)
    }

    pub(super) fn count(&self, name: &str, default: i64) -> Outcome<i64> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Int(n)) => Ok(*n),
            Some(Value::Bool(b)) => Ok(i64::from(*b)),
            Some(_) => refuse("a count that is no whole number"),
        }
    }

    pub(super) fn interval(&self) -> Outcome<f64> {
        self.get("interval").map_or(Ok(0.0), seconds)
    }

    pub(super) fn duration(&self) -> Outcome<f64> {
        match self.get("duration") {
            None => Ok(0.0),
            Some(Value::Float(n)) => Ok(*n),
            Some(Value::Int(n)) => Ok(*n as f64),
            Some(Value::Bool(b)) => Ok(f64::from(u8::from(*b))),
            Some(_) => refuse("a duration that is no number"),
        }
    }

    pub(super) fn easing(&self) -> Outcome<Easing> {
        match self.get("tween") {
            None => Ok(Easing::LINEAR),
            Some(Value::Function(Function::Easing(easing))) if easing.is_exact() => Ok(*easing),
            Some(_) => refuse("an easing that we can't follow"),
        }
    }
}

/// A number of seconds that `time.sleep` takes.
pub(super) fn seconds(value: &Value) -> Outcome<f64> {
    let time = match value {
        Value::Float(n) => *n,
        Value::Int(n) => *n as f64,
        Value::Bool(b) => f64::from(u8::from(*b)),
        _ => return refuse("a time that is no number"),
    };
    if (0.0..=LONGEST_SLEEP).contains(&time) { Ok(time) } else { refuse("a time that can't be waited for") }
}
