//! Traces: what was done on a desk, by whom, and what it looked like.

use crate::access::Act;
use crate::action::Action;
use crate::clipboard::Selection;
use crate::lease::Driver;
use crate::window::{NewArea, WindowChange};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StartTrace {
    /// What it is called, up to 200 characters.
    pub name: Option<String>,
    pub frames: Frames,
    /// Whether the accessibility tree after each step is kept.
    pub tree: bool,
    pub mask: Mask,
    /// The recording ends when the file is that large; 1 GiB if left out.
    pub max_bytes: Option<u64>,
}

/// Which pictures are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// The screen before and after each step; what did not change is kept once.
    #[default]
    Changed,
    None,
}

/// Which texts are not kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// What is typed into password fields, and what is typed with `secret`.
    #[default]
    Secrets,
    /// Everything that is typed or put on the clipboard.
    Typed,
    Nothing,
}

/// A trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceInfo {
    pub id: String,
    pub name: Option<String>,
    /// The desk that it is of, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desk: Option<String>,
    /// RFC 3339.
    pub started: String,
    /// RFC 3339; missing while it is being recorded.
    pub ended: Option<String>,
    pub steps: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Of the screen when it began.
    pub width: u32,
    pub height: u32,
    /// Whether it was ended; one that broke off holds everything up to its last whole step.
    pub complete: bool,
    /// Why it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceList {
    /// The newest first.
    pub traces: Vec<TraceInfo>,
}

/// Which steps are wanted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StepsQuery {
    /// Only steps of higher numbers.
    pub after: u64,
    /// At most so many, up to 1000.
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepList {
    pub steps: Vec<Step>,
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// From 1.
    pub number: u64,
    /// When it began, RFC 3339.
    pub at: String,
    /// The same in milliseconds since the trace began.
    pub offset_ms: u64,
    pub took_ms: f64,
    pub by: By,
    /// Where it came in: `v1`, `osworld`, `view`, or a dialect.
    pub entrance: String,
    pub actions: Vec<Deed>,
    pub result: StepResult,
    /// Why it was refused or failed.
    pub message: Option<String>,
    /// The name of the picture before it.
    pub before: Option<String>,
    /// The name of the picture after it, when the screen was quiet again or a second had passed.
    pub after: Option<String>,
    /// Whether the tree after it was kept.
    pub tree: bool,
    /// The snapshot that was taken here.
    pub snapshot: Option<String>,
}

/// Who did it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct By {
    pub driver: Driver,
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    Done,
    /// Somebody else drove; nothing was done.
    Refused,
    Failed,
}

/// Something that was done: an action of hands, or one of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Deed {
    Hands(Action),
    Other(OtherDeed),
}

/// What is done without hands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum OtherDeed {
    /// A window was activated, closed, …
    Window {
        id: u32,
        /// By which it is found on another desk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        change: WindowChange,
    },
    /// A window was moved or resized.
    PlaceWindow {
        id: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        area: NewArea,
    },
    /// Something was done to an element of the accessibility tree.
    Element {
        act: Act,
        /// By which it is found on another desk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        element: Option<ElementName>,
    },
    /// Something was put on the clipboard; other contents than text are not kept.
    Copy { selection: Selection, r#type: String, bytes: u64, text: Option<String> },
    /// The clipboard was emptied.
    ClearClipboard { selection: Selection },
    /// A snapshot was taken.
    Snapshot { id: String },
}

/// What an element is, in words that hold on other desks too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementName {
    pub app: String,
    pub role: String,
    pub name: String,
    /// How many before it have the same role and name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nth: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A snapshot that was taken while a trace is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoteSnapshot {
    pub id: String,
}
