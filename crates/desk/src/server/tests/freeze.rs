//! Everybody is sent away, and a copy becomes another desk.

use super::{Served, TestDesk};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One request on a connection of its own; all of the answer until the other side closes it, and what it asked for.
async fn ask(served: &Served, method: &str, path: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    send(&mut stream, method, path, token, body).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn send(stream: &mut TcpStream, method: &str, path: &str, token: &str, body: &str) {
    let close = if path == "/v1/freeze" { "" } else { "Connection: close\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{close}Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn everybody_is_sent_away_and_a_request_under_way_may_end() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    // One that does nothing, one that became a tunnel, one whose request takes a moment.
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    idle.write_all(b"GET /v1/processes HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    while idle.read_u8().await.unwrap() != b'{' {}
    let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut tunnel, mut behind) = {
        let mut tunnel = TcpStream::connect(served.address).await.unwrap();
        let port = inner.local_addr().unwrap().port();
        let ask = format!("GET /v1/ports/{port} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
        tunnel.write_all(ask.as_bytes()).await.unwrap();
        (tunnel, inner.accept().await.unwrap().0)
    };
    let file = desk.path("begun");
    let mut busy = TcpStream::connect(served.address).await.unwrap();
    let command = json!({"shell": format!("touch {}; sleep 0.1; echo done", file.display())}).to_string();
    send(&mut busy, "POST", "/v1/processes/run", "", &command).await;
    while !file.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }

    let answer = ask(&served, "POST", "/v1/freeze", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"cut":1}"#), "{answer}");
    let mut rest = String::new();
    busy.read_to_string(&mut rest).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 200") && rest.contains("done"), "{rest}");
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    tunnel.read_to_end(&mut rest).await.unwrap();
    behind.read_to_end(&mut rest).await.unwrap();
    // Whoever comes later is served.
    assert!(ask(&served, "GET", "/v1/processes", "", "").await.starts_with("HTTP/1.1 200"));
    served.stop.cancel();
    served.running.await.unwrap();
}

#[tokio::test]
async fn a_copy_has_its_own_token_and_variables() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    for (body, status) in
        [(r#"{"token": "two words"}"#, "400"), (r#"{"tokens": "x"}"#, "400"), (r#"{"vnc_password": ""}"#, "400")]
    {
        let answer = ask(&served, "POST", "/v1/thaw", "", body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    let body = r#"{"token": "another", "vnc_password": "secret", "env": {"HOTDESK_TEST_COPY": "yes"}}"#;
    let answer = ask(&served, "POST", "/v1/thaw", "", body).await;
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(ask(&served, "GET", "/v1/processes", "", "").await.starts_with("HTTP/1.1 401"));
    let command = json!({"shell": "echo is $HOTDESK_TEST_COPY"}).to_string();
    let answer = ask(&served, "POST", "/v1/processes/run", "another", &command).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("is yes"), "{answer}");
    assert!(desk.desk.view.password().is_some());
}

#[tokio::test]
async fn a_copy_runs_its_entrypoint_once() {
    let desk = TestDesk::new().await;
    for command in ["echo $((6 * 7))", "echo again"] {
        let thaw = json!({"env": {"HOTDESK_ENTRYPOINT": command}});
        assert_eq!(desk.post("/v1/thaw", thaw).await.status, 204);
        desk.desk.shells.get("entrypoint").unwrap().command(1).unwrap().wait().await;
        let output = desk.get("/v1/shells/entrypoint/commands/1/output").await.text();
        assert!(output.contains("42") && !output.contains("again"), "{output}");
    }
    let seen = desk.post("/v1/processes/run", json!({"shell": "env | grep -c HOTDESK_ENTRYPOINT"})).await.good();
    assert_eq!(seen["stdout"], "0\n");
}
