//! Steps in words, as lists, films and pages show them.

use hotdesk_api::access::Act;
use hotdesk_api::action::{Action, Button, Point};
use hotdesk_api::lease::Driver;
use hotdesk_api::trace::{Deed, OtherDeed, Step};
use hotdesk_api::window::WindowChange;

/// Characters of a text that are shown.
const LONGEST_TEXT: usize = 60;
/// Actions of a list that are told one by one.
const MOST_ACTIONS: usize = 4;

/// Who did it.
pub(super) fn by(step: &Step) -> String {
    match (&step.by.driver, &step.by.name) {
        (_, Some(name)) => crate::text::safe(name).into_owned(),
        (Driver::Agent, None) => "agent".into(),
        (Driver::Person, None) => "person".into(),
    }
}

/// What was done, on one line.
pub(super) fn what(step: &Step) -> String {
    let mut parts: Vec<String> = step.actions.iter().take(MOST_ACTIONS).map(deed).collect();
    if step.actions.len() > MOST_ACTIONS {
        parts.push(format!("and {} more", step.actions.len() - MOST_ACTIONS));
    }
    if parts.is_empty() { "ran a program".into() } else { parts.join(", ") }
}

/// Where it clicked, dragged or scrolled, for marks.
pub(super) fn places(step: &Step) -> Vec<Point> {
    let place = |deed: &Deed| match deed {
        Deed::Hands(Action::Click { at, .. } | Action::Scroll { at, .. } | Action::ButtonDown { at, .. }) => *at,
        Deed::Hands(Action::Drag { path, .. }) => path.last().copied(),
        _ => None,
    };
    step.actions.iter().filter_map(place).collect()
}

fn deed(deed: &Deed) -> String {
    match deed {
        Deed::Hands(action) => hands(action),
        Deed::Other(OtherDeed::Window { id, title, change }) => {
            let change = match change {
                WindowChange::Activate => "activate",
                WindowChange::Close => "close",
                WindowChange::Minimize => "minimize",
                WindowChange::Maximize => "maximize",
                WindowChange::Fullscreen => "fill the screen with",
                WindowChange::Restore => "restore",
            };
            format!("{change} {}", window(*id, title.as_deref()))
        }
        Deed::Other(OtherDeed::PlaceWindow { id, title, .. }) => format!("move or resize {}", window(*id, title.as_deref())),
        Deed::Other(OtherDeed::Element { act, element }) => {
            let what = element.as_ref().map_or("an element".to_owned(), |e| format!("the {} {}", e.role, quoted(&e.name)));
            match act {
                Act::Invoke { action, .. } => format!("{} {what}", action.as_deref().unwrap_or("invoke")),
                Act::Focus { .. } => format!("focus {what}"),
                Act::SetValue { value, .. } => format!("set {what} to {value}"),
                Act::SetText { text, .. } => format!("set the text of {what} to {}", quoted(text)),
                Act::ScrollTo { .. } => format!("scroll to {what}"),
            }
        }
        Deed::Other(OtherDeed::Copy { text: Some(text), .. }) => format!("copy {}", quoted(text)),
        Deed::Other(OtherDeed::Copy { r#type, bytes, .. }) => format!("copy {bytes} bytes of {type}"),
        Deed::Other(OtherDeed::ClearClipboard { .. }) => "empty the clipboard".into(),
        Deed::Other(OtherDeed::Snapshot { id }) => format!("snapshot {id}"),
    }
}

fn window(id: u32, title: Option<&str>) -> String {
    title.map_or_else(|| format!("window 0x{id:x}"), |title| format!("the window {}", quoted(title)))
}

fn hands(action: &Action) -> String {
    let at = |at: &Option<Point>| at.map_or(String::new(), |at| format!(" at {},{}", at.x, at.y));
    let with = |hold: &[String]| if hold.is_empty() { String::new() } else { format!(" with {}", hold.join("+")) };
    match action {
        Action::Move { to, .. } => format!("move to {},{}", to.x, to.y),
        Action::Click { at: place, button, times, hold } => {
            let kind = match times {
                2 => "double click",
                3 => "triple click",
                _ => "click",
            };
            format!("{}{kind}{}{}", named(*button), at(place), with(hold))
        }
        Action::ButtonDown { at: place, button } => format!("press the {}button{}", named(*button), at(place)),
        Action::ButtonUp { at: place, button } => format!("release the {}button{}", named(*button), at(place)),
        Action::Drag { path, hold, .. } => {
            let end = |point: Option<&Point>| point.map_or(String::new(), |p| format!("{},{}", p.x, p.y));
            format!("drag from {} to {}{}", end(path.first()), end(path.last()), with(hold))
        }
        Action::Scroll { at: place, dx, dy, hold } => {
            let way = |count: i32, more: &str, less: &str| match count {
                0 => String::new(),
                count => format!(" {} {}", if count > 0 { more } else { less }, count.unsigned_abs()),
            };
            format!("scroll{}{}{}{}", way(*dy, "down", "up"), way(*dx, "right", "left"), at(place), with(hold))
        }
        Action::Key { keys, times: 1 } => keys.join("+"),
        Action::Key { keys, times } => format!("{} {times} times", keys.join("+")),
        Action::KeyDown { keys } => format!("hold {}", keys.join("+")),
        Action::KeyUp { keys } => format!("let go of {}", keys.join("+")),
        Action::Type { text, .. } => format!("type {}", quoted(text)),
        Action::Wait { ms } => format!("wait {ms} ms"),
    }
}

fn named(button: Button) -> &'static str {
    match button {
        Button::Left => "",
        Button::Middle => "middle ",
        Button::Right => "right ",
        Button::Back => "back ",
        Button::Forward => "forward ",
    }
}

fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LONGEST_TEXT).is_some() {
        shown.push('…');
    }
    format!("“{shown}”")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_read_like_sentences() {
        for (action, words) in [
            (
                json!({"do": "click", "at": {"x": 1, "y": 2}, "button": "right", "times": 2, "hold": ["ctrl"]}),
                "right double click at 1,2 with ctrl",
            ),
            (json!({"do": "scroll", "dy": -3}), "scroll up 3"),
            (json!({"do": "key", "keys": ["ctrl", "s"]}), "ctrl+s"),
            (json!({"do": "type", "text": "a\nb"}), "type “a b”"),
            (json!({"do": "drag", "path": [{"x": 1, "y": 1}, {"x": 9, "y": 9}]}), "drag from 1,1 to 9,9"),
            (json!({"do": "window", "id": 255, "change": "close"}), "close window 0xff"),
            (json!({"do": "snapshot", "id": "s-1"}), "snapshot s-1"),
            (json!({"do": "clear_clipboard", "selection": "clipboard"}), "empty the clipboard"),
            (json!({"do": "element", "act": {"do": "focus", "id": "x"}}), "focus an element"),
        ] {
            assert_eq!(deed(&serde_json::from_value(action).unwrap()), words);
        }
    }
}
