//! A server that plays the gateway: it has three desks, keeps what it is asked, and says what tests want to hear.

use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

/// What a desk looks like in a list.
pub(crate) fn desk(id: &str, name: Option<&str>, state: &str) -> Value {
    json!({
        "id": id, "name": name, "project": "default", "template": "base", "snapshot": null, "provider": "local",
        "state": state, "reason": "", "labels": {"team": "qa"}, "env": [],
        "resources": {"cpus": 2.0, "memory_mib": 4096, "disk_mib": 5120},
        "policy": {"auto_stop_s": 900, "auto_archive_s": 86400, "auto_delete_s": 0, "ttl_s": 0, "end_stops": false},
        "screen": {"width": 1920, "height": 1080}, "created_at": "2026-01-01T00:00:00Z",
        "changed_at": "2026-01-01T00:00:00Z", "expires_at": null, "idle_s": null, "busy": null, "cost": 0.0, "stage": null
    })
}

fn all() -> Vec<Value> {
    let mut desks = vec![
        desk("d-aaaaaaaaaaaa", Some("work"), "running"),
        desk("d-abbbbbbbbbbb", Some("evil\u{1b}[31m\u{202e}name"), "running"),
        desk("d-cccccccccccc", None, "error"),
    ];
    desks[0]["idle_s"] = json!(190);
    desks[0]["cost"] = json!(0.1234);
    desks[1]["busy"] = json!("screen changes");
    desks[2]["reason"] = json!("its X server did not start: no room in /dev/shm, and this goes on for quite a while longer");
    desks
}

pub(crate) fn problem(status: u16, code: &str, detail: &str, hint: Option<&str>) -> Response {
    let body = json!({"code": code, "status": status, "title": "No", "detail": detail, "hint": hint, "retry": false});
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::from_u16(status).unwrap(), kind, body.to_string()).into_response()
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

/// The server, in a thread of its own.
pub(crate) struct Gateway {
    url: String,
    seen: Seen,
    _runtime: tokio::runtime::Runtime,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let seen = Seen::default();
        let router = router().layer(axum::middleware::from_fn_with_state(seen.clone(), note)).with_state(seen.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(axum::serve(listener, router).into_future());
        Self { url, seen, _runtime: runtime }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = plain(arguments);
        command.env("HOTDESK_URL", &self.url).env("HOTDESK_KEY", "hd_good");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        shown(&self.command(arguments).output().unwrap()).replace(&self.url, "http://GATEWAY")
    }

    /// Requests that came, without those that only look.
    pub(crate) fn changes(&self) -> Vec<String> {
        self.seen.0.lock().unwrap().iter().filter(|line| !line.starts_with("GET")).cloned().collect()
    }
}

/// The binary, without what the tests' own environment says.
pub(crate) fn plain(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotdesk"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOTDESK_")) {
        command.env_remove(name);
    }
    command.args(arguments).env("HOTDESK_DATA", "/nowhere/hotdesk").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// A run as one text.
pub(crate) fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().map_or("a signal".into(), |code| code.to_string());
    format!("{}--- stderr\n{}--- ended with {code}\n", text(&output.stdout), text(&output.stderr))
}

async fn note(State(seen): State<Seen>, request: Request, next: axum::middleware::Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let line = format!("{} {} {}", parts.method, parts.uri, String::from_utf8_lossy(&body));
    seen.0.lock().unwrap().push(line.trim_end().to_owned());
    if parts.headers.get("authorization").is_none_or(|key| key != "Bearer hd_good") {
        return problem(401, "denied", "this needs a key", None);
    }
    next.run(Request::from_parts(parts, body.into())).await
}

fn router() -> Router<Seen> {
    Router::new()
        .route("/v1/desks", get(list).post(create))
        .route("/v1/desks/{id}", get(one).delete(remove))
        .route("/v1/desks/{id}/stop", post(stop))
        .route("/v1/desks/{id}/screenshot", get(|| async { ([(header::CONTENT_TYPE, "image/png")], "\u{89}PNG") }))
        .route("/v1/desks/{id}/console", get(|| async { "first\nsecond \x1b]0;title\x07\n" }))
        .route("/v1/keys", post(|| async {
            let key = json!({"id": "k-1", "name": "ci", "scope": {"kind": "admin"}, "created_at": "2026-01-01T00:00:00Z",
                "expires_at": null, "revoked_at": null, "last_used_at": null, "max_desks": null});
            Json(json!({"key": key, "secret": "hd_secret"}))
        }))
        .route("/v1/keys/{id}", delete(|| async { StatusCode::NO_CONTENT }))
        .route("/v1/pools", get(|| async {
            Json(json!({"pools": [{"template": "base", "provider": null, "min": 1, "max": 4, "resources": {}, "target": 2,
                "ready": 1, "filling": 1, "claims": 10, "misses": 2}]}))
        }))
        .route("/v1/costs", get(|| async {
            Json(json!({"currency": "USD", "total": 12.5, "today": 0.004, "by_project": {"ci": 12.5}, "by_day": {"2026-01-01": 12.5}}))
        }))
        .route("/v1/events", get(|| async {
            let event = |number: i64, kind: &str, state: Option<&str>| json!({"number": number, "at": "2026-01-01T10:00:00.123Z",
                "desk": "d-aaaaaaaaaaaa", "project": "default", "kind": kind, "state": state, "reason": "asked for", "by": "admin"});
            Json(json!({"events": [event(1, "state", Some("creating")), event(2, "stage", None), event(3, "state", Some("running"))]}))
        }))
}

async fn list(Query(query): Query<HashMap<String, String>>) -> Json<Value> {
    let mut desks = all();
    desks.retain(|desk| query.get("state").is_none_or(|state| desk["state"] == **state));
    Json(json!({ "desks": desks }))
}

async fn create(body: String) -> Response {
    if body.contains("full") {
        let mut answer = problem(429, "limit", "100 of 100 desks exist", None);
        answer.headers_mut().insert("retry-after", "30".parse().unwrap());
        return answer;
    }
    if body.contains("fails") {
        return problem(
            502,
            "failed",
            "desk `d-dddddddddddd` failed: its X server did not start",
            Some("`hotdesk logs d-dddddddddddd`"),
        );
    }
    (StatusCode::ACCEPTED, Json(desk("d-nnnnnnnnnnnn", Some("new"), "creating"))).into_response()
}

async fn one(State(seen): State<Seen>, Path(id): Path<String>) -> Response {
    if id == "d-nnnnnnnnnnnn" {
        // It takes a look or two until it runs.
        let looks = seen.0.lock().unwrap().iter().filter(|line| line.contains(&id)).count();
        let mut desk = desk(&id, Some("new"), if looks < 3 { "creating" } else { "running" });
        desk["stage"] = json!("starting the X server");
        return Json(desk).into_response();
    }
    match all().into_iter().find(|desk| desk["id"] == *id || desk["name"] == *id) {
        Some(desk) => Json(desk).into_response(),
        None => problem(404, "not_found", "there is no such desk", None),
    }
}

async fn remove(Path(id): Path<String>) -> Response {
    match id.as_str() {
        "d-cccccccccccc" => problem(409, "conflict", "it is being archived", Some("wait until that is over")),
        _ => Json(desk(&id, None, "deleted")).into_response(),
    }
}

async fn stop(Path(id): Path<String>) -> Json<Value> {
    Json(desk(&id, None, "stopped"))
}
