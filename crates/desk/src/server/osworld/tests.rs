//! The dialect as clients see it: transport, errors, programs and files. Nothing here needs a
//! display; what needs one must say so and not hang.

use super::{Engines, routes};
use crate::place::{Display, Place};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::Path;
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

fn part(name: &str, file: Option<&str>, content: &str) -> String {
    let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
    format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n")
}

fn form(parts: &[String]) -> String {
    parts.concat() + "--B--\r\n"
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

/// Whatever stands in a field: a clear answer, and no program that ran by accident.
#[tokio::test]
async fn fields_of_any_shape_are_answered() {
    let bench = Bench::new();
    let names =
        ["command", "path", "url", "code", "script", "working_dir", "timeout", "window_name", "verification", "max_wait_time"];
    let deep = json!([[[[{"a": [null]}]]]]);
    for path in JSON {
        for name in names {
            for value in
                [json!(5), json!(-1.5e300), json!(true), json!(["a", 5]), json!({"a": 1}), json!(null), deep.clone(), json!("\0")]
            {
                let mut fields = json!({"command": ["hotdesk-no-such-program"]});
                fields[name] = value.clone();
                if path == "/run_python" && name == "code" && value == "\0" {
                    // Some versions of Python take it for a program.
                    continue;
                }
                let reply = bench.post(path, fields.clone()).await;
                assert!(reply.status.as_u16() >= 400, "{path} {fields}: {} {}", reply.status, reply.text());
            }
        }
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
async fn programs_run_and_tell() {
    let bench = Bench::new();
    let run = async |fields: Value| {
        let reply = bench.post("/execute", fields).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        assert_eq!(reply.headers["x-hotdesk-engine"], "process");
        reply.json()
    };
    let done =
        |output: &str, error: &str, code: i32| json!({"status": "success", "output": output, "error": error, "returncode": code});
    assert_eq!(
        run(json!({"command": "printf '%s|' 'a b' ~/c $HOME"})).await,
        done(&format!("a b|{}/c|$HOME|", bench.home()), "", 0)
    );
    assert_eq!(run(json!({"command": "echo $WORD; echo e >&2; exit 7", "shell": "false"})).await, done("value\n", "e\n", 7));
    assert_eq!(run(json!({"command": ["echo $0-$1-$#", "a", "b", "c"], "shell": true})).await, done("a-b-2\n", "", 0));
    assert_eq!(run(json!({"command": ["sh", "-c", "kill -9 $$"]})).await, done("", "", -9));
    assert_eq!(run(json!({"command": ["printf", "a\\377b\\r\\nc\\r"]})).await, done("a\u{fffd}b\nc\n", "", 0));
    assert_eq!(run(json!({"shell": true})).await, done("", "", 0));
}

#[tokio::test]
async fn programs_that_cannot_run_are_told_the_python_way() {
    let bench = Bench::new();
    for (command, message) in [
        (json!(["it's missing"]), "[Errno 2] No such file or directory: \"it's missing\""),
        (json!("/tmp"), "[Errno 13] Permission denied: '/tmp'"),
        (json!([]), "list index out of range"),
        (json!(""), "list index out of range"),
        (json!(["a\0b"]), "embedded null byte"),
        (json!(["true", "x".repeat(200_000)]), "[Errno 7] Argument list too long: 'true'"),
    ] {
        for path in ["/execute", "/setup/execute", "/execute_with_verification", "/setup/launch"] {
            let reply = bench.post(path, json!({"command": command})).await;
            assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(reply.json(), json!({"status": "error", "message": message}));
        }
    }
    for path in ["/execute", "/setup/launch"] {
        assert!(bench.post(path, json!({"command": "echo 'a"})).await.is_page(StatusCode::INTERNAL_SERVER_ERROR));
    }
}

#[tokio::test]
async fn a_client_that_leaves_does_not_end_its_program() {
    let bench = Bench::new();
    let (begun, ended) = (bench.home.path().join("begun"), bench.home.path().join("ended"));
    let fields = json!({"command": "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo x; touch ended", "shell": true});
    let wait = async |path: &Path| {
        while !path.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        reply = bench.post("/execute", fields) => panic!("it ended early: {}", reply.text()),
        () = wait(&begun) => {}
    }
    std::fs::write(bench.home.path().join("go"), "").unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(20), wait(&ended)).await.expect("the program must go on");
}

#[tokio::test]
async fn verification_waits_for_its_condition() {
    let bench = Bench::new();
    let ask = async |more: Value| {
        let mut fields = json!({"command": "echo a", "max_wait_time": 20, "check_interval": 0.02});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bench.post("/execute_with_verification", fields).await
    };
    let reply =
        ask(json!({"verification": {"command_success": "[ -e two ] || { [ -e one ] && touch two; touch one; false; }"}})).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert_eq!(reply.json()["verification"], "passed");
    assert!(reply.json()["wait_time"].is_f64());
    assert!(bench.home.path().join("two").exists());

    let reply = ask(json!({"verification": {"command_success": "false"}, "max_wait_time": 0.1})).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json()["status"], "verification_failed");
    assert_eq!(reply.json()["wait_time"], 0.1);

    let reply = ask(json!({"verification": {"command_success": "true"}, "max_wait_time": -3})).await;
    assert_eq!(reply.json()["wait_time"], -3);
    assert_eq!(ask(json!({"verification": {"foo": 1}})).await.json()["verification"], "passed");
    assert!(ask(json!({"verification": null})).await.json().get("verification").is_none());
}

#[tokio::test]
async fn python_goes_the_way_that_its_header_names() {
    let bench = Bench::new();
    for (command, engine) in [
        (json!(["python3", "-c", "import time; print('a')"]), "native"),
        (json!(["python3", "-c", "import sys; sys.stdout.write('a\\n')"]), "python"),
        (json!(["sh", "-c", "echo a"]), "process"),
    ] {
        let reply = bench.post("/execute", json!({"command": command})).await;
        assert_eq!(reply.json(), json!({"status": "success", "output": "a\n", "error": "", "returncode": 0}));
        assert_eq!(reply.headers["x-hotdesk-engine"], engine, "{command}");
    }
}

#[tokio::test]
async fn without_python_the_rest_still_works() {
    let bench = Bench::with_path("/nonexistent");
    let reply = bench.post("/execute", json!({"command": ["python", "-c", "import time; print('a')"]})).await;
    assert_eq!((reply.status, reply.headers["x-hotdesk-engine"].to_str().unwrap()), (StatusCode::OK, "native"));
    let reply = bench.post("/execute", json!({"command": ["python", "-c", "import hashlib"]})).await;
    assert_eq!(reply.json()["message"], "[Errno 2] No such file or directory: 'python'");
    let reply = bench.post("/execute", json!({"command": "echo x", "shell": true})).await;
    assert_eq!(reply.json()["output"], "x\n");
}

#[tokio::test]
async fn python_scripts_answer_in_their_own_shape() {
    let bench = Bench::new();
    let run = async |code: &str| bench.post("/run_python", json!({"code": code})).await.json();
    assert_eq!(
        run("import sys; print('o'); sys.exit(3)").await,
        json!({
            "status": "error", "message": "o\n\nProcess exited with code 3", "need_more": false,
            "output": "o\n", "error": "Process exited with code 3", "return_code": 3,
        })
    );
    let value = run("import os; print(__file__, os.path.exists(__file__)); 1/0").await;
    let (path, there) = value["output"].as_str().unwrap().trim().split_once(' ').unwrap();
    assert!(path.starts_with("/tmp/python_exec_") && path.len() == 52 && there == "True" && !Path::new(path).exists(), "{value}");
    assert!(value["error"].as_str().unwrap().ends_with("ZeroDivisionError: division by zero\n"));
    let reply = bench.post("/run_python", json!({"code": ""})).await;
    assert_eq!(
        (reply.status, reply.json()),
        (StatusCode::BAD_REQUEST, json!({"status": "error", "message": "Code not supplied!"}))
    );
}

#[tokio::test]
async fn bash_scripts_run_once_and_answer() {
    let bench = Bench::new();
    let run = async |fields: Value| bench.post("/run_bash_script", fields).await;
    let reply = run(json!({"script": "echo x >> log; echo out; echo err >&2; stat -c %a $0; head -n 1 $0; exit 5"})).await;
    let output = "out\nerr\n755\n#!/bin/bash\n";
    assert_eq!(
        (reply.status, reply.json()),
        (StatusCode::OK, json!({"status": "error", "output": output, "error": "", "returncode": 5}))
    );
    assert_eq!(std::fs::read_to_string(bench.home.path().join("log")).unwrap(), "x\n");
    std::fs::create_dir(bench.home.path().join("d")).unwrap();
    assert_eq!(run(json!({"script": "pwd", "working_dir": "~/d"})).await.json()["output"], format!("{}/d\n", bench.home()));

    let reply = run(json!({"script": "exec sleep 30", "timeout": 0.2})).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json()["output"], "Script execution timed out after 0.2 seconds");
    let reply = run(json!({"script": "pwd", "working_dir": "/no/such"})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.json()["output"], "Working directory does not exist: /no/such");
    assert_eq!(run(json!({})).await.json()["output"], "Script not supplied!");
}

