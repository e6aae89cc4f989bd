//! Claude's `computer` tool: `computer_20241022`, `computer_20250124`, `computer_20251124`, and the toolset of 2026-08-01, whose
//! tools have the names of the actions.

use super::{Deed, Seen, View, keys};
use hotdesk_api::Action;
use hotdesk_api::action::{Button, Easing, Point, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The longest that a key is held or a pause is made, in seconds: that of the maker's own tool.
const LONGEST: f64 = 100.0;
/// How long a drag takes: slow enough for programs that follow the pointer.
const DRAG_MS: u32 = 300;
/// Which tool is declared when nothing is said.
const USUAL: &str = "computer_20251124";
const TOOLSET: &str = "computer_toolset_20260801";

/// What the model wants.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// What to do.
    pub(crate) action: Kind,
    /// Where, in pixels of the last picture: [x, y].
    #[serde(default)]
    coordinate: Option<[f64; 2]>,
    /// Where a drag starts: [x, y].
    #[serde(default)]
    start_coordinate: Option<[f64; 2]>,
    /// What to type, the keys to press (`ctrl+s`), or the keys to hold while clicking or scrolling.
    #[serde(default)]
    text: Option<String>,
    /// The same as `text`, for clicks.
    #[serde(default)]
    #[schemars(skip)]
    key: Option<String>,
    /// Where to scroll.
    #[serde(default)]
    scroll_direction: Option<Direction>,
    /// Notches of the wheel.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    scroll_amount: Option<u32>,
    /// Seconds to hold or to wait, at most 100.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    duration: Option<f64>,
    /// What to zoom into: [left, top, right, bottom].
    #[serde(default)]
    region: Option<[f64; 4]>,
    /// How often to press the keys; 1 if left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    repeat: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Screenshot,
    Zoom,
    CursorPosition,
    MouseMove,
    LeftClick,
    RightClick,
    MiddleClick,
    DoubleClick,
    TripleClick,
    LeftClickDrag,
    LeftMouseDown,
    LeftMouseUp,
    Scroll,
    Key,
    HoldKey,
    Type,
    Wait,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Up,
    Down,
    Left,
    Right,
}

/// A `tool_use` block, or its input alone.
#[derive(Debug, Clone)]
pub(super) struct Call {
    id: Option<Value>,
    toolset: Option<Value>,
    pub(super) input: Result<Input, String>,
}

/// Reads the model's own JSON. What the model got wrong is in `input`; what no model writes is refused.
pub(super) fn read(value: Value) -> Result<Call, String> {
    let Value::Object(mut block) = value else {
        return Err("this is no JSON object; send the `tool_use` block as the model wrote it".into());
    };
    if block.get("type").is_none_or(|kind| kind != "tool_use") {
        if !block.contains_key("action") {
            return Err("this is neither a `tool_use` block nor the input of one: it has no `action`".into());
        }
        return Ok(Call { id: None, toolset: None, input: understand(Value::Object(block)) });
    }
    let mut input = match block.remove("input") {
        Some(Value::Object(input)) => input,
        None | Some(Value::Null) => Default::default(),
        Some(_) => return Err("the `input` of the `tool_use` block is no object".into()),
    };
    // The tools of the toolset are called what the actions are called.
    if let Some(name) = block.remove("name")
        && !input.contains_key("action")
    {
        input.insert("action".into(), name);
    }
    Ok(Call { id: block.remove("id"), toolset: block.remove("toolset_name"), input: understand(Value::Object(input)) })
}

fn understand(input: Value) -> Result<Input, String> {
    hotdesk_api::json::from_value(input).map_err(|e| format!("this action can't be understood: {e}"))
}

