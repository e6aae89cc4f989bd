//! Accessibility: the tree of a desk's programs, searching it, acting on it.

use crate::action::{Point, Rect};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// One element of a program: a window, a button, a text, a cell, …
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Element {
    /// Names the element as long as its program keeps it. Opaque.
    pub id: String,
    /// `push-button`, `text`, `table-cell`, … in the words of AT-SPI.
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `showing`, `focused`, `checked`, … only those that are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Where it is on the screen; only of what is visible and showing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<Rect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<ElementValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ElementAction>,
    /// What the toolkit tells besides: `class`, `id`, `tag`, `placeholder-text`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The program that it belongs to. Only where the element stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The window that it is in. Only where the element stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub children: Vec<Element>,
    /// How many children were left out because of `depth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children_left_out: Option<usize>,
}

/// The value of a slider, a spin button, a scroll bar, a cell, …
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ElementValue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
}

/// Something that an element does when it is invoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementAction {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The keys that do the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keys: String,
}

/// What of the tree is wanted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TreeQuery {
    /// Only the program of this name; case does not matter.
    pub app: Option<String>,
    /// Only windows whose name contains this; case does not matter.
    pub window: Option<String>,
    /// Levels below the program: 1 is its windows. All of them if left out.
    pub depth: Option<u32>,
    /// Only what is visible and showing.
    #[serde(default)]
    pub visible_only: bool,
    /// A comma-separated choice of `name`, `states`, `text`, `area`, `value`, `actions`, `attributes`. All of them if left out.
    pub fields: Option<String>,
}

/// The programs of the desk with their elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeReply {
    pub apps: Vec<Element>,
    /// `false` if a program did not answer in time and is missing or cut off.
    pub complete: bool,
}

/// What is looked for. Everything that is given must hold.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindRequest {
    /// `push-button`; a space is as good as a hyphen.
    pub role: Option<String>,
    /// The whole name, case and all.
    pub name: Option<String>,
    /// A part of the name; case does not matter.
    pub name_contains: Option<String>,
    /// The whole text, case and all.
    pub text: Option<String>,
    /// A part of the text; case does not matter.
    pub text_contains: Option<String>,
    /// States that must be set; with a `!` before it, one that must not.
    #[serde(default)]
    pub states: Vec<String>,
    /// Only in the program of this name; case does not matter.
    pub app: Option<String>,
    /// Only in windows whose name contains this; case does not matter.
    pub window: Option<String>,
    /// Also what is not on the screen.
    #[serde(default)]
    pub hidden: bool,
    /// At most this many; 20 if left out, 1000 at most.
    pub limit: Option<usize>,
}

/// What was found, in the order of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FindReply {
    pub found: Vec<Element>,
    /// There are more than `limit`.
    pub more: bool,
}

/// A place on the screen.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AtQuery {
    pub x: i32,
    pub y: i32,
}

/// The element that a click would meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AtReply {
    /// The smallest element there. Missing where no program has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Element>,
    /// What it is in, from the inside out, without children.
    pub within: Vec<Element>,
}

/// Something done to an element, without mouse and keyboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Does one of its `actions`, by name; the first if none is named.
    Invoke { id: String, action: Option<String> },
    /// Gives it the keyboard.
    Focus { id: String },
    /// Sets a slider, a spin button, …
    SetValue { id: String, value: f64 },
    /// Replaces its whole text.
    SetText { id: String, text: String },
    /// Makes it visible.
    ScrollTo { id: String },
}

impl Act {
    /// The element that it is about.
    pub fn id(&self) -> &str {
        let (Self::Invoke { id, .. }
        | Self::Focus { id }
        | Self::SetValue { id, .. }
        | Self::SetText { id, .. }
        | Self::ScrollTo { id }) = self;
        id
    }

    /// The same for another element.
    #[must_use]
    pub fn on(mut self, element: String) -> Self {
        let (Self::Invoke { id, .. }
        | Self::Focus { id }
        | Self::SetValue { id, .. }
        | Self::SetText { id, .. }
        | Self::ScrollTo { id }) = &mut self;
        *id = element;
        self
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ActReply {
    /// `false` if the program took the request but has not said yet that it is done, as when a dialog
    /// opened. Do not send it again: look.
    pub confirmed: bool,
    /// The value that it has now, after `set_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The middle of the element, for a click; after `scroll_to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<Point>,
}
