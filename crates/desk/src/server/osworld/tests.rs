//! The dialect as clients see it. Nothing here needs a display; what needs one must say so and not
//! hang.

mod files;
mod hostile;
mod programs;

use super::{Engines, routes};
use crate::place::{Display, Place};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

const READS: [&str; 5] = ["/screenshot", "/accessibility", "/terminal", "/platform", "/cursor_position"];
const JSON: [&str; 13] = [
    "/execute",
    "/setup/execute",
    "/execute_with_verification",
    "/setup/execute_with_verification",
    "/setup/launch",
    "/list_directory",
    "/setup/change_wallpaper",
    "/setup/download_file",
    "/setup/open_file",
    "/setup/activate_window",
    "/setup/close_window",
    "/run_python",
    "/run_bash_script",
];
const OTHERS: [&str; 8] = [
    "/screen_size",
    "/window_size",
    "/desktop_path",
    "/wallpaper",
    "/file",
    "/setup/upload",
    "/start_recording",
    "/end_recording",
];

/// A desk without a display, in a home of its own.
struct Bench {
    home: tempfile::TempDir,
    engines: Engines,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json", "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    fn is_page(&self, status: StatusCode) -> bool {
        self.status == status
            && self.headers[header::CONTENT_TYPE] == "text/html; charset=utf-8"
            && self.text().starts_with("<!doctype")
    }
}

impl Bench {
    fn new() -> Self {
        Self::with_path("/usr/local/bin:/usr/bin:/bin")
    }