#[tokio::test]
async fn files_come_and_go() {
    let bench = Bench::new();
    let data = "line\r\nline\n--B--no\0";
    let path = part("file_path", None, "~/new dir/$WORD.bin");
    let file = part("file_data", Some("x"), data);
    for parts in [[path.clone(), file.clone()], [file.clone(), path.clone()]] {
        let reply = bench.upload(&form(&parts)).await;
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, &*format!("File Uploaded: {} bytes", data.len())));
        let reply = bench.file("%24HOME/new+dir/value.bin").await;
        assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, data.as_bytes()));
        assert_eq!(reply.headers[header::CONTENT_DISPOSITION], "attachment; filename=value.bin");
        assert_eq!(reply.headers[header::CONTENT_LENGTH], data.len().to_string());
    }
    let left: Vec<_> = std::fs::read_dir(bench.home.path().join("new dir")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["value.bin"]);

    let request = Request::post("/file")
        .header(header::RANGE, "bytes=2-3")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let reply = bench.send(request.body("file_path=new dir/value.bin".into()).unwrap()).await;
    assert_eq!((reply.status, &reply.body[..]), (StatusCode::PARTIAL_CONTENT, &b"ne"[..]));
    assert_eq!(reply.headers[header::CONTENT_RANGE], format!("bytes 2-3/{}", data.len()));
}

