//! Recording a real display through the real routes.

use crate::Desk;
use crate::config::{AttachTarget, Config};
use crate::input::live;
use crate::server::app;
use crate::trace::{FOLDER, Reader};
use crate::x11::tests::TestDisplay;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tower::ServiceExt;
use xkeysym::key;

struct Recorded {
    desk: Desk,
    display: TestDisplay,
}

impl Recorded {
    async fn new() -> Self {
        let display = TestDisplay::bare();
        let config = Config {
            attach: Some(AttachTarget(display.place.display.number)),
            home: Some(display.place.home.clone()),
            ..Config::default()
        };
        Self { desk: Desk::start(config).await.unwrap(), display }
    }

    async fn raw(&self, method: Method, path: &str, body: Value) -> (StatusCode, Bytes) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = app(self.desk.clone()).oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        (status, axum::body::to_bytes(response.into_body(), 64 << 20).await.unwrap())
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let (status, bytes) = self.raw(method, path, body).await;
        (status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn start(&self, how: Value) -> String {
        let (status, info) = self.ask(Method::POST, "/v1/trace", how).await;
        assert_eq!(status, 200, "{info}");
        info["id"].as_str().unwrap().to_owned()
    }

    async fn act(&self, actions: Value) -> u16 {
        self.ask(Method::POST, "/v1/input", json!({"actions": actions})).await.0
    }

    async fn stop(&self) -> Value {
        let (status, info) = self.ask(Method::DELETE, "/v1/trace", Value::Null).await;
        assert_eq!((status, &info["complete"]), (200, &json!(true)), "{info}");
        info
    }

    async fn steps(&self, id: &str) -> Vec<Value> {
        let (status, list) = self.ask(Method::GET, &format!("/v1/traces/{id}/steps"), Value::Null).await;
        assert_eq!(status, 200, "{list}");
        list["steps"].as_array().unwrap().clone()
    }

    /// The root window in one colour.
    fn paint(&self, colour: u32) {
        use x11rb::connection::Connection;
        use x11rb::protocol::xproto::{ChangeWindowAttributesAux, ConnectionExt as _};
        use x11rb::wrapper::ConnectionExt as _;
        let (connection, screen) = self.display.place.display.connect().unwrap();
        let root = connection.setup().roots[screen].root;
        let change = ChangeWindowAttributesAux::new().background_pixel(colour);
        connection.change_window_attributes(root, &change).unwrap();
        connection.clear_area(false, root, 0, 0, 0, 0).unwrap();
        connection.sync().unwrap();
    }
}

#[tokio::test]
async fn steps_are_recorded_with_what_they_did_to_the_screen() {
    let recorded = Recorded::new().await;
    recorded.paint(0x11_2233);
    let id = recorded.start(json!({"name": "a run"})).await;
    assert_eq!(recorded.ask(Method::POST, "/v1/trace", json!({})).await.0, 409);
    assert_eq!(recorded.act(json!([{"do": "click", "at": {"x": 3, "y": 4}}])).await, 200);
    recorded.paint(0x44_5566);
    assert_eq!(recorded.act(json!([{"do": "move", "to": {"x": 9, "y": 9}}])).await, 200);
    // Nothing is recorded of what was never begun.
    assert_eq!(recorded.act(json!([{"do": "key", "keys": ["no such key"]}])).await, 400);
    let python = json!({"command": ["python", "-c", "import pyautogui; pyautogui.click(30, 40); pyautogui.write('Hi')"]});
    assert_eq!(recorded.ask(Method::POST, "/execute", python).await.0, 200);
    assert_eq!(recorded.ask(Method::PUT, "/v1/clipboard", json!("c")).await.0, 204);
    assert_eq!(recorded.ask(Method::POST, "/v1/trace/snapshot", json!({"id": "s-abc"})).await.0, 204);
    let info = recorded.stop().await;
    assert_eq!((&info["name"], info["id"].as_str()), (&json!("a run"), Some(id.as_str())));

    let steps = recorded.steps(&id).await;
    let told: Vec<_> = steps.iter().map(|step| (step["number"].as_u64(), step["entrance"].as_str().unwrap())).collect();
    assert_eq!(told, [(Some(1), "v1"), (Some(2), "v1"), (Some(3), "osworld"), (Some(4), "v1"), (Some(5), "fleet")], "{steps:#?}");
    assert_eq!(steps[0]["actions"][0]["do"], "click");
    assert_eq!(steps[0]["by"], json!({"driver": "agent", "name": null}));
    assert_eq!(steps[2]["actions"][0]["at"], json!({"x": 30, "y": 40}), "{}", steps[2]);
    assert_eq!(steps[2]["actions"].as_array().unwrap().last().unwrap()["text"], "Hi", "{}", steps[2]);
    assert_eq!((&steps[4]["snapshot"], &steps[4]["actions"][0]["do"]), (&json!("s-abc"), &json!("snapshot")));
    // Pictures show what the screen showed.
    assert_ne!(steps[0]["before"], steps[1]["before"]);
    assert_eq!(steps[1]["before"], steps[1]["after"]);
    let path = format!("/v1/traces/{id}/frames/{}", steps[1]["before"].as_str().unwrap());
    let (status, png) = recorded.raw(Method::GET, &path, Value::Null).await;
    let (size, pixels) = super::decoded(&png);
    assert_eq!((status, pixels[..3].to_vec()), (StatusCode::OK, vec![0x44, 0x55, 0x66]));
    assert_eq!(json!([size.width, size.height]), json!([info["width"], info["height"]]));
    let (status, file) = recorded.raw(Method::GET, &format!("/v1/traces/{id}/file"), Value::Null).await;
    assert_eq!((status, file.len() as u64), (StatusCode::OK, info["bytes"].as_u64().unwrap()));

    let (_, list) = recorded.ask(Method::GET, "/v1/traces", Value::Null).await;
    assert_eq!(list["traces"].as_array().unwrap().len(), 1);
    assert_eq!(recorded.ask(Method::DELETE, &format!("/v1/traces/{id}"), Value::Null).await.0, 204);
    for path in [format!("/v1/traces/{id}"), "/v1/traces/..%2fx".into(), "/v1/trace".into()] {
        assert_eq!(recorded.ask(Method::GET, &path, Value::Null).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn a_person_is_recorded_in_the_same_words() {
    let recorded = Recorded::new().await;
    let id = recorded.start(json!({})).await;
    let lease = json!({"name": "Ada", "viewer": "ada"});
    assert_eq!(recorded.ask(Method::PUT, "/v1/lease", lease).await.0, 200);
    assert_eq!(recorded.act(json!([{"do": "click"}])).await, 423);
    let name = recorded.desk.lease.look().name;
    let mut events = vec![];
    for x in 0..50 {
        events.push(live::Event::Pointer { x, y: 7, buttons: 0 });
    }
    events.extend([1, 0].map(|buttons| live::Event::Pointer { x: 49, y: 7, buttons }));
    for keysym in [key::o, key::k] {
        events.extend([true, false].map(|down| live::Event::Key { keysym, down }));
    }
    events.push(live::Event::Key { keysym: key::Return, down: true });
    for event in events {
        recorded.desk.tracer.live(name.clone(), event).await;
    }
    recorded.stop().await;
    let steps = recorded.steps(&id).await;
    let did: Vec<_> = steps.iter().map(|step| step["actions"][0].clone()).collect();
    assert_eq!(steps[0]["result"], "refused", "{steps:#?}");
    assert!(steps[0]["message"].as_str().unwrap().contains("Ada is driving"));
    assert_eq!(
        did[1..],
        [
            json!({"do": "click", "at": {"x": 49, "y": 7}, "button": "left", "times": 1, "hold": []}),
            json!({"do": "type", "text": "ok", "interval_ms": 0}),
            json!({"do": "key", "keys": ["Return"], "times": 1}),
        ]
    );
    for step in &steps[1..] {
        assert_eq!((&step["by"], &step["entrance"]), (&json!({"driver": "person", "name": "Ada"}), &json!("view")));
        assert!(step["after"].is_string(), "{step}");
    }
    assert!(steps[1]["before"].is_string());
}

#[tokio::test]
async fn secrets_never_reach_the_file() {
    let recorded = Recorded::new().await;
    let secret = json!([{"do": "type", "text": "hunter2", "secret": true}]);
    for (how, actions, kept) in [
        (json!({}), secret.clone(), false),
        (json!({"mask": "typed"}), json!([{"do": "type", "text": "hunter2"}]), false),
        (json!({"mask": "nothing"}), secret, true),
        (json!({"frames": "none"}), json!([{"do": "type", "text": "hunter2"}]), true),
    ] {
        let id = recorded.start(how.clone()).await;
        assert_eq!(recorded.act(actions).await, 200);
        recorded.stop().await;
        let file = std::fs::read(recorded.display.place.home.join(FOLDER).join(format!("{id}.hdtrace"))).unwrap();
        assert_eq!(file.windows(7).any(|part| part == b"hunter2"), kept, "{how}");
    }
}

#[tokio::test]
async fn a_desk_that_dies_leaves_a_trace_that_can_be_read() {
    let recorded = Recorded::new().await;
    let id = recorded.start(json!({})).await;
    assert_eq!(recorded.act(json!([{"do": "click", "at": {"x": 3, "y": 4}}])).await, 200);
    let path = recorded.display.place.home.join(FOLDER).join(format!("{id}.hdtrace"));
    until(|| recorded.desk.tracer.current().unwrap().steps == 1).await;
    // As it is on the disk now; nobody gets to write an end.
    let copy = recorded.display.place.home.join("copy.hdtrace");
    std::fs::copy(path, &copy).unwrap();
    let info = Reader::open(&copy).unwrap().info();
    assert_eq!((info.steps, info.complete), (1, false));
}

#[tokio::test]
async fn a_recording_that_can_not_go_on_ends_and_the_desk_goes_on() {
    let recorded = Recorded::new().await;
    let id = recorded.start(json!({"max_bytes": 1 << 20, "mask": "nothing"})).await;
    let text = "x".repeat(10_000);
    for _ in 0..200 {
        assert_eq!(recorded.act(json!([{"do": "wait", "ms": 0}, {"do": "key_up", "keys": [text.get(..1)]}])).await, 200);
        recorded.desk.clipboard.set_text(crate::clipboard::Selection::Clipboard, text.clone()).await.unwrap();
        if recorded.desk.tracer.current().is_none() {
            break;
        }
    }
    until(|| recorded.desk.tracer.current().is_none()).await;
    let (_, info) = recorded.ask(Method::GET, &format!("/v1/traces/{id}"), Value::Null).await;
    assert!(info["note"].as_str().unwrap().contains("limit of 1048576 bytes"), "{info}");
    assert_eq!(recorded.ask(Method::GET, "/v1/trace", Value::Null).await.0, 404);
    assert_eq!(recorded.act(json!([{"do": "wait", "ms": 0}])).await, 200);
}

async fn until(done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "it takes too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A window over everything that paints a spot wherever it is clicked, and counts them.
fn canvas(display: &TestDisplay) -> Arc<AtomicUsize> {
    use x11rb::connection::Connection;
    use x11rb::protocol::Event;
    use x11rb::protocol::xproto::{ConnectionExt as _, CreateGCAux, CreateWindowAux, EventMask, Rectangle, WindowClass};
    use x11rb::wrapper::ConnectionExt as _;
    let (connection, screen) = display.place.display.connect().unwrap();
    let root = connection.setup().roots[screen].clone();
    let (window, gc) = (connection.generate_id().unwrap(), connection.generate_id().unwrap());
    let how = CreateWindowAux::new().override_redirect(1).background_pixel(0x20_4060).event_mask(EventMask::BUTTON_PRESS);
    let (width, height) = (root.width_in_pixels, root.height_in_pixels);
    connection.create_window(0, window, root.root, 0, 0, width, height, 0, WindowClass::INPUT_OUTPUT, 0, &how).unwrap();
    connection.create_gc(gc, window, &CreateGCAux::new().foreground(0xff_ffff)).unwrap();
    connection.map_window(window).unwrap();
    connection.sync().unwrap();
    let painted = Arc::new(AtomicUsize::new(0));
    let count = painted.clone();
    std::thread::spawn(move || {
        while let Ok(event) = connection.wait_for_event() {
            if let Event::ButtonPress(press) = event {
                let spot = Rectangle { x: press.event_x, y: press.event_y, width: 9, height: 9 };
                let _ = connection.poly_fill_rectangle(window, gc, &[spot]);
                let _ = connection.sync();
                count.fetch_add(1, Ordering::AcqRel);
            }
        }
    });
    painted
}

/// Does lists of actions on a fresh canvas, each after the one before was painted, and tells the steps of their trace.
async fn painted_steps(lists: &[Value]) -> Vec<Value> {
    let recorded = Recorded::new().await;
    let painted = canvas(&recorded.display);
    let id = recorded.start(json!({})).await;
    for (index, list) in lists.iter().enumerate() {
        assert_eq!(recorded.act(list.clone()).await, 200);
        until(|| painted.load(Ordering::Acquire) == index + 1).await;
    }
    assert_eq!(recorded.act(json!([{"do": "wait", "ms": 0}])).await, 200);
    recorded.stop().await;
    recorded.steps(&id).await
}

#[tokio::test]
async fn the_same_steps_lead_to_the_same_pictures() {
    let click = |n: i32| json!([{"do": "click", "at": {"x": 20 + 40 * n, "y": 30 + 7 * n}}]);
    let drag = json!([{"do": "drag", "path": [{"x": 300, "y": 300}, {"x": 350, "y": 310}], "ms": 50}]);
    let lists: Vec<Value> = (0..5).map(click).chain([drag]).collect();
    let first = painted_steps(&lists).await;
    // What was recorded can be sent again as it is.
    let again: Vec<Value> = first[..6].iter().map(|step| step["actions"].clone()).collect();
    let second = painted_steps(&again).await;
    let told = |steps: &[Value]| steps.iter().map(|step| (step["actions"].clone(), step["before"].clone())).collect::<Vec<_>>();
    assert_eq!(told(&first), told(&second));
    let mut pictures: Vec<_> = first.iter().map(|step| step["before"].as_str().unwrap()).collect();
    pictures.sort_unstable();
    pictures.dedup();
    assert_eq!(pictures.len(), 7, "none, then one more spot after each step");
}
