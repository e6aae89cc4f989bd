//! Logs and traces, as a process of its own writes them: they are set up once per process.

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use tokio::sync::mpsc;

const CHILD: &str = "tests::traces::one_process";

/// Runs as the other process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by the test below"]
async fn one_process() {
    let telemetry = crate::telemetry::init(crate::telemetry::Format::Json, "hotdesk_gateway=debug").unwrap();
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let request = world.ask(Method::GET, &format!("/v1/desks/{}/screenshot", desk.id), &world.admin);
    let request = request.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(request.send().await.unwrap().status(), 200);
    world.get(&format!("/k/{}/v1/desks", world.admin)).await;
    eprintln!("desk {}", desk.id);
    eprintln!("secret {}", world.admin);
    world.end().await;
    telemetry.close().await;
}

#[tokio::test]
async fn logs_and_traces_name_the_desk_and_no_secret() {
    let (sender, mut came) = mpsc::unbounded_channel();
    let collector = Router::new().route(
        "/v1/traces",
        post(move |body: Bytes| {
            let _ = sender.send(body);
            async { Bytes::new() }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, collector).await });
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([CHILD, "--exact", "--ignored", "--nocapture"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .output();
    let output = tokio::time::timeout(PATIENCE * 2, output).await.expect("it ends").unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    let (desk, secret) = (line("desk "), line("secret "));
    let logged: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let answered = logged.iter().find(|line| line["spans"][0]["path"] == format!("/v1/desks/{desk}/screenshot"));
    let answered = answered.unwrap_or_else(|| panic!("no line of the request:\n{text}"));
    assert_eq!(answered["spans"][0]["desk"], desk, "{answered}");
    assert_eq!(text.matches(&secret).count(), 1, "the line of the test itself");

    let mut spans = Vec::new();
    while let Ok(body) = came.try_recv() {
        spans.extend_from_slice(&body);
    }
    let has = |what: &[u8]| spans.windows(what.len()).any(|window| window == what);
    assert!(has(b"hotdesk") && has(b"screenshot") && has(desk.as_bytes()), "{} bytes of traces", spans.len());
    assert!(has(&[0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd]), "below the client's own trace");
    assert!(!has(secret.as_bytes()));
}
