//! The accessibility tree as text: one element a line, with its place in the picture.

use super::Server;
use super::screen::view;
use super::text::{LONGEST_TEXT, cut};
use super::tools::{Outcome, says};
use crate::dialects::computer::View;
use crate::dialects::native::Ask;
use hotdesk_api::access::{Element, TreeReply};
use hotdesk_api::action::Point;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write;

/// Characters of one element's name or text.
const LONGEST_LINE: usize = 200;
/// Levels that are shown by blanks; below, more of them tell nothing.
const DEEPEST: usize = 30;
/// States that change what one does next.
const TOLD: [&str; 7] = ["focused", "checked", "selected", "expanded", "pressed", "editable", "busy"];
/// Elements that are only there to arrange others.
const ARRANGING: [&str; 12] = [
    "panel",
    "filler",
    "section",
    "unknown",
    "redundant-object",
    "layered-pane",
    "root-pane",
    "scroll-pane",
    "viewport",
    "grouping",
    "invalid",
    "split-pane",
];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tree {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// Only the program of this name.
    #[serde(default)]
    app: Option<String>,
    /// Only windows whose name contains this.
    #[serde(default)]
    window: Option<String>,
    /// Only elements whose name, text or role contains this.
    #[serde(default)]
    find: Option<String>,
    /// Also what is not on the screen, such as the part of a page that has to be scrolled to.
    #[serde(default)]
    hidden: bool,
}

pub(super) async fn tree(server: Server, what: Tree) -> Outcome {
    let desk = server.meant(what.desk).await?;
    let mut ask = Ask::get(&["v1", "desks", &desk, "accessibility"])
        .query("visible_only", !what.hidden)
        .query("fields", "name,states,text,area,value");
    for (name, value) in [("app", &what.app), ("window", &what.window)] {
        if let Some(value) = value {
            ask = ask.query(name, value);
        }
    }
    let (view, reply) = tokio::try_join!(view(&server, &desk), server.native.value::<TreeReply>(ask))?;
    let mut page = Page { view, find: what.find.map(|text| text.to_lowercase()), text: String::new(), left_out: 0 };
    for app in &reply.apps {
        page.add(app, None, 0);
    }
    says(page.finish(reply.complete))
}

struct Page {
    view: View,
    /// In small letters.
    find: Option<String>,
    text: String,
    left_out: usize,
}

impl Page {
    fn add(&mut self, element: &Element, parent: Option<&str>, depth: usize) {
        let name = element.name.as_deref().unwrap_or_default();
        let shown = self.is_shown(element, parent);
        if shown {
            match self.text.len() < LONGEST_TEXT {
                true => self.line(element, depth),
                false => self.left_out += 1,
            }
        }
        let depth = if shown && self.find.is_none() { depth + 1 } else { depth };
        for child in &element.children {
            self.add(child, Some(name).filter(|name| !name.is_empty()).or(parent), depth);
        }
    }

    fn is_shown(&self, element: &Element, parent: Option<&str>) -> bool {
        let name = element.name.as_deref().unwrap_or_default().trim();
        let text = element.text.as_deref().unwrap_or_default().trim();
        if let Some(find) = &self.find {
            return [name, text, element.role.as_str()].iter().any(|part| part.to_lowercase().contains(find.as_str()));
        }
        let speaks = !name.is_empty() || !text.is_empty() || element.value.is_some();
        // A heading's words are told once, not for the text in it as well.
        let repeats =
            element.children.is_empty() && parent.is_some_and(|parent| parent == name) && (text.is_empty() || text == name);
        match speaks {
            true => !repeats,
            false => !ARRANGING.contains(&element.role.as_str()) && element.children.is_empty(),
        }
    }