/// What it comes down to on the screen.
pub(crate) fn translate(input: &Input, view: &View) -> Result<Deed, String> {
    let missing = |what: &str| format!("the action needs `{what}`");
    let at = |place: [f64; 2]| view.to_screen(place[0], place[1]);
    let here = input.coordinate.map(at).transpose()?;
    let there = || here.ok_or_else(|| missing("coordinate"));
    let text = || input.text.clone().ok_or_else(|| missing("text"));
    let hold = || input.text.as_deref().or(input.key.as_deref()).filter(|t| !t.is_empty()).map(keys::chord).unwrap_or_default();
    let click = |button: Button, times: u32| vec![Action::Click { at: here, button, times, hold: hold() }];
    let ms = || match input.duration {
        Some(seconds) if (0.0..=LONGEST).contains(&seconds) => Ok((seconds * 1000.0) as u32),
        Some(seconds) => Err(format!("`duration` is {seconds}, but must be from 0 to {LONGEST} seconds")),
        None => Err(missing("duration")),
    };
    let actions = match input.action {
        Kind::Screenshot => return Ok(Deed::Look),
        Kind::CursorPosition => return Ok(Deed::Pointer),
        Kind::Zoom => return view.part(input.region.ok_or_else(|| missing("region"))?).map(Deed::Zoom),
        Kind::MouseMove => vec![Action::Move { to: there()?, ms: 0, easing: Easing::Linear }],
        Kind::LeftClick => click(Button::Left, 1),
        Kind::RightClick => click(Button::Right, 1),
        Kind::MiddleClick => click(Button::Middle, 1),
        Kind::DoubleClick => click(Button::Left, 2),
        Kind::TripleClick => click(Button::Left, 3),
        Kind::LeftClickDrag => {
            // The first generation drags from where the pointer is.
            let start = input.start_coordinate.map(at).transpose()?;
            let path: Vec<Point> = start.into_iter().chain([there()?]).collect();
            vec![Action::Drag { path, button: Button::Left, ms: DRAG_MS, easing: Easing::Linear, hold: hold() }]
        }
        Kind::LeftMouseDown => vec![Action::ButtonDown { at: here, button: Button::Left }],
        Kind::LeftMouseUp => vec![Action::ButtonUp { at: here, button: Button::Left }],
        Kind::Scroll => {
            let amount = i32::try_from(input.scroll_amount.ok_or_else(|| missing("scroll_amount"))?).unwrap_or(i32::MAX);
            let (dx, dy) = match input.scroll_direction.ok_or_else(|| missing("scroll_direction"))? {
                Direction::Up => (0, -amount),
                Direction::Down => (0, amount),
                Direction::Left => (-amount, 0),
                Direction::Right => (amount, 0),
            };
            vec![Action::Scroll { at: here, dx, dy, hold: hold() }]
        }
        Kind::Key => chords(&text()?).into_iter().map(|keys| Action::Key { keys, times: input.repeat.unwrap_or(1) }).collect(),
        Kind::HoldKey => {
            let keys = keys::chord(text()?.trim());
            vec![Action::KeyDown { keys: keys.clone() }, Action::Wait { ms: ms()? }, Action::KeyUp { keys }]
        }
        Kind::Type => vec![Action::Type { text: text()?, interval_ms: 0, secret: false }],
        Kind::Wait => vec![Action::Wait { ms: ms()? }],
    };
    Ok(Deed::Act(actions))
}

/// Chords one after another, as xdotool takes them: `ctrl+a Delete`.
fn chords(text: &str) -> Vec<Vec<String>> {
    match text.split_whitespace().collect::<Vec<_>>() {
        words if words.is_empty() => vec![keys::chord(text)],
        words => words.into_iter().map(keys::chord).collect(),
    }
}

/// What the model's API wants back.
pub(super) fn result(call: &Call, seen: Result<Seen, String>) -> Value {
    let mut block = json!({ "type": "tool_result" });
    match seen {
        Ok(seen) => {
            let text = seen.text.map(|text| json!({ "type": "text", "text": text }));
            let image = seen.picture.map(|picture| {
                json!({ "type": "image", "source": { "type": "base64", "media_type": picture.kind, "data": picture.data } })
            });
            block["content"] = text.into_iter().chain(image).collect();
        }
        Err(reason) => {
            block["content"] = json!([{ "type": "text", "text": reason }]);
            block["is_error"] = true.into();
        }
    }
    if let Some(id) = &call.id {
        block["tool_use_id"] = id.clone();
    }
    if let Some(toolset) = &call.toolset {
        block["toolset_name"] = toolset.clone();
    }
    block
}

