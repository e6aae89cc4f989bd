//! The routes, over HTTP and against a real display.

use super::*;
use crate::x11::tests::TestDisplay;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

#[derive(Clone)]
struct Parts {
    input: Input,
    screen: Screen,
}

impl FromRef<Parts> for Input {
    fn from_ref(parts: &Parts) -> Self {
        parts.input.clone()
    }
}

impl FromRef<Parts> for Screen {
    fn from_ref(parts: &Parts) -> Self {
        parts.screen.clone()
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Parts {
    fn new(display: &TestDisplay) -> Self {
        Self { input: Input::new(display.place.clone()), screen: Screen::new(display.place.clone()) }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let (router, _) = router_of::<Self>().with_state(self.clone()).split_for_parts();
        let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
        let body = axum::body::to_bytes(body, 64 << 20).await.unwrap().to_vec();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn post(&self, accept: &str, body: Value) -> Answer {
        let request = Request::post("/v1/input").header("content-type", "application/json").header("accept", accept);
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_acts_settles_and_looks_in_one_go() {
    let display = TestDisplay::bare();
    let parts = Parts::new(&display);
    let actions = json!([{"do": "move", "to": {"x": 30, "y": 40}}, {"do": "click"}]);

    let answer = parts.post("*/*", json!({"actions": actions})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["actions"][1]["index"], 1);
    assert_eq!(answer.json()["actions"][1]["done"], true);
    assert!(answer.json().get("screenshot").is_none());

    let settle = json!({"quiet_ms": 1, "limit_ms": 20000});
    let answer = parts.post("*/*", json!({"actions": actions, "settle": settle, "screenshot": true})).await;
    assert_eq!((answer.status, answer.headers["content-type"].to_str().unwrap()), (200, "image/png"));
    assert!(answer.body.starts_with(b"\x89PNG"));
    assert_eq!((answer.headers[DONE].to_str().unwrap(), answer.headers[SETTLED].to_str().unwrap()), ("2", "true"));

    let shape = json!({"format": "jpeg", "max_width": 640, "cursor": "none"});
    let answer = parts.post("text/html, application/json;q=0.9", json!({"actions": [], "screenshot": shape})).await;
    let picture = &answer.json()["screenshot"];
    assert_eq!((picture["type"].as_str(), picture["size"]["width"].as_u64()), (Some("image/jpeg"), Some(640)));
    assert!(BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap().starts_with(b"\xff\xd8"));

    let pointer = parts.send(Request::get("/v1/input/pointer").body(Body::empty()).unwrap()).await;
    assert_eq!(pointer.json(), json!({"x": 30, "y": 40}));
    let release = parts.send(Request::post("/v1/input/release").body(Body::empty()).unwrap()).await;
    assert_eq!(release.status, 204);
    let keys = parts.send(Request::get("/v1/input/keys").body(Body::empty()).unwrap()).await.json();
    assert!(keys["names"].as_array().unwrap().contains(&json!("ctrl")));
    assert!(keys["keysyms"].as_array().unwrap().contains(&json!("XF86AudioMute")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_refused_is_refused_before_the_first_action() {
    let display = TestDisplay::bare();
    let parts = Parts::new(&display);
    let click = json!([{"do": "move", "to": {"x": 7, "y": 7}}]);
    let before = parts.input.pointer().await.unwrap();
    for body in [
        json!({}),
        json!({"actions": [{"do": "fly"}]}),
        json!({"actions": [{"do": "click", "att": {"x": 1, "y": 1}}]}),
        json!({"actions": [{"do": "move", "to": {"x": 1e99, "y": 1}}]}),
        json!({"actions": click, "more": 1}),
        json!({"actions": click, "screenshot": {"scale": 0}}),
        json!({"actions": click, "screenshot": {"scale": 2}}),
        json!({"actions": click, "screenshot": {"quality": 0}}),
        json!({"actions": click, "screenshot": {"max_width": 0}}),
        json!({"actions": click, "screenshot": {"size": {"width": 0, "height": 5}}}),
        json!({"actions": click, "screenshot": {"size": {"width": 5, "height": 5000}}}),
        json!({"actions": click, "screenshot": {"size": {"width": 5, "height": 5}, "scale": 0.5}}),
        json!({"actions": click, "screenshot": {"format": "gif"}}),
        json!({"actions": click, "settle": {"limit_ms": 999_999_999}}),
        json!({"actions": [click[0], {"do": "key", "keys": ["nonsense"]}]}),
    ] {
        let answer = parts.post("*/*", body.clone()).await;
        assert!((400..500).contains(&answer.status), "{body}: {}", answer.status);
    }
    assert_eq!(parts.input.pointer().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_display_is_a_503_when_nothing_was_done() {
    let mut display = TestDisplay::bare();
    display.kill();
    let answer = Parts::new(&display).post("*/*", json!({"actions": [{"do": "click"}]})).await;
    assert_eq!((answer.status, answer.json()["retry"].as_bool()), (503, Some(true)));
}