    fn line(&mut self, element: &Element, depth: usize) {
        let _ = write!(self.text, "{:blank$}{}", "", element.role, blank = 2 * depth.min(DEEPEST));
        let name = element.name.as_deref().unwrap_or_default().trim();
        if !name.is_empty() {
            let _ = write!(self.text, " {:?}", cut(name, LONGEST_LINE));
        }
        if let Some(area) = element.area {
            let middle = Point { x: area.x + (area.width / 2) as i32, y: area.y + (area.height / 2) as i32 };
            let Point { x, y } = self.view.to_picture(middle);
            let _ = write!(self.text, " at ({x}, {y})");
        }
        let states = element.states.iter().flatten().map(String::as_str);
        for state in states.filter(|state| TOLD.contains(state)) {
            let _ = write!(self.text, " {state}");
        }
        if let Some(value) = element.value.and_then(|value| value.current) {
            let _ = write!(self.text, " value {value}");
        }
        let text = element.text.as_deref().unwrap_or_default().trim();
        if !text.is_empty() && text != name {
            let _ = write!(self.text, ": {:?}", cut(text, LONGEST_LINE));
        }
        if let Some(count) = element.children_left_out.filter(|count| *count > 0) {
            let _ = write!(self.text, " [{count} more below]");
        }
        self.text.push('\n');
    }

    fn finish(mut self, complete: bool) -> String {
        if self.text.is_empty() {
            self.text.push_str(match self.find {
                Some(_) => "nothing of that is on the screen; `hidden` looks further\n",
                None => "no program tells what it shows; look at the picture instead\n",
            });
        }
        if self.left_out > 0 {
            let _ =
                writeln!(self.text, "[… {} more elements left out; `app`, `window` or `find` narrow it down …]", self.left_out);
        }
        if !complete {
            self.text.push_str("[… a program did not answer in time, so a part is missing …]\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::action::Size;
    use serde_json::{Value, json};

    fn told(apps: Value, find: Option<&str>) -> String {
        let apps: Vec<Element> = serde_json::from_value(apps).unwrap();
        let view = View::declared(Size { width: 2000, height: 1000 }, Size { width: 1000, height: 500 });
        let mut page = Page { view, find: find.map(str::to_owned), text: String::new(), left_out: 0 };
        apps.iter().for_each(|app| page.add(app, None, 0));
        page.finish(true)
    }

    fn page() -> Value {
        let area = json!({"x": 100, "y": 40, "width": 20, "height": 10});
        json!([{"id": "1", "role": "application", "name": "chromium", "children": [
            {"id": "2", "role": "frame", "name": "Page", "children": [
                {"id": "3", "role": "panel", "children": [
                    {"id": "4", "role": "heading", "name": "Hello", "children": [{"id": "5", "role": "static", "name": "Hello"}]},
                    {"id": "6", "role": "push-button", "name": "Send", "area": area, "states": ["enabled", "focused"]},
                    {"id": "7", "role": "entry", "area": area, "text": "typed", "states": ["editable"]},
                    {"id": "8", "role": "filler"},
                ]},
            ]},
        ]}])
    }

    #[test]
    fn a_tree_is_told_in_lines() {
        assert_eq!(
            told(page(), None),
            "application \"chromium\"\n  frame \"Page\"\n    heading \"Hello\"\n    push-button \"Send\" at (55, 22) focused\n    \
             entry at (55, 22) editable: \"typed\"\n"
        );
        assert_eq!(told(page(), Some("send")), "push-button \"Send\" at (55, 22) focused\n");
        assert!(told(page(), Some("nobody")).starts_with("nothing of that"));
    }

    #[test]
    fn a_tree_has_bounds() {
        let children: Vec<_> =
            (0..5000).map(|n| json!({"id": n.to_string(), "role": "label", "name": format!("number {n}")})).collect();
        let text = told(json!([{"id": "a", "role": "application", "name": "many", "children": children}]), None);
        assert!(text.len() < LONGEST_TEXT + 1000, "{}", text.len());
        assert!(text.trim_end().ends_with("narrow it down …]"), "{}", &text[text.len() - 200..]);
    }
}
