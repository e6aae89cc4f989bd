//! Terminals over WebSockets.

use super::*;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

/// Reads until something was shown.
async fn until(socket: &mut Socket, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        match socket.next().await {
            Some(Ok(Message::Binary(bytes))) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Some(Ok(Message::Text(event))) => text.push_str(&event),
            Some(Ok(_)) => {}
            other => panic!("{other:?} after {text}"),
        }
    }
    text
}

#[tokio::test]
async fn a_shell_is_used_left_and_come_back_to() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let opened = desk.post("/v1/terminals", json!({ "argv": ["sh"], "cols": 100, "rows": 40, "env": { "PS1": "$ " } })).await;
    assert_eq!(opened.status, 201);
    let id = opened.good()["id"].as_u64().unwrap();
    let path = format!("/v1/terminals/{id}/attach");
    let mut socket = served.socket(&path).await.unwrap();
    socket.send(Message::binary(b"stty size; echo $((1000+1))\n".to_vec())).await.unwrap();
    assert!(until(&mut socket, "1001").await.contains("40 100"));
    socket.send(Message::text(r#"{"do":"resize","cols":77,"rows":33}"#)).await.unwrap();
    socket.send(Message::text(r#"{"do":"resize","cols":0,"rows":33}"#)).await.unwrap();
    until(&mut socket, r#""event":"problem""#).await;
    let mut second = served.socket(&path).await.unwrap();
    second.send(Message::binary(b"stty size\n".to_vec())).await.unwrap();
    until(&mut socket, "33 77").await;
    let seen = until(&mut second, "33 77").await;
    assert!(seen.contains("1001"), "what was shown before: {seen}");
    drop(socket);
    desk.post(&format!("/v1/terminals/{id}/resize"), json!({ "cols": 50, "rows": 10 })).await.good();
    let info = desk.get(&format!("/v1/terminals/{id}")).await.good();
    assert_eq!((&info["cols"], &info["running"]), (&json!(50), &json!(true)));
    second.send(Message::binary(b"exit 3\n".to_vec())).await.unwrap();
    until(&mut second, r#"{"event":"exit","exit_code":3,"timed_out":false}"#).await;
    assert_eq!(desk.get("/v1/terminals").await.good()["terminals"][0]["exit"]["exit_code"], 3);
    desk.delete(&format!("/v1/terminals/{id}")).await.good();
    desk.delete(&format!("/v1/terminals/{id}")).await.problem(404, "not_found");
    assert!(served.socket(&path).await.is_err());
}

#[tokio::test]
async fn bad_requests_are_problems() {
    let desk = TestDesk::new().await;
    desk.post("/v1/terminals", json!({ "cols": 70000 })).await.problem(400, "invalid");
    desk.post("/v1/terminals", json!({ "argv": [] })).await.problem(400, "invalid");
    desk.post("/v1/terminals/1/resize", json!({ "cols": 80, "rows": 24 })).await.problem(404, "not_found");
    let id = desk.post("/v1/terminals", json!({ "argv": ["sleep", "300"] })).await.good()["id"].clone();
    // Not a WebSocket.
    assert_eq!(desk.get(&format!("/v1/terminals/{id}/attach")).await.status, 400);
    desk.delete(&format!("/v1/terminals/{id}")).await.good();
}

#[tokio::test]
async fn pages_of_other_sites_cannot_attach() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let id = desk.post("/v1/terminals", json!({ "argv": ["sleep", "300"] })).await.good()["id"].clone();
    let request = format!(
        "GET /v1/terminals/{id}/attach HTTP/1.1\r\nHost: {}\r\nOrigin: http://evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        served.address
    );
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 403");
    desk.delete(&format!("/v1/terminals/{id}")).await.good();
}
