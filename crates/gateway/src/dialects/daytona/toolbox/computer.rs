//! Computer use: eyes and hands. The desktop of a desk always runs; that it was started or stopped is a label.

use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, ok};
use super::super::{Call, Query, api, labels, sandboxes};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotdesk_api::Action;
use hotdesk_api::action::{Button, Performed, Point};
use hotdesk_api::screen::ScreenInfo;
use hotdesk_api::window::WindowList;
use serde::Deserialize;
use serde_json::{Value, json};

/// Daytona's names for the programs of a desktop, in the order in which it starts them.
const PROGRAMS: [&str; 5] = ["xvfb", "xfce4", "x11vnc", "novnc", "atspi"];
/// More clicks at once are a mistake.
const MOST_CLICKS: u32 = 10;
/// As many notches as a hand turns.
const MOST_NOTCHES: i32 = 1000;
/// What the label says.
const STOPPED: &str = "stopped";

pub(crate) async fn answer(call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::POST, ["start"]) => switch(&call, &desk, true).await,
        (&Method::POST, ["stop"]) => switch(&call, &desk, false).await,
        (&Method::GET, ["process-status" | "status"]) => ok(json!({"status": status(&call, &desk).await?})),
        (_, ["process", name, what]) => program(&call, &desk, name, what).await,
        (&Method::GET, ["screenshot", rest @ ..]) => screenshot(&call, &desk, rest).await,
        (&Method::GET, ["mouse", "position"]) => position(&desk).await,
        (&Method::POST, ["mouse", what]) => mouse(call, &desk, what).await,
        (&Method::POST, ["keyboard", what]) => keyboard(call, &desk, what).await,
        (&Method::GET, ["display", "info"]) => {
            let screen: ScreenInfo = desk.get("/v1/screen").await?;
            let (width, height) = (screen.size.width, screen.size.height);
            ok(json!({"displays": [{"id": 0, "x": 0, "y": 0, "width": width, "height": height, "isActive": true}]}))
        }
        (&Method::GET, ["display", "windows"]) => windows(&desk).await,
        _ => Err(api::nothing(&call)),
    }
}

// ── the desktop as a whole ──

async fn switch(call: &Call, desk: &Desk, on: bool) -> Reply {
    let shown = sandboxes::find(call, &desk.id).await?;
    // Also says whether it can be reached at all.
    let running = desk.get::<ScreenInfo>("/v1/screen").await;
    if shown.labels.contains_key(labels::DESKTOP) == on {
        sandboxes::set_label(call, &shown, labels::DESKTOP, (!on).then_some(STOPPED)).await?;
    }
    if on {
        running.map_err(|failure| match failure.status() {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => failure,
            _ => failure.with_status(StatusCode::SERVICE_UNAVAILABLE),
        })?;
    }
    let programs = PROGRAMS.iter().enumerate().map(|(n, name)| {
        let state = json!({"running": on, "priority": (n + 1) * 100, "autoRestart": true, "pid": null});
        ((*name).to_owned(), state)
    });
    let message = if on { "Computer use processes started successfully" } else { "Computer use processes stopped successfully" };
    ok(json!({"message": message, "status": programs.collect::<serde_json::Map<_, _>>()}))
}

async fn status(call: &Call, desk: &Desk) -> Reply<&'static str> {
    let shown = sandboxes::find(call, &desk.id).await?;
    if shown.labels.get(labels::DESKTOP).is_some_and(|value| value == STOPPED) {
        return Ok("inactive");
    }
    match desk.get::<ScreenInfo>("/v1/screen").await {
        Ok(_) => Ok("active"),
        Err(failure) if matches!(failure.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) => {
            Ok("partial")
        }
        Err(failure) => Err(failure),
    }
}