#[tokio::test]
async fn uploads_keep_links_and_modes() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let bench = Bench::new();
    let home = bench.home.path();
    std::fs::write(home.join("real"), "old and longer").unwrap();
    std::fs::set_permissions(home.join("real"), PermissionsExt::from_mode(0o750)).unwrap();
    symlink("real", home.join("link")).unwrap();
    symlink("made", home.join("dangling")).unwrap();
    for name in ["link", "dangling"] {
        let reply = bench.upload(&form(&[part("file_path", None, name), part("file_data", Some("x"), "new")])).await;
        assert_eq!(reply.text(), "File Uploaded: 3 bytes");
        assert!(home.join(name).is_symlink());
    }
    assert_eq!(std::fs::read_to_string(home.join("real")).unwrap(), "new");
    assert_eq!(std::fs::metadata(home.join("real")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(std::fs::read_to_string(home.join("made")).unwrap(), "new");
}

#[tokio::test]
async fn bad_uploads_leave_nothing() {
    let bench = Bench::new();
    let (path, file) = (part("file_path", None, "target"), part("file_data", Some("x"), "data"));
    let required = json!({"error": "file_path and file_data are required"});
    for parts in [vec![], vec![path.clone()], vec![file.clone()], vec![path.clone(), part("file_data", None, "a field")]] {
        let reply = bench.upload(&form(&parts)).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, required.clone()));
    }
    assert_eq!(bench.raw("/setup/upload", "text/plain", "x").await.json(), required);
    // Cut off in the middle of the file.
    let whole = form(&[path.clone(), file]);
    let reply = bench.upload(&whole[..whole.len() - 12]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let reply = bench.upload(&form(&[part("file_path", None, &"x".repeat(100_000)), part("file_data", Some("x"), "y")])).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(std::fs::read_dir(bench.home.path()).unwrap().count(), 0);

    let directory = bench.home();
    let reply = bench.upload(&form(&[part("file_path", None, directory), part("file_data", Some("x"), "y")])).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json(), json!({"error": format!("Failed to upload file: [Errno 21] Is a directory: '{directory}'")}));
}

