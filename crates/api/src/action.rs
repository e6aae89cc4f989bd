//! What hands do: the one list of actions that every dialect is translated to.

use crate::json::object;
use crate::problem::Problem;
use crate::screen::{CursorManner, PictureFormat, SettledRequest};
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
        #[serde(deserialize_with = "object")]
        to: Point,
        #[serde(default)]
        ms: u32,
        #[serde(default)]
        easing: Easing,
    },
    /// Presses and releases a button `times` times, while `hold` keys are down.
    Click {
        #[serde(default, deserialize_with = "object")]
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
        #[serde(default, deserialize_with = "object")]
        at: Option<Point>,
        #[serde(default)]
        button: Button,
    },
    /// Releases a button.
    ButtonUp {
        #[serde(default, deserialize_with = "object")]
        at: Option<Point>,
        #[serde(default)]
        button: Button,
    },
    /// Drags along a path with a button down, over `ms` milliseconds. The first point is where the button
    /// goes down; a path of one point starts where the pointer is.
    Drag {
        #[serde(deserialize_with = "object")]
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
        #[serde(default, deserialize_with = "object")]
        at: Option<Point>,
        #[serde(default)]
        dx: i32,
        #[serde(default)]
        dy: i32,
        #[serde(default)]
        hold: Vec<String>,
    },
    /// Presses keys together and releases them in reverse order, `times` times: `["ctrl", "s"]` or `["ctrl+s"]`.
    ///
    /// Together with ctrl, alt or super a letter is a key: `["ctrl", "T"]` does not press shift.
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
        /// The text is nobody's business: traces do not keep it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        secret: bool,
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

/// A list of actions, and what to wait for and look at after the last of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// At most 10,000, and no longer than two minutes together.
    pub actions: Vec<Action>,
    /// Wait until nothing changes on the screen: `{}`, or how long.
    #[serde(default)]
    pub settle: Option<SettledRequest>,
    /// Answer with a picture of the screen: `true`, or what it should be like.
    #[serde(default)]
    pub screenshot: Option<Wish>,
}

/// `true`, `false`, or what the picture should be like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Wish {
    Plain(bool),
    Shaped(#[serde(deserialize_with = "object")] PictureShape),
}

/// What a picture should be like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PictureShape {
    #[serde(default)]
    pub format: PictureFormat,
    #[serde(default)]
    pub cursor: CursorManner,
    #[serde(default)]
    pub region: Option<Rect>,
    /// The picture is scaled down to this width.
    #[serde(default)]
    pub max_width: Option<u32>,
    /// A factor on both sides, above 0 and at most 1.
    #[serde(default)]
    pub scale: Option<f32>,
    /// Exactly this size, stretched if need be, instead of `scale` and `max_width`. At most 4096 on a side.
    #[serde(default)]
    pub size: Option<Size>,
    /// Quality of a JPEG, 1 to 100.
    #[serde(default)]
    pub quality: Option<u8>,
}

/// What became of one action.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// Its place in the list, from 0.
    pub index: u32,
    /// The X server has processed all of its events.
    pub done: bool,
    /// Milliseconds that it took.
    pub ms: f64,
}

/// What became of a batch. All of its actions were done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Performed {
    pub actions: Vec<Receipt>,
    /// Milliseconds from the first event to the last.
    pub ms: f64,
    /// Whether the screen became quiet in time, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screenshot: Option<Picture>,
    /// What went wrong after the actions: they are done, so do not send them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A picture inside of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Picture {
    /// `image/png`, …
    pub r#type: String,
    pub size: Size,
    /// Equal for equal pictures.
    pub etag: String,
    /// The file, in base64.
    pub data: String,
}

/// The names of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyNames {
    /// Plain names; upper and lower case, `_` and `-` make no difference.
    pub names: Vec<String>,
    /// Names of X keysyms, as in `keysymdef.h`.
    pub keysyms: Vec<String>,
}