/// The tool as it is declared to the model.
pub(super) fn declaration(version: Option<&str>, shown: Size) -> Result<Value, String> {
    let version = version.unwrap_or(USUAL);
    let mut tool = json!({
        "type": version, "name": "computer", "display_width_px": shown.width, "display_height_px": shown.height,
    });
    match version {
        "computer_20241022" | "computer_20250124" => {}
        "computer_20251124" => tool["enable_zoom"] = true.into(),
        TOOLSET => tool = json!({ "type": TOOLSET }),
        other => {
            let other = other.escape_default();
            return Err(format!(
                "there is no tool `{other}`; known are computer_20241022, computer_20250124, computer_20251124 and {TOOLSET}"
            ));
        }
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::action::Rect;

    fn view() -> View {
        View::declared(Size { width: 2560, height: 1600 }, Size { width: 1280, height: 800 })
    }

    fn deed(input: Value) -> Result<Deed, String> {
        translate(&read(input)?.input?, &view())
    }

    fn done(input: Value) -> Value {
        match deed(input.clone()) {
            Ok(Deed::Act(actions)) => serde_json::to_value(actions).unwrap(),
            other => panic!("{input}: {other:?}"),
        }
    }

    #[test]
    fn every_action_of_every_generation() {
        let at = json!({"x": 201, "y": 101});
        for (input, actions) in [
            (
                json!({"action": "mouse_move", "coordinate": [100, 50]}),
                json!([{"do": "move", "to": at, "ms": 0, "easing": "linear"}]),
            ),
            (
                json!({"action": "left_click", "coordinate": [100, 50], "text": "ctrl+shift"}),
                json!([{"do": "click", "at": at, "button": "left", "times": 1, "hold": ["ctrl", "shift"]}]),
            ),
            (json!({"action": "left_click"}), json!([{"do": "click", "at": null, "button": "left", "times": 1, "hold": []}])),
            (
                json!({"action": "triple_click", "coordinate": [100, 50], "key": "shift"}),
                json!([{"do": "click", "at": at, "button": "left", "times": 3, "hold": ["shift"]}]),
            ),
            (
                json!({"action": "left_click_drag", "coordinate": [100, 50]}),
                json!([{"do": "drag", "path": [at], "button": "left", "ms": 300, "easing": "linear", "hold": []}]),
            ),
            (
                json!({"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [100, 50]}),
                json!([{"do": "drag", "path": [{"x": 1, "y": 1}, at], "button": "left", "ms": 300, "easing": "linear", "hold": []}]),
            ),
            (
                json!({"action": "scroll", "coordinate": [100, 50], "scroll_direction": "up", "scroll_amount": 3}),
                json!([{"do": "scroll", "at": at, "dx": 0, "dy": -3, "hold": []}]),
            ),
            (
                json!({"action": "key", "text": "ctrl+a Delete", "repeat": 2}),
                json!([{"do": "key", "keys": ["ctrl", "a"], "times": 2}, {"do": "key", "keys": ["Delete"], "times": 2}]),
            ),
            (json!({"action": "key", "text": " "}), json!([{"do": "key", "keys": ["space"], "times": 1}])),
            (
                json!({"action": "hold_key", "text": "shift", "duration": 1.5}),
                json!([{"do": "key_down", "keys": ["shift"]}, {"do": "wait", "ms": 1500}, {"do": "key_up", "keys": ["shift"]}]),
            ),
            (json!({"action": "type", "text": "hé\n"}), json!([{"do": "type", "text": "hé\n", "interval_ms": 0}])),
            (json!({"action": "wait", "duration": 2}), json!([{"do": "wait", "ms": 2000}])),
            (json!({"action": "left_mouse_down"}), json!([{"do": "button_down", "at": null, "button": "left"}])),
        ] {
            assert_eq!(done(input.clone()), actions, "{input}");
        }
        assert_eq!(deed(json!({"action": "screenshot"})), Ok(Deed::Look));
        assert_eq!(deed(json!({"action": "cursor_position"})), Ok(Deed::Pointer));
        let part = Rect { x: 0, y: 0, width: 200, height: 100 };
        assert_eq!(deed(json!({"action": "zoom", "region": [0, 0, 100, 50]})), Ok(Deed::Zoom(part)));
    }

    #[test]
    fn what_a_model_gets_wrong_is_told() {
        for (input, word) in [
            (json!({"action": "fly"}), "unknown variant `fly`"),
            (json!({"action": "mouse_move"}), "needs `coordinate`"),
            (json!({"action": "left_click", "coordinate": [1281, 5]}), "1280×800"),
            (json!({"action": "left_click", "coordinate": [1]}), "can't be understood"),
            (json!({"action": "scroll", "scroll_direction": "up"}), "scroll_amount"),
            (json!({"action": "wait", "duration": 101}), "from 0 to 100"),
            (json!({"action": "zoom", "region": [5, 5, 5, 5]}), "empty"),
            (json!({"action": "type"}), "needs `text`"),
        ] {
            let said = deed(input.clone()).unwrap_err();
            assert!(said.contains(word), "{input}: {said}");
        }
        for wrong in [json!([]), json!({}), json!({"type": "tool_use", "input": 3})] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_are_answered_in_kind() {
        let call =
            read(json!({"type": "tool_use", "id": "toolu_1", "name": "computer", "input": {"action": "screenshot"}})).unwrap();
        assert_eq!(call.input.as_ref().unwrap().action, Kind::Screenshot);
        let answer = result(&call, Err("no".into()));
        assert_eq!(
            answer,
            json!({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": [{"type": "text", "text": "no"}]})
        );
        let block =
            json!({"type": "tool_use", "id": "toolu_2", "name": "wait", "toolset_name": "computer", "input": {"duration": 1}});
        let call = read(block).unwrap();
        assert_eq!(call.input.as_ref().unwrap().action, Kind::Wait);
        let picture = super::super::Image { kind: "image/png".into(), data: "AA==".into() };
        let answer = result(&call, Ok(Seen { picture: Some(picture), text: None }));
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
        assert_eq!(
            answer,
            json!({"type": "tool_result", "tool_use_id": "toolu_2", "toolset_name": "computer", "content": [image]})
        );
    }

    #[test]
    fn tools_are_declared_with_the_size_of_the_picture() {
        let shown = Size { width: 1280, height: 800 };
        let tool = declaration(None, shown).unwrap();
        assert_eq!((&tool["type"], &tool["display_width_px"], &tool["enable_zoom"]), (&json!(USUAL), &json!(1280), &json!(true)));
        assert_eq!(declaration(Some(TOOLSET), shown).unwrap(), json!({ "type": TOOLSET }));
        assert!(declaration(Some("x"), shown).is_err());
    }
}
