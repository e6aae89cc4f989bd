//! OpenAI's computer actions: a `computer_call` with one `action` (computer-use-preview) or several `actions` (the newer tool).

use super::{Seen, View, keys};
use hotdesk_api::Action;
use hotdesk_api::action::{Button, Easing, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The model counts pixels where a wheel has notches; browsers move about so many for one.
const PIXELS_OF_A_NOTCH: f64 = 100.0;
/// How long it waits when the model says so; the screen is waited for besides.
const WAIT_MS: u32 = 1000;
const DRAG_MS: u32 = 300;
/// Actions of one call: far more than a model sends, and less than a desk takes.
const MOST_ACTIONS: usize = 100;

/// One action.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Step {
    /// Clicks at a place of the picture.
    Click {
        x: f64,
        y: f64,
        #[serde(default)]
        button: Name,
        /// Keys that are held meanwhile.
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
    /// Clicks twice.
    DoubleClick {
        x: f64,
        y: f64,
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
    /// Drags along a path.
    Drag {
        #[serde(deserialize_with = "hotdesk_api::json::object")]
        path: Vec<Place>,
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
    /// Presses keys together.
    Keypress { keys: Vec<String> },
    /// Moves the pointer.
    Move {
        x: f64,
        y: f64,
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
    /// Only looks.
    Screenshot {},
    /// Turns the wheel so many pixels.
    Scroll {
        x: f64,
        y: f64,
        #[serde(default)]
        scroll_x: f64,
        #[serde(default)]
        scroll_y: f64,
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
    /// Types text.
    Type { text: String },
    /// Waits a second.
    Wait {},
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    #[default]
    Left,
    Right,
    Wheel,
    Back,
    Forward,
}

/// A place of the picture.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(crate) struct Place {
    x: f64,
    y: f64,
}

/// A `computer_call`, or its action alone.
#[derive(Debug, Clone)]
pub(super) struct Call {
    id: Option<Value>,
    pub(super) steps: Vec<Step>,
    /// What the developer must have seen before anything is done.
    pub(super) checks: Vec<Value>,
}

pub(super) fn read(value: Value) -> Result<Call, String> {
    let Value::Object(mut item) = value else {
        return Err("this is no JSON object; send the `computer_call` item as the model wrote it".into());
    };
    let understand =
        |step: Value| hotdesk_api::json::from_value::<Step>(step).map_err(|e| format!("the action can't be understood: {e}"));
    if item.get("type").is_none_or(|kind| kind != "computer_call") {
        return Ok(Call { id: None, steps: vec![understand(Value::Object(item))?], checks: Vec::new() });
    }
    let steps = match (item.remove("actions"), item.remove("action")) {
        (Some(Value::Array(actions)), _) => actions,
        (_, Some(action @ Value::Object(_))) => vec![action],
        _ => return Err("the `computer_call` has neither `action` nor `actions`".into()),
    };
    if steps.len() > MOST_ACTIONS {
        return Err(format!("the call has {} actions, but at most {MOST_ACTIONS} are taken", steps.len()));
    }
    let checks = match item.remove("pending_safety_checks") {
        Some(Value::Array(checks)) => checks,
        _ => Vec::new(),
    };
    let steps = steps.into_iter().map(understand).collect::<Result<_, _>>()?;
    Ok(Call { id: item.remove("call_id"), steps, checks })
}

/// What it comes down to on the screen; nothing if it only looks.
pub(crate) fn translate(steps: &[Step], view: &View) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    for step in steps {
        add(step, view, &mut actions)?;
    }
    Ok(actions)
}

fn add(step: &Step, view: &View, actions: &mut Vec<Action>) -> Result<(), String> {
    let held = |names: &Option<Vec<String>>| names.iter().flatten().map(|name| keys::key(name)).collect::<Vec<_>>();
    match step {
        Step::Click { x, y, button, keys } => {
            let button = match button {
                Name::Left => Button::Left,
                Name::Right => Button::Right,
                Name::Wheel => Button::Middle,
                Name::Back => Button::Back,
                Name::Forward => Button::Forward,
            };
            actions.push(Action::Click { at: Some(view.to_screen(*x, *y)?), button, times: 1, hold: held(keys) });
        }
        Step::DoubleClick { x, y, keys } => {
            let at = Some(view.to_screen(*x, *y)?);
            actions.push(Action::Click { at, button: Button::Left, times: 2, hold: held(keys) });
        }
        Step::Drag { path, keys } => {
            let path = path.iter().map(|place| view.to_screen(place.x, place.y)).collect::<Result<Vec<_>, _>>()?;
            if path.len() < 2 {
                return Err("the `path` of a drag needs at least two places".into());
            }
            actions.push(Action::Drag { path, button: Button::Left, ms: DRAG_MS, easing: Easing::Linear, hold: held(keys) });
        }
        Step::Keypress { keys } => {
            let keys: Vec<_> = keys.iter().flat_map(|name| keys::chord(name)).collect();
            actions.push(Action::Key { keys, times: 1 });
        }
        Step::Move { x, y, keys } => {
            let (to, keys) = (view.to_screen(*x, *y)?, held(keys));
            let around = |action: fn(Vec<String>) -> Action| (!keys.is_empty()).then(|| action(keys.clone()));
            actions.extend(around(|keys| Action::KeyDown { keys }));
            actions.push(Action::Move { to, ms: 0, easing: Easing::Linear });
            actions.extend(around(|keys| Action::KeyUp { keys }));
        }
        Step::Screenshot {} => {}
        Step::Scroll { x, y, scroll_x, scroll_y, keys } => {
            let at = Some(view.to_screen(*x, *y)?);
            actions.push(Action::Scroll { at, dx: notches(*scroll_x), dy: notches(*scroll_y), hold: held(keys) });
        }
        Step::Type { text } => actions.push(Action::Type { text: text.clone(), interval_ms: 0, secret: false }),
        Step::Wait {} => actions.push(Action::Wait { ms: WAIT_MS }),
    }
    Ok(())
}

/// At least one in the direction that was meant.
fn notches(pixels: f64) -> i32 {
    let notches = (pixels / PIXELS_OF_A_NOTCH).round();
    if notches == 0.0 && pixels != 0.0 { pixels.signum() as i32 } else { notches as i32 }
}

/// What the model's API wants back.
pub(super) fn output(call: &Call, seen: Seen) -> Value {
    let picture = seen.picture.map(|picture| format!("data:{};base64,{}", picture.kind, picture.data));
    let mut item = json!({
        "type": "computer_call_output",
        "output": { "type": "computer_screenshot", "image_url": picture },
    });
    if let Some(id) = &call.id {
        item["call_id"] = id.clone();
    }
    if !call.checks.is_empty() {
        item["acknowledged_safety_checks"] = call.checks.clone().into();
    }
    item
}

/// The tool as it is declared to the model.
pub(super) fn declaration(version: Option<&str>, shown: Size) -> Result<Value, String> {
    match version.unwrap_or("computer") {
        "computer" => Ok(json!({ "type": "computer" })),
        "computer_use_preview" => Ok(json!({
            "type": "computer_use_preview",
            "display_width": shown.width,
            "display_height": shown.height,
            "environment": "linux",
        })),
        other => Err(format!("there is no tool `{}`; known are computer and computer_use_preview", other.escape_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View::declared(Size { width: 2048, height: 1536 }, Size { width: 1024, height: 768 })
    }

    fn done(action: Value) -> Result<Value, String> {
        let call = read(json!({"type": "computer_call", "call_id": "call_1", "action": action}))?;
        Ok(serde_json::to_value(translate(&call.steps, &view())?).unwrap())
    }

    #[test]
    fn every_action() {
        let at = json!({"x": 21, "y": 41});
        for (action, actions) in [
            (
                json!({"type": "click", "button": "wheel", "x": 10, "y": 20, "keys": ["CTRL"]}),
                json!([{"do": "click", "at": at, "button": "middle", "times": 1, "hold": ["CTRL"]}]),
            ),
            (
                json!({"type": "double_click", "x": 10, "y": 20, "keys": null}),
                json!([{"do": "click", "at": at, "button": "left", "times": 2, "hold": []}]),
            ),
            (
                json!({"type": "drag", "path": [{"x": 10, "y": 20}, {"x": 0, "y": 0}]}),
                json!([{"do": "drag", "path": [at, {"x": 1, "y": 1}], "button": "left", "ms": 300, "easing": "linear", "hold": []}]),
            ),
            (json!({"type": "keypress", "keys": ["CTRL", "A"]}), json!([{"do": "key", "keys": ["CTRL", "A"], "times": 1}])),
            (json!({"type": "keypress", "keys": ["CTRL+KeyL"]}), json!([{"do": "key", "keys": ["CTRL", "l"], "times": 1}])),
            (
                json!({"type": "move", "x": 10, "y": 20, "keys": ["SHIFT"]}),
                json!([{"do": "key_down", "keys": ["SHIFT"]}, {"do": "move", "to": at, "ms": 0, "easing": "linear"},
                    {"do": "key_up", "keys": ["SHIFT"]}]),
            ),
            (json!({"type": "screenshot"}), json!([])),
            (
                json!({"type": "scroll", "x": 10, "y": 20, "scroll_x": -10, "scroll_y": 740}),
                json!([{"do": "scroll", "at": at, "dx": -1, "dy": 7, "hold": []}]),
            ),
            (json!({"type": "type", "text": "a"}), json!([{"do": "type", "text": "a", "interval_ms": 0}])),
            (json!({"type": "wait"}), json!([{"do": "wait", "ms": 1000}])),
        ] {
            assert_eq!(done(action.clone()), Ok(actions), "{action}");
        }
        for (action, word) in [
            (json!({"type": "fly"}), "unknown variant"),
            (json!({"type": "click", "x": 2000, "y": 1}), "1024×768"),
            (json!({"type": "drag", "path": [{"x": 1, "y": 1}]}), "two places"),
        ] {
            assert!(done(action.clone()).unwrap_err().contains(word), "{action}");
        }
    }

    #[test]
    fn calls_with_several_actions_and_checks() {
        let check = json!({"id": "c1", "code": "malicious_instructions", "message": "m"});
        let call = json!({"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed",
            "pending_safety_checks": [check], "actions": [{"type": "wait"}, {"type": "screenshot"}]});
        let call = read(call).unwrap();
        assert_eq!((call.steps.len(), call.checks.len()), (2, 1));
        let picture = super::super::Image { kind: "image/png".into(), data: "AA==".into() };
        let item = output(&call, Seen { picture: Some(picture), text: None });
        assert_eq!(
            item,
            json!({"type": "computer_call_output", "call_id": "call_1", "acknowledged_safety_checks": [check],
                "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}})
        );
        assert!(read(json!({"type": "computer_call"})).is_err());
        let many: Vec<_> = (0..101).map(|_| json!({"type": "wait"})).collect();
        assert!(read(json!({"type": "computer_call", "actions": many})).unwrap_err().contains("at most 100"));
    }
}
