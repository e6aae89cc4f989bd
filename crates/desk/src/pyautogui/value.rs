//! The values that a program of the subset can hold.

use super::easing::Easing;
use super::gestures::Gesture;
use super::stop::{Outcome, refuse};
use std::ops::Deref;
use std::sync::Arc;

/// The most values that hang on one value. Everything that walks through a value stays cheap.
pub(super) const MOST_ITEMS: usize = 100_000;
/// How deep tuples and lists nest. Everything that walks through a value recurses.
const MOST_DEPTH: u8 = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// Always finite: where Python would go on with infinity, we don't start.
    Float(f64),
    Str(Arc<str>),
    Tuple(Arc<Items>),
    /// Nothing in the subset changes a list, so sharing one is the same as copying it.
    List(Arc<Items>),
    /// pyautogui's `Point(x=…, y=…)` and `Size(width=…, height=…)`: tuples with names.
    Pair(Pair, Arc<Items>),
    Range {
        start: i64,
        stop: i64,
        step: i64,
    },
    /// What `enumerate`, `zip`, `reversed` and generators give. It can be gone through once, so it
    /// may be used on the spot and never be kept.
    Once(Arc<Items>),
    Module(Module),
    Function(Function),
    /// `sys.stdout`, or `sys.stderr` if the flag is set.
    Stream(bool),
    /// Only while rehearsing: something that the world decides when the program is run.
    Unknown(Unknown),
}

/// The values of a tuple or a list.
#[derive(Debug, PartialEq)]
pub(super) struct Items {
    values: Box<[Value]>,
    depth: u8,
    /// How many values there are in all, counted through the tuples inside.
    weight: usize,
}

impl Items {
    pub(super) fn new(values: impl IntoIterator<Item = Value>) -> Outcome<Arc<Self>> {
        let (mut depth, mut weight) = (1, 0);
        let mut kept = Vec::new();
        for value in values {
            if matches!(value, Value::Once(_)) {
                return refuse("a generator that is kept");
            }
            if let Some(items) = value.items() {
                depth = depth.max(items.depth + 1);
            }
            weight += 1 + value.items().map_or(0, |items| items.weight);
            if weight > MOST_ITEMS || depth > MOST_DEPTH {
                return refuse("something that gets too large");
            }
            kept.push(value);
        }
        Ok(Arc::new(Self { values: kept.into(), depth, weight }))
    }
}

impl Deref for Items {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pair {
    Point,
    Size,
}

impl Pair {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Point => "Point",
            Self::Size => "Size",
        }
    }

    pub(super) fn fields(self) -> [&'static str; 2] {
        match self {
            Self::Point => ["x", "y"],
            Self::Size => ["width", "height"],
        }
    }
}

/// What is known about a value of the world before it is asked: its type, and a bound for its
/// magnitude (or length), which proves that no operation on it can overflow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Unknown {
    Int(f64),
    Float(f64),
    Bool,
    Str(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    PyAutoGui,
    Time,
    Platform,
    Os,
    OsPath,
    /// `os.environ`, which is no module but is used like one.
    Environ,
    Sys,
    Math,
    /// Imported and never touched.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Gesture(Gesture),
    Easing(Easing),
    Builtin(Builtin),
}

/// Functions that make no input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    Print,
    Len,
    Range,
    Int,
    Float,
    Str,
    Repr,
    Bool,
    Abs,
    Min,
    Max,
    Sum,
    Round,
    Chr,
    Ord,
    List,
    Tuple,
    Enumerate,
    Zip,
    Reversed,
    Exit,
    Sleep,
    Position,
    Size,
    PlatformSystem,
    GetVariable,
    JoinPath,
    ExpandUser,
    Floor,
    Ceil,
    SquareRoot,
    Sine,
    Cosine,
}

impl Value {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Str(text.into())
    }

    pub(super) fn builtin(builtin: Builtin) -> Self {
        Self::Function(Function::Builtin(builtin))
    }

    /// The elements of a tuple, a named tuple or a list.
    pub(super) fn items(&self) -> Option<&Arc<Items>> {
        match self {
            Self::Tuple(items) | Self::List(items) | Self::Pair(_, items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn tuple(values: impl IntoIterator<Item = Value>) -> Outcome<Self> {
        Ok(Self::Tuple(Items::new(values)?))
    }

    pub(super) fn list(values: impl IntoIterator<Item = Value>) -> Outcome<Self> {
        Ok(Self::List(Items::new(values)?))
    }

    /// How much work it is to walk through it.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Tuple(items) | Self::List(items) | Self::Pair(_, items) | Self::Once(items) => items.weight,
            Self::Str(text) => text.len() / 64,
            _ => 0,
        }
    }

    /// Python's name of its type, where an exception of ours can need it.
    pub(super) fn type_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Tuple(_) => "tuple",
            Self::List(_) => "list",
            _ => return None,
        })
    }
}

/// How many numbers `range(start, stop, step)` has. The step is never zero.
pub(super) fn range_length(start: i64, stop: i64, step: i64) -> i64 {
    let (start, stop, step) = (i128::from(start), i128::from(stop), i128::from(step));
    let count = if step > 0 { (stop - start + step - 1).div_euclid(step) } else { (start - stop - step - 1).div_euclid(-step) };
    i64::try_from(count.max(0)).unwrap_or(i64::MAX)
}
