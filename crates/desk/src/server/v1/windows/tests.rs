//! The routes, over HTTP and against a real display.

use super::*;
use crate::x11::tests::TestDisplay;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

async fn send(windows: &Windows, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let (router, _) = router_of::<Windows>().with_state(windows.clone()).split_for_parts();
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body.map_or(Body::empty(), |body| Body::from(body.to_string()))).unwrap();
    let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (parts.status.as_u16(), serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_waited_for_found_changed_and_closed() {
    let display = TestDisplay::managed();
    let windows = Windows::new(display.place.clone());
    let _program = display.start("zenity", &["--info", "--text", "x", "--title", "Route window"]);
    let wanted = json!({"title": "route WINDOW", "class": "zenity", "limit_ms": 30000});
    let (status, found) = send(&windows, "POST", "/v1/windows/wait", Some(wanted)).await;
    assert_eq!(status, 200, "{found}");
    let id = found["window"]["id"].as_u64().unwrap();

    let (_, list) = send(&windows, "GET", "/v1/windows", None).await;
    assert_eq!(list["windows"][0]["id"], id);
    let (status, one) = send(&windows, "GET", &format!("/v1/windows/{id:#x}"), None).await;
    assert_eq!((status, &one["class"]), (200, &json!("Zenity")));
    for change in ["activate", "minimize", "restore"] {
        let (status, answer) = send(&windows, "POST", &format!("/v1/windows/{id}/{change}"), None).await;
        assert_eq!((status, &answer["window"]["id"]), (200, &json!(id)), "{change}: {answer}");
    }
    let (status, _) = send(&windows, "PUT", &format!("/v1/windows/{id}/area"), Some(json!({"x": 50, "y": 60}))).await;
    assert_eq!(status, 200);
    let (status, _) = send(&windows, "POST", &format!("/v1/windows/{id}/close"), None).await;
    assert_eq!(status, 200);
    let gone = json!({"title": "route window", "gone": true, "limit_ms": 30000});
    let (status, answer) = send(&windows, "POST", "/v1/windows/wait", Some(gone)).await;
    assert_eq!((status, &answer["window"]), (200, &Value::Null));

    for (method, path, body, expected) in [
        ("GET", format!("/v1/windows/{id}"), None, 404),
        ("POST", format!("/v1/windows/{id}/activate"), None, 404),
        ("POST", format!("/v1/windows/{id}/explode"), None, 400),
        ("PUT", format!("/v1/windows/{id}/area"), Some(json!({"x": 1})), 404),
        ("PUT", "/v1/windows/1/area".into(), Some(json!({"width": 0})), 400),
        ("PUT", "/v1/windows/1/area".into(), Some(json!({"depth": 1})), 422),
        ("GET", "/v1/windows/nonsense".into(), None, 400),
        ("GET", "/v1/windows/0xfffffffff".into(), None, 400),
        ("POST", "/v1/windows/wait".into(), Some(json!({})), 400),
        ("POST", "/v1/windows/wait".into(), Some(json!({"title": "x", "limit_ms": 4_000_000_000u32})), 400),
        ("POST", "/v1/windows/wait".into(), Some(json!({"title": "none", "limit_ms": 1})), 504),
    ] {
        let (status, answer) = send(&windows, method, &path, body).await;
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
}
