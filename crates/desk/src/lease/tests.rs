//! Who may act when: on a real X server, through the real routes.

use super::*;
use crate::Desk;
use crate::config::{AttachTarget, Config};
use crate::input::live;
use crate::server::app;
use crate::x11::tests::TestDisplay;
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt;

/// A desk on a display, and the answers of its server.
struct Driven {
    desk: Desk,
    _display: TestDisplay,
}

struct Answer {
    status: u16,
    retry_after: Option<u64>,
    body: Value,
}

impl Driven {
    async fn new() -> Self {
        let display = TestDisplay::bare();
        let config = Config {
            attach: Some(AttachTarget(display.place.display.number)),
            home: Some(display.place.home.clone()),
            ..Config::default()
        };
        Self { desk: Desk::start(config).await.unwrap(), _display: display }
    }

    async fn ask(&self, method: Method, path: &str, viewer: Option<&str>, body: Value) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(viewer) = viewer {
            request = request.header("x-hotdesk-viewer", viewer);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = app(self.desk.clone()).oneshot(request.body(body).unwrap()).await.unwrap();
        let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 64 << 20).await.unwrap();
        Answer { status, retry_after, body: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    async fn take(&self, viewer: &str, more: Value) -> Answer {
        let mut how = json!({"name": viewer.to_uppercase(), "viewer": viewer});
        how.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.ask(Method::PUT, "/v1/lease", None, how).await
    }

    async fn click(&self, viewer: Option<&str>) -> Answer {
        let list = json!({"actions": [{"do": "click", "at": {"x": 5, "y": 6}}]});
        self.ask(Method::POST, "/v1/input", viewer, list).await
    }

    async fn touch(&self, viewer: &str, plain: bool) -> Touch {
        self.desk.lease.touch(viewer, plain, self.desk.input.clone()).await
    }
}

#[tokio::test]
async fn while_a_person_drives_agents_look_and_do_not_act() {
    let driven = Driven::new().await;
    assert_eq!(driven.click(None).await.status, 200);
    let taken = driven.take("ada", json!({"idle_s": 100})).await;
    assert_eq!((taken.status, &taken.body["driver"], &taken.body["name"]), (200, &json!("person"), &json!("ADA")));
    assert!((99..=100).contains(&taken.body["returns_in_s"].as_u64().unwrap()), "{}", taken.body);

    let pyautogui = json!({"command": ["python", "-c", "import pyautogui; pyautogui.click(3, 4)"]});
    let acts = [
        (Method::POST, "/v1/input", json!({"actions": [{"do": "type", "text": "x"}]})),
        (Method::POST, "/v1/windows/1/activate", Value::Null),
        (Method::PUT, "/v1/windows/1/area", json!({"x": 1})),
        (Method::PUT, "/v1/clipboard", json!("text")),
        (Method::DELETE, "/v1/clipboard", Value::Null),
        (Method::POST, "/v1/accessibility/act", json!({"do": "focus", "id": "a:/b"})),
        (Method::POST, "/execute", pyautogui.clone()),
        (Method::POST, "/execute_with_verification", pyautogui),
    ];
    for (method, path, body) in acts {
        let answer = driven.ask(method, path, None, body).await;
        assert_eq!(answer.status, 423, "{path}: {}", answer.body);
        assert!((90..=100).contains(&answer.retry_after.unwrap()), "{path}");
        let words = answer.body["detail"].as_str().or(answer.body["message"].as_str()).unwrap();
        assert!(words.contains("ADA is driving") && words.contains(" s without input"), "{path}: {words}");
        if path.starts_with("/v1/") {
            assert_eq!((&answer.body["code"], &answer.body["retry"]), (&json!("person_is_driving"), &json!(true)));
        }
    }
    for look in ["/v1/screen", "/v1/input/pointer", "/v1/activity", "/v1/lease", "/cursor_position"] {
        assert_eq!(driven.ask(Method::GET, look, None, Value::Null).await.status, 200, "{look}");
    }
    let run = json!({"command": ["true"]});
    assert_eq!(driven.ask(Method::POST, "/execute", None, run).await.status, 200);
    assert_eq!(driven.desk.lease.look().driver, Driver::Person);

    // The person's own requests go through, and nobody else's.
    assert_eq!(driven.click(Some("ada")).await.status, 200);
    assert_eq!(driven.click(Some("bob")).await.status, 423);
    let given = driven.ask(Method::DELETE, "/v1/lease", None, Value::Null).await;
    assert_eq!((given.status, &given.body["driver"], &given.body["returns_in_s"]), (200, &json!("agent"), &Value::Null));
    assert_eq!(driven.click(None).await.status, 200);
}

#[tokio::test]
async fn two_people_do_not_take_it_from_each_other_by_accident() {
    let driven = Driven::new().await;
    assert_eq!(driven.take("ada", json!({})).await.status, 200);
    let refused = driven.take("bob", json!({})).await;
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("conflict")));
    assert!(refused.body["detail"].as_str().unwrap().contains("ADA drives"), "{}", refused.body);
    assert_eq!(driven.take("ada", json!({"idle_s": 5})).await.body["idle_limit_s"], 5);
    assert_eq!(driven.take("bob", json!({"force": true})).await.body["viewer"], "bob");
    assert_eq!(driven.touch("ada", false).await, Touch::Dropped);
    assert_eq!(driven.touch("bob", false).await, Touch::Goes);
    // A plain viewer can't ask, so it does not get in either.
    assert_eq!(driven.touch("vnc-1", true).await, Touch::Dropped);
    for bad in [json!({"idle_s": 4}), json!({"idle_s": 3601}), json!({"name": ""}), json!({"viewer": "\u{7}"}), json!({"x": 1})] {
        assert_eq!(driven.take("bob", bad.clone()).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_viewer_acts_while_it_has_the_lease_and_a_plain_one_takes_it() {
    let driven = Driven::new().await;
    assert_eq!(driven.touch("ada", false).await, Touch::Dropped);
    assert!(!driven.desk.lease.may_copy("ada", false) && driven.desk.lease.may_copy("vnc-7", true));
    assert_eq!(driven.touch("vnc-7", true).await, Touch::TookOver);
    assert_eq!(driven.touch("vnc-7", true).await, Touch::Goes);
    let lease = driven.desk.lease.look();
    assert_eq!((lease.name.as_deref(), lease.viewer.as_deref()), (Some("VNC viewer"), Some("vnc-7")));
    assert_eq!(driven.click(None).await.status, 423);
    assert_eq!(driven.touch("vnc-8", true).await, Touch::Dropped);
    assert!(!driven.desk.lease.may_copy("vnc-8", true));
    // Kept free for whoever comes: the first viewer gets it.
    driven.ask(Method::DELETE, "/v1/lease", None, Value::Null).await;
    assert_eq!(driven.ask(Method::PUT, "/v1/lease", None, json!({"name": "Zoe"})).await.body["viewer"], Value::Null);
    assert_eq!(driven.click(None).await.status, 423);
    assert_eq!(driven.touch("ada", false).await, Touch::Dropped);
    assert_eq!(driven.take("ada", json!({})).await.status, 200);
    assert_eq!(driven.touch("vnc-8", true).await, Touch::Dropped);
}

#[tokio::test]
async fn whoever_is_idle_gives_it_back() {
    let hands = crate::input::Input::new(TestDisplay::bare().place.clone());
    let lease = Lease::default();
    let mut changes = lease.watch();
    let begun = Instant::now();
    lease.enter(Some("Ada".into()), Some("ada".into()), Duration::from_millis(300), false).unwrap();
    lease.return_when_idle(hands);
    assert!(lease.pass(&Asker::default()).is_err());
    while lease.look().driver == Driver::Person {
        changes.changed().await.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(lease.pass(&Asker::default()).is_ok());
}

#[tokio::test]
async fn a_list_stops_when_somebody_takes_over() {
    let driven = Driven::new().await;
    let list = json!({"actions": [{"do": "button_down"}, {"do": "wait", "ms": 60000}, {"do": "move", "to": {"x": 1, "y": 1}}]});
    let acting = driven.ask(Method::POST, "/v1/input", None, list);
    let taking = async {
        // The pointer's button tells that the list is under way.
        let hands = driven.desk.input.hands().unwrap();
        let pressed = || {
            use x11rb::protocol::xproto::ConnectionExt as _;
            u16::from(hands.connection.query_pointer(hands.root).unwrap().reply().unwrap().mask) & 0x100 != 0
        };
        while !pressed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(driven.take("ada", json!({})).await.status, 200);
        assert!(!pressed(), "the last driver's button is released");
    };
    let (answer, ()) = tokio::join!(acting, taking);
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body["detail"].as_str().unwrap().starts_with("1 of 3 actions were done"), "{}", answer.body);
}

#[tokio::test]
async fn changes_are_told() {
    let driven = Driven::new().await;
    let request = Request::get("/v1/lease/events").body(Body::empty()).unwrap();
    let response = app(driven.desk.clone()).oneshot(request).await.unwrap();
    let mut body = response.into_body().into_data_stream();
    let mut next = async || {
        use futures_util::StreamExt;
        let part = tokio::time::timeout(Duration::from_secs(20), body.next()).await.unwrap().unwrap().unwrap();
        let text = String::from_utf8(part.to_vec()).unwrap();
        serde_json::from_str::<Value>(text.trim().strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(next().await["driver"], "agent");
    driven.take("ada", json!({})).await;
    assert_eq!(next().await["viewer"], "ada");
    driven.ask(Method::DELETE, "/v1/lease", None, Value::Null).await;
    assert_eq!(next().await["driver"], "agent");
}

/// A viewer's words reach the desk only while they may; its events are those of live hands.
#[tokio::test]
async fn hands_of_a_viewer_are_those_of_the_display() {
    let driven = Driven::new().await;
    driven.take("ada", json!({})).await;
    let hands = live::hands(driven.desk.place.clone());
    assert_eq!(driven.touch("ada", false).await, Touch::Goes);
    hands.send(live::Event::Pointer { x: 33, y: 44, buttons: 0 }).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while driven.desk.input.pointer().await.unwrap() != (hotdesk_api::action::Point { x: 33, y: 44 }) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