async fn program(call: &Call, desk: &Desk, name: &str, what: &str) -> Reply {
    if !PROGRAMS.contains(&name) {
        return Err(
            Failure::not_found(format!("not found: there is no process {}", name.escape_default())).daemon("PROCESS_NOT_FOUND")
        );
    }
    match (call.parts.method.as_str(), what) {
        ("GET", "status") => ok(json!({"processName": name, "running": status(call, desk).await? == "active"})),
        ("GET", "logs") => {
            let shown = sandboxes::find(call, &desk.id).await?;
            let log = call.app.fleet.logs(&call.caller.who, &shown.id, 200).await?;
            ok(json!({"processName": name, "logs": log}))
        }
        ("GET", "errors") => ok(json!({"processName": name, "errors": ""})),
        // It is watched and started again by itself.
        ("POST", "restart") => ok(json!({"processName": name, "message": format!("Process {name} restarted successfully")})),
        _ => Err(api::nothing(call)),
    }
}

async fn windows(desk: &Desk) -> Reply {
    let list: WindowList = desk.get("/v1/windows").await?;
    let windows: Vec<Value> = list
        .windows
        .iter()
        .map(|window| {
            json!({
                "id": window.id,
                "title": window.title,
                "x": window.area.x,
                "y": window.area.y,
                "width": window.area.width,
                "height": window.area.height,
                "isActive": window.active,
            })
        })
        .collect();
    ok(json!({"count": windows.len(), "windows": windows}))
}

// ── eyes ──

async fn screenshot(call: &Call, desk: &Desk, words: &[&str]) -> Reply {
    let query = call.query();
    let (region, compressed) = match words {
        [] => (false, false),
        ["region"] => (true, false),
        ["compressed"] => (false, true),
        ["region", "compressed"] => (true, true),
        _ => return Err(api::nothing(call)),
    };
    let cursor = query.flag(["showCursor", "show_cursor"]);
    let mut wanted = vec![format!("cursor={}", if cursor { "true" } else { "none" })];
    if region {
        wanted.push(format!("region={}", area(&query)?));
    }
    if compressed {
        wanted.extend(compression(&query)?);
    }
    let bytes = desk.bytes(Method::GET, &format!("/v1/screenshot?{}", wanted.join("&")), Body::empty()).await?.bytes.clone();
    let mut reply = json!({"screenshot": BASE64_STANDARD.encode(&bytes), "sizeBytes": bytes.len()});
    if cursor {
        let at: Point = desk.get("/v1/input/pointer").await?;
        reply["cursorPosition"] = json!({"x": at.x, "y": at.y});
    }
    ok(reply)
}

fn area(query: &Query) -> Reply<String> {
    let number = |name: &str| -> Reply<i64> {
        query.number::<i64>(name)?.ok_or_else(|| Failure::bad_request(format!("bad request: {name} is required")))
    };
    let (x, y, width, height) = (number("x")?, number("y")?, number("width")?, number("height")?);
    if width < 1 || height < 1 {
        return Err(Failure::bad_request("bad request: width and height of a region are at least 1"));
    }
    Ok(format!("{x},{y},{width},{height}"))
}

fn compression(query: &Query) -> Reply<Vec<String>> {
    let mut wanted = Vec::new();
    let format = match query.get("format").map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "png") => "png",
        Some("jpeg" | "jpg") => "jpeg",
        Some("webp") => "webp",
        Some(other) => {
            return Err(Failure::bad_request(format!("bad request: {} is no format of pictures", other.escape_default())));
        }
    };
    wanted.push(format!("format={format}"));
    if let Some(quality) = query.number::<u32>("quality")? {
        if !(1..=100).contains(&quality) {
            return Err(Failure::bad_request("bad request: quality is 1 to 100"));
        }
        wanted.push(format!("quality={quality}"));
    }
    if let Some(scale) = query.number::<f32>("scale")? {
        if !(0.1..=1.0).contains(&scale) {
            return Err(Failure::bad_request("bad request: scale is 0.1 to 1.0"));
        }
        wanted.push(format!("scale={scale}"));
    }
    Ok(wanted)
}

// ── hands ──

async fn act(desk: &Desk, action: Action) -> Reply<()> {
    desk.post::<Performed>("/v1/input", &json!({"actions": [action]})).await.map(drop)
}