#[tokio::test]
async fn missing_files_are_told_apart() {
    let bench = Bench::new();
    for path in ["/no/such", "", "~/none", "%00", &"x".repeat(10_000)] {
        let reply = bench.file(path).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::NOT_FOUND, json!({"error": "File not found"})), "{path}");
    }
    let reply = bench.file(bench.home()).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json(), json!({"error": format!("Failed to serve file: [Errno 21] Is a directory: '{}'", bench.home())}));
    for (kind, body) in
        [("", ""), ("application/json", r#"{"file_path": "/etc/passwd"}"#), ("application/x-www-form-urlencoded", "x=y")]
    {
        let reply = bench.raw("/file", kind, body).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, json!({"error": "file_path is required"})));
    }
    nix::unistd::mkfifo(&bench.home.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(bench.file("pipe").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let reply = bench.file("/proc/self/status").await;
    assert!(reply.status == StatusCode::OK && reply.text().starts_with("Name:"));
}

#[tokio::test]
async fn directories_are_listed_without_going_round() {
    use std::os::unix::fs::symlink;
    let bench = Bench::new();
    let home = bench.home.path();
    std::fs::create_dir_all(home.join("d/sub \"q\"")).unwrap();
    symlink("..", home.join("d/sub \"q\"/up")).unwrap();
    symlink("nowhere", home.join("d/dangling")).unwrap();
    let reply = bench.post("/list_directory", json!({"path": "d"})).await;
    let tree = reply.json()["directory_tree"].clone();
    assert_eq!((tree["type"].as_str(), tree["name"].as_str()), (Some("directory"), Some("d")));
    let children = tree["children"].as_array().unwrap();
    let up = json!({"type": "directory", "name": "up", "children": []});
    assert!(children.contains(&json!({"type": "directory", "name": "sub \"q\"", "children": [up]})), "{tree}");
    assert!(children.contains(&json!({"type": "file", "name": "dangling"})));

    let mut deep = home.join("deep");
    for _ in 0..400 {
        deep.push("x");
    }
    std::fs::create_dir_all(deep).unwrap();
    assert_eq!(bench.post("/list_directory", json!({"path": "deep/"})).await.status, StatusCode::OK);
    for path in ["~", "", "/no/such", "$HOME", "d/dangling", "a\0b"] {
        let reply = bench.post("/list_directory", json!({"path": path})).await;
        assert_eq!(
            (reply.status, reply.json()),
            (StatusCode::BAD_REQUEST, json!({"error": "The provided path is not a directory"}))
        );
    }
    assert_eq!(bench.post("/list_directory", json!({})).await.json(), json!({"error": "Missing 'path' parameter"}));
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

#[tokio::test]
async fn downloads_are_tried_three_times() {
    let bench = Bench::new();
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = tries.clone();
    let app = axum::Router::new().route("/ok", axum::routing::get(async || "content")).route(
        "/third",
        axum::routing::get(async move || match counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            2 => Ok("at last"),
            _ => Err(StatusCode::SERVICE_UNAVAILABLE),
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (what, words) in [("/ok", "File downloaded successfully: 7 bytes"), ("/third", "File downloaded successfully: 7 bytes")] {
        let reply = bench.post("/setup/download_file", json!({"url": address.clone() + what, "path": "~/new/f"})).await;
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, words));
    }
    assert_eq!(std::fs::read_to_string(bench.home.path().join("new/f")).unwrap(), "at last");
    for url in [address + "/none", "http://127.0.0.1:9/x".into(), "nonsense".into()] {
        let reply = bench.post("/setup/download_file", json!({"url": url, "path": "gone"})).await;
        assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(reply.text().starts_with(&format!("Failed to download {url}. No retries left. Error: ")), "{}", reply.text());
    }
    assert!(!bench.home.path().join("gone").exists());
}