    fn with_path(path: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let variables = [("HOME", home.path().to_str().unwrap()), ("PATH", path), ("LANG", "C.UTF-8"), ("WORD", "value")];
        let place = Arc::new(Place {
            // No X server has such a number.
            display: Display { number: 65000, cookie: None },
            home: home.path().to_owned(),
            runtime_dir: home.path().to_owned(),
            bus: "unix:path=/nonexistent".into(),
            env: variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        });
        let engines = Engines {
            screen: crate::screen::Screen::new(place.clone()),
            input: crate::input::Input::new(place.clone()),
            access: crate::access::Access::new(place.clone()),
            windows: crate::windows::Windows::new(place.clone()),
            processes: crate::process::Processes::new(place.clone()),
            recorder: crate::recorder::Recorder::new(place.clone()),
            place,
        };
        Self { home, engines }
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let response = routes::<Engines>().with_state(self.engines.clone()).oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        Reply { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    async fn ask(&self, method: Method, path: &str) -> Reply {
        self.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
    }

    async fn raw(&self, path: &str, kind: &str, body: impl Into<Body>) -> Reply {
        let mut request = Request::post(path);
        if !kind.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn post(&self, path: &str, fields: Value) -> Reply {
        self.raw(path, "application/json", fields.to_string()).await
    }

    async fn upload(&self, form: &str) -> Reply {
        self.raw("/setup/upload", "multipart/form-data; boundary=B", form.to_owned()).await
    }

    async fn file(&self, path: &str) -> Reply {
        self.raw("/file", "application/x-www-form-urlencoded", format!("x=y&file_path={path}")).await
    }

    fn home(&self) -> &str {
        self.home.path().to_str().unwrap()
    }
}

#[tokio::test]
async fn methods_are_minded() {
    let bench = Bench::new();
    for path in READS {
        let reply = bench.ask(Method::POST, path).await;
        assert!(reply.is_page(StatusCode::METHOD_NOT_ALLOWED), "{path}");
        assert_eq!(reply.headers[header::ALLOW], "GET, HEAD, OPTIONS");
        let reply = bench.ask(Method::OPTIONS, path).await;
        assert_eq!((reply.status, &reply.headers[header::ALLOW]), (StatusCode::OK, &"GET, HEAD, OPTIONS".parse().unwrap()));
    }
    for path in JSON.iter().chain(&OTHERS) {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
            let reply = bench.ask(method, path).await;
            assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(reply.headers[header::ALLOW], "POST, OPTIONS");
        }
        let reply = bench.ask(Method::OPTIONS, path).await;
        assert_eq!((reply.status, &reply.headers[header::ALLOW]), (StatusCode::OK, &"POST, OPTIONS".parse().unwrap()));
    }
    assert_eq!(READS.len() + JSON.len() + OTHERS.len(), 26);
}

#[tokio::test]
async fn unknown_paths_get_a_page() {
    let bench = Bench::new();
    for path in
        ["/", "/nosuch", "/setup", "/setup/", "/Execute", "/execute/", "/screenshot/x", "/setup/screenshot", "/%ff", "/<b>"]
    {
        let Ok(request) = Request::get(path).body(Body::empty()) else { continue };
        let reply = bench.send(request).await;
        assert!(reply.is_page(StatusCode::NOT_FOUND), "{path}");
        assert!(!reply.text().contains("<b>"));
    }
}

#[tokio::test]
async fn json_routes_want_json() {
    let bench = Bench::new();
    for path in JSON {
        for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
            assert!(bench.raw(path, kind, "{}").await.is_page(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{path} {kind}");
        }
        for body in ["{bad", "", "{'a': 1}", "{\"a\": 1} x", "[]", "5", "null", "\"text\"", "{\"a\": \u{0}}"] {
            assert!(bench.raw(path, "application/json", body).await.is_page(StatusCode::BAD_REQUEST), "{path} {body}");
        }
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"] {
        let reply = bench.raw("/execute", kind, r#"{"command": ["echo", "x"]}"#).await;
        assert_eq!(reply.json()["output"], "x\n");
    }
}

#[tokio::test]
async fn a_desk_without_display_says_so() {
    let bench = Bench::new();
    let replies = [
        bench.ask(Method::GET, "/screenshot").await,
        bench.ask(Method::GET, "/cursor_position").await,
        bench.ask(Method::GET, "/accessibility").await,
        bench.ask(Method::GET, "/terminal").await,
        bench.ask(Method::POST, "/screen_size").await,
        bench.raw("/window_size", "application/x-www-form-urlencoded", "app_class_name=x").await,
        bench.post("/setup/activate_window", json!({"window_name": "x"})).await,
        bench.post("/setup/close_window", json!({"window_name": "x"})).await,
        bench.post("/execute", json!({"command": ["python", "-c", "import pyautogui; pyautogui.click(1, 2)"]})).await,
    ];
    for reply in replies {
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{}", reply.text());
        assert_eq!(reply.headers[header::RETRY_AFTER], "1");
        let value = reply.json();
        assert_eq!(value["status"], "error");
        assert!(value["message"].as_str().unwrap().contains("not available"), "{value}");
    }
}

#[tokio::test]
async fn small_routes_refuse_in_their_own_words() {
    let bench = Bench::new();
    for (path, fields, status, words) in [
        ("/setup/change_wallpaper", json!({}), 400, "Path not supplied!"),
        ("/setup/change_wallpaper", json!({"path": "/no/such.png"}), 404, "File not found: /no/such.png"),
        ("/setup/open_file", json!({"path": null}), 400, "Path not supplied!"),
        ("/setup/open_file", json!({"path": "~/none.txt"}), 404, "Application/file not found: ~/none.txt"),
        ("/setup/download_file", json!({"url": "http://x"}), 400, "Path or URL not supplied!"),
        ("/setup/activate_window", json!({"window_name": ""}), 400, "window_name required"),
        ("/setup/close_window", json!({"strict": true}), 400, "window_name required"),
    ] {
        let reply = bench.post(path, fields).await;
        assert_eq!((reply.status.as_u16(), reply.text()), (status, words), "{path}");
        assert_eq!(reply.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    }
    let reply = bench.ask(Method::POST, "/desktop_path").await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
    std::fs::create_dir(bench.home.path().join("Desktop")).unwrap();
    assert_eq!(
        bench.ask(Method::POST, "/desktop_path").await.json(),
        json!({"desktop_path": format!("{}/Desktop", bench.home())})
    );
    assert_eq!(bench.ask(Method::POST, "/window_size").await.json(), json!({"error": "app_class_name is required"}));
    assert_eq!(bench.ask(Method::GET, "/platform?x=1").await.text(), "Linux");
    assert_eq!(bench.ask(Method::POST, "/end_recording").await.json()["message"], "No recording in progress to stop.");
}