async fn position(desk: &Desk) -> Reply {
    let at: Point = desk.get("/v1/input/pointer").await?;
    ok(json!({"x": at.x, "y": at.y}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mouse {
    x: Option<f64>,
    y: Option<f64>,
    start_x: f64,
    start_y: f64,
    end_x: f64,
    end_y: f64,
    button: Option<String>,
    double: Option<bool>,
    clicks: Option<u32>,
    direction: Option<String>,
    amount: Option<i32>,
    modifiers: Option<Vec<String>>,
}

async fn mouse(mut call: Call, desk: &Desk, what: &str) -> Reply {
    let wanted: Mouse = call.json().await?;
    let at = match (wanted.x, wanted.y) {
        (Some(x), Some(y)) => Some(point(x, y)),
        _ => None,
    };
    let need = || at.ok_or_else(|| Failure::bad_request("bad request: x and y are required"));
    let hold = wanted.modifiers.unwrap_or_default();
    let button = || button(wanted.button.as_deref());
    let action = match what {
        "move" => Action::Move { to: need()?, ms: 0, easing: Default::default() },
        "click" => {
            let times = wanted.clicks.unwrap_or(if wanted.double == Some(true) { 2 } else { 1 });
            if !(1..=MOST_CLICKS).contains(&times) {
                return Err(Failure::bad_request(format!("bad request: clicks is 1 to {MOST_CLICKS}")));
            }
            Action::Click { at: Some(need()?), button: button()?, times, hold }
        }
        "drag" => {
            let path = vec![point(wanted.start_x, wanted.start_y), point(wanted.end_x, wanted.end_y)];
            Action::Drag { path, button: button()?, ms: 200, easing: Default::default(), hold }
        }
        "scroll" => {
            let amount = wanted.amount.unwrap_or(1);
            if !(0..=MOST_NOTCHES).contains(&amount) {
                return Err(Failure::bad_request(format!("bad request: amount is 0 to {MOST_NOTCHES}")));
            }
            let (dx, dy) = match wanted.direction.as_deref().unwrap_or("down") {
                "up" => (0, -amount),
                "down" => (0, amount),
                "left" => (-amount, 0),
                "right" => (amount, 0),
                other => return Err(Failure::bad_request(format!("bad request: {} is no direction", other.escape_default()))),
            };
            act(desk, Action::Scroll { at, dx, dy, hold }).await?;
            return ok(json!({"success": true}));
        }
        "down" => Action::ButtonDown { at, button: button()? },
        "up" => Action::ButtonUp { at, button: button()? },
        _ => return Err(api::nothing(&call)),
    };
    act(desk, action).await?;
    position(desk).await
}

fn point(x: f64, y: f64) -> Point {
    Point { x: x as i32, y: y as i32 }
}

fn button(name: Option<&str>) -> Reply<Button> {
    match name.unwrap_or("left") {
        "" | "left" => Ok(Button::Left),
        "middle" | "center" => Ok(Button::Middle),
        "right" => Ok(Button::Right),
        other => Err(Failure::bad_request(format!("bad request: {} is no button of a mouse", other.escape_default()))),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Keyboard {
    text: String,
    delay: Option<u32>,
    key: String,
    modifiers: Option<Vec<String>>,
    keys: String,
}

async fn keyboard(mut call: Call, desk: &Desk, what: &str) -> Reply {
    let wanted: Keyboard = call.json().await?;
    let action = match what {
        "type" => Action::Type { text: wanted.text, interval_ms: wanted.delay.unwrap_or(0), secret: false },
        "key" => {
            let mut keys = wanted.modifiers.unwrap_or_default();
            keys.push(wanted.key);
            Action::Key { keys, times: 1 }
        }
        "hotkey" => Action::Key { keys: vec![wanted.keys], times: 1 },
        "down" => Action::KeyDown { keys: vec![wanted.key] },
        "up" => Action::KeyUp { keys: vec![wanted.key] },
        _ => return Err(api::nothing(&call)),
    };
    act(desk, action).await?;
    ok(json!({}))
}
