//! What holds for every request.

use super::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn errors_of_the_native_api_are_problems() {
    let desk = TestDesk::new().await;
    desk.get("/v1/nothing").await.problem(404, "not_found");
    desk.get("/v1").await.problem(404, "not_found");
    let wrong = desk.ask(Request::patch("/v1/files").body(Body::empty()).unwrap()).await;
    wrong.problem(405, "method_not_allowed");
    assert_eq!(wrong.header("allow"), "GET,HEAD,DELETE");

    let plain = Request::post("/v1/files/mkdir").header("content-type", "text/plain").body("{}".into()).unwrap();
    desk.ask(plain).await.problem(415, "unsupported_media_type");
    let json = |body: &'static str| {
        Request::post("/v1/files/move").header("content-type", "application/json").body(body.into()).unwrap()
    };
    assert!(desk.ask(json("{")).await.problem(400, "invalid").contains("EOF"));
    assert!(desk.ask(json(r#"{"from": 1, "to": "x"}"#)).await.problem(400, "invalid").contains("from: invalid type"));
    assert!(desk.ask(json(r#"{"from": "a", "to": "x", "too": 1}"#)).await.problem(400, "invalid").contains("too: unknown field"));
    assert!(desk.ask(json("")).await.problem(400, "invalid").contains("EOF"));
    let large = format!(r#"{{"path": "{}"}}"#, "x".repeat(17 << 20));
    let large = Request::post("/v1/files/mkdir").header("content-type", "application/json").body(large.into()).unwrap();
    desk.ask(large).await.problem(413, "too_large");

    assert!(desk.get("/v1/files?depth=x").await.problem(400, "invalid").contains("depth"));
    assert!(desk.get("/v1/files?wrong=1").await.problem(400, "invalid").contains("wrong"));
    desk.get("/v1/processes/x").await.problem(400, "invalid");
    desk.get("/v1/processes/7").await.problem(404, "not_found");
}

#[tokio::test]
async fn paths_outside_of_v1_are_the_dialects() {
    let desk = TestDesk::new().await;
    for path in ["/nothing", "/v1x", "/"] {
        let answer = desk.get(path).await;
        assert_eq!(answer.status, 404);
        assert!(!answer.header("content-type").contains("problem"), "{path}");
    }
    assert_eq!(desk.get("/platform").await.text(), "Linux");
}

#[tokio::test]
async fn the_api_describes_itself() {
    let desk = TestDesk::new().await;
    let document = desk.get("/v1/openapi.json").await.good();
    assert!(document["paths"]["/v1/files/content"]["put"]["summary"].is_string());
    assert_eq!(document["openapi"].as_str().unwrap().split('.').next(), Some("3"));
}

#[tokio::test]
async fn a_panic_is_an_answer() {
    async fn broken() {
        panic!("this is part of the test")
    }
    let app = Router::new()
        .route("/", axum::routing::get(broken))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(crate::server::panicked));
    let response = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
}

#[tokio::test]
async fn the_network_needs_the_token_that_was_made() {
    let home = tempfile::tempdir().unwrap();
    let config = Config { listen: vec!["0.0.0.0:0".parse().unwrap()], ..config(home.path()) };
    let served = Served::new(desk(config, home.path()).await).await;
    let file = home.path().join(".run").join(crate::server::guard::TOKEN_FILE);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let port = served.address.port();
    let ask = async |path: &str, more: &str| {
        raw(port, &format!("GET {path} HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n{more}\r\n")).await
    };
    assert!(ask("/v1/files", "").await.starts_with("HTTP/1.1 401"));
    assert!(ask("/platform", "").await.starts_with("HTTP/1.1 401"));
    assert!(ask("/v1/files", "Authorization: Bearer nonsense\r\n").await.starts_with("HTTP/1.1 401"));
    assert!(ask("/v1/files", &format!("Authorization: Bearer {token}\r\n")).await.starts_with("HTTP/1.1 200"));
    assert!(ask(&format!("/v1/files?token={token}"), "").await.starts_with("HTTP/1.1 200"));
    assert!(ask("/platform", &format!("X-Hotdesk-Token: {token}\r\n")).await.ends_with("Linux"));
    let health = ask("/health", "").await;
    assert!(health.starts_with("HTTP/1.1 503") && health.contains(r#"{"ready":false,"#), "{health}");
    assert!(!health.contains("parts"), "{health}");
}

#[tokio::test]
async fn an_open_desk_asks_nobody() {
    let home = tempfile::tempdir().unwrap();
    let config = Config { listen: vec!["0.0.0.0:0".parse().unwrap()], open: true, ..config(home.path()) };
    let served = Served::new(desk(config, home.path()).await).await;
    let request = "GET /platform HTTP/1.1\r\nHost: desk\r\nOrigin: http://elsewhere\r\nConnection: close\r\n\r\n";
    assert!(raw(served.address.port(), request).await.ends_with("Linux"));
    assert!(!home.path().join(".run").exists(), "no token is made");
}

#[tokio::test]
async fn heads_are_bounded_and_garbage_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::new(desk(config(home.path()), home.path()).await).await;
    let port = served.address.port();
    let long = format!("GET /platform HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert!(raw(port, &long).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET /platform HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(200));
    assert!(raw(port, &many).await.starts_with("HTTP/1.1 431"));
    assert!(raw(port, "\0\u{1}nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let fine = "GET /platform HTTP/1.0\r\n\r\n";
    assert!(raw(port, fine).await.ends_with("Linux"));
}

#[tokio::test]
async fn connections_are_bounded_and_the_next_is_told() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::new(desk(config(home.path()), home.path()).await).await;
    let mut held = Vec::new();
    for _ in 0..crate::server::limits::CONNECTIONS {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    let answer = raw(served.address.port(), "").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("too_many"), "{answer}");
    drop(held);
    let mut answer = String::new();
    // The server sees the ends of the others in its own time.
    while !answer.ends_with("Linux") {
        answer = raw(served.address.port(), "GET /platform HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    }
}

#[tokio::test]
async fn stopping_lets_requests_end_and_cuts_off_those_that_do_not() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::new(desk(config(home.path()), home.path()).await).await;
    let run = |script: &str| {
        let body = json!({ "shell": script }).to_string();
        format!(
            "POST /v1/processes/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mark = home.path().join("mark");
    let port = served.address.port();
    let short = run(&format!("touch {}; sleep 0.3; echo done", mark.display()));
    let short = tokio::spawn(async move { raw(port, &short).await });
    let endless = run("sleep 600");
    let endless = tokio::spawn(async move { raw(port, &endless).await });
    let idle = TcpStream::connect(served.address).await.unwrap();
    while !mark.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    served.stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), served.running).await.expect("it stops in time").unwrap();
    assert!(short.await.unwrap().contains(r#""stdout":"done\n""#));
    assert_eq!(endless.await.unwrap(), "");
    assert!(TcpStream::connect(served.address).await.is_err());
    drop(idle);
}

#[tokio::test]
async fn a_unix_socket_needs_no_token() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("desk.sock");
    let config = Config { listen: vec![Address::Unix(path.clone())], ..config(home.path()) };
    let server = Server::bind(desk(config, home.path()).await).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone()));
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /platform HTTP/1.1\r\nHost: whatever\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("Linux"), "{answer}");
    stop.cancel();
    running.await.unwrap();
    assert!(!path.exists());
}

/// Sends bytes and reads until the server closes.
pub(super) async fn raw(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // A server that refuses before it has read all may reset the connection.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}
