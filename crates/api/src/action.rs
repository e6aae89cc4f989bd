//! What hands do: the one list of actions that every dialect is translated to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A place on the screen, in pixels from its top left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rect {
    pub x: i32,
    pub y: i32,
    pub width: u32,
    pub height: u32,
}

/// A button of the mouse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    #[default]
    Left,
    Middle,
    Right,
    Back,
    Forward,
}

/// How a movement that takes time is spread over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Easing {
    #[default]
    Linear,
    In,
    Out,
    InOut,
}

/// One thing that hands do.
///
/// Where `at` is left out the action happens where the pointer is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Puts the pointer at a place, at once or over `ms` milliseconds.
    Move {
        to: Point,
        #[serde(default)]
        ms: u32,
        #[serde(default)]
        easing: Easing,
    },
    /// Presses and releases a button `times` times, while `hold` keys are down.
    Click {
        #[serde(default)]
        at: Option<Point>,
        #[serde(default)]
        button: Button,
        #[serde(default = "one")]
        times: u32,
        #[serde(default)]
        hold: Vec<String>,
    },
    /// Presses a button and keeps it down.
    ButtonDown {
        #[serde(default)]
        at: Option<Point>,
        #[serde(default)]
        button: Button,
    },
    /// Releases a button.
    ButtonUp {
        #[serde(default)]
        at: Option<Point>,
        #[serde(default)]
        button: Button,
    },
    /// Drags along a path with a button down, over `ms` milliseconds.
    Drag {
        path: Vec<Point>,
        #[serde(default)]
        button: Button,
        #[serde(default = "drag_ms")]
        ms: u32,
        #[serde(default)]
        easing: Easing,
        #[serde(default)]
        hold: Vec<String>,
    },
    /// Turns the wheel: `dy` notches down (negative: up), `dx` notches right (negative: left).
    Scroll {
        #[serde(default)]
        at: Option<Point>,
        #[serde(default)]
        dx: i32,
        #[serde(default)]
        dy: i32,
        #[serde(default)]
        hold: Vec<String>,
    },
    /// Presses keys together and releases them in reverse order, `times` times: `["ctrl", "s"]`.
    Key {
        keys: Vec<String>,
        #[serde(default = "one")]
        times: u32,
    },
    /// Presses keys and keeps them down.
    KeyDown { keys: Vec<String> },
    /// Releases keys.
    KeyUp { keys: Vec<String> },
    /// Types text, whatever characters it holds.
    Type {
        text: String,
        /// Pause after each character, in milliseconds.
        #[serde(default)]
        interval_ms: u32,
    },
    /// Waits, so that a batch can give a program time.
    Wait { ms: u32 },
}

fn one() -> u32 {
    1
}

fn drag_ms() -> u32 {
    200
}
