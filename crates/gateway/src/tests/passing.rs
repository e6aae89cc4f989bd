//! Requests on their way through the gateway to a desk.

use super::*;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn a_desk_sees_the_request_and_never_the_key() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let (id, key) = (&desk.id, &world.admin);
    let base = format!("{}/v1/desks/{id}/any/thing%2Felse", world.url);
    let client = &world.client;
    for request in [
        client.put(format!("{base}?a=1&b=%20")).bearer_auth(key),
        client.put(format!("{base}?a=1&b=%20")).header("x-api-key", key),
        client.put(format!("{base}?key={key}&a=1&b=%20")),
        client.put(format!("{}/k/{key}/v1/desks/{id}/any/thing%2Felse?a=1&b=%20", world.url)),
    ] {
        let request = request
            .header("cookie", format!("x={key}"))
            .header("referer", format!("http://h/k/{key}/"))
            .header("x-forwarded-for", "6.6.6.6")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("x-mine", "2")
            .body("hello");
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["method"], "PUT");
        assert_eq!(answer["path"], "/v1/any/thing%2Felse?a=1&b=%20");
        assert_eq!(answer["body"], "hello");
        let headers = &answer["headers"];
        assert_eq!((&headers["x-mine"], &headers["x-forwarded-for"]), (&json!("2"), &json!("127.0.0.1")));
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert!(headers.get("x-hop").is_none() && headers.get("referer").is_none());
        assert!(!answer.to_string().contains(key.as_str()), "{answer}");
    }
    let answer: Value = world.get(&format!("/osworld/{id}/cursor_position?x")).await.json().await.unwrap();
    assert_eq!(answer["path"], "/cursor_position?x");
    world.end().await;
}

#[tokio::test]
async fn a_desk_is_known_by_its_name_too() {
    let world = World::new().await;
    let (_, _) = world.desk_with(json!({"name": "mine"})).await;
    let answer: Value = world.get("/v1/desks/mine/x").await.json().await.unwrap();
    assert_eq!(answer["path"], "/v1/x");
    assert_eq!(world.get("/v1/desks/other/x").await.status(), 404);
    world.end().await;
}

#[tokio::test]
async fn answers_pass_as_they_are_and_verbs_of_the_fleet_win() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let response = world.get(&format!("/v1/desks/{}/status/404", desk.id)).await;
    assert_eq!(response.status(), 404);
    assert_eq!(response.text().await.unwrap(), "as you wish", "a desk's own error is not made a problem");
    let response = world.get(&format!("/v1/desks/{}/stop", desk.id)).await;
    assert_eq!(response.status(), 405);
    assert_eq!(response.headers()["allow"], "POST");
    let head = world.ask(Method::HEAD, &format!("/v1/desks/{}/screenshot", desk.id), &world.admin).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], (300 << 10).to_string());
    world.end().await;
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = reqwest::Body::wrap_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let asked = world.ask(Method::POST, &format!("/v1/desks/{}/back", desk.id), &world.admin).body(body).send();
    sender.send(Ok(Bytes::from_static(b"first"))).await.unwrap();
    let mut answer = tokio::time::timeout(PATIENCE, asked).await.expect("an answer before the request is over").unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "first");
    sender.send(Ok(Bytes::from_static(b"second"))).await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "second");
    drop(sender);
    assert_eq!(answer.chunk().await.unwrap(), None);
    world.end().await;
}

#[tokio::test]
async fn connections_to_a_desk_are_used_again() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let path = format!("/v1/desks/{}/screenshot", desk.id);
    let before = fake.state.connections.load(Ordering::SeqCst);
    for _ in 0..50 {
        assert_eq!(world.get(&path).await.bytes().await.unwrap().len(), 300 << 10);
    }
    // One of ours; the fleet's own looks make some.
    let made = fake.state.connections.load(Ordering::SeqCst) - before;
    assert!(made < 10, "{made} connections for 50 pictures");
    world.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_the_request_with_it() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let waiting = || fake.state.waiting.load(Ordering::SeqCst);
    for path in ["slow", "stream"] {
        let request = world.ask(Method::GET, &format!("/v1/desks/{}/{path}", desk.id), &world.admin);
        let asked = tokio::spawn(async move {
            let mut response = request.send().await.unwrap();
            while let Some(part) = response.chunk().await.unwrap() {
                assert!(part.starts_with(b"part"));
            }
        });
        until("the desk has it", async || waiting() == 1).await;
        asked.abort();
        until("the desk is told", async || waiting() == 0).await;
    }
    world.end().await;
}

#[tokio::test]
async fn a_desk_that_dies_ends_the_answer() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let mut response = world.get(&format!("/v1/desks/{}/stream", desk.id)).await;
    assert_eq!(response.chunk().await.unwrap().unwrap(), "part 0\n");
    fake.stop();
    assert!(response.chunk().await.is_err(), "an answer that was cut off must not look whole");
    world.end().await;
}

#[tokio::test]
async fn an_action_is_never_sent_twice_and_reading_is_when_it_helps() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let path = format!("/v1/desks/{}/break", desk.id);
    let count = || fake.state.count.load(Ordering::SeqCst);
    let breaks = |n| fake.state.breaks.store(n, Ordering::SeqCst);
    let ask = async |method: Method| world.ask(method, &path, &world.admin).send().await.unwrap();
    // A kept connection.
    assert_eq!(ask(Method::GET).await.text().await.unwrap(), "whole");
    breaks(1);
    assert_eq!(ask(Method::GET).await.status(), 200, "sent again on a new connection");
    assert_eq!(count(), 3);
    breaks(2);
    let refused = problem(ask(Method::GET).await).await;
    assert_eq!((refused.status, refused.retry), (503, true), "only once");
    assert_eq!(count(), 5);

    assert_eq!(ask(Method::GET).await.status(), 200);
    let before = count();
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        breaks(1);
        let refused = problem(ask(method.clone()).await).await;
        assert_eq!((refused.status, refused.retry), (502, false), "{method}");
        assert!(refused.detail.contains("may have been done"), "{}", refused.detail);
        ask(Method::GET).await;
    }
    assert_eq!(count(), before + 6, "each once, and the three that read between");
    world.end().await;
}

#[tokio::test]
async fn a_desk_that_does_not_run_says_so_and_what_to_do() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let path = format!("/v1/desks/{}/screenshot", desk.id);
    // Dead, and nobody knows it yet.
    fake.stop();
    until("its connections are gone", async || fake.state.open.load(Ordering::SeqCst) == 0).await;
    let refused = problem(world.get(&path).await).await;
    assert_eq!((refused.status, refused.retry), (503, true), "{}", refused.detail);

    let stopped = world.post(&format!("/v1/desks/{}/stop", desk.id), json!({})).await;
    assert_eq!(stopped.status(), 200, "{}", stopped.text().await.unwrap());
    let refused = problem(world.get(&path).await).await;
    assert_eq!((refused.status, refused.code.as_str(), refused.retry), (503, "not_running", false));
    assert!(refused.detail.contains("`stopped`") && refused.hint.unwrap().contains("/start"), "{}", refused.detail);

    assert_eq!(world.post(&format!("/v1/desks/{}/start", desk.id), json!({})).await.status(), 200);
    assert_eq!(world.get(&path).await.status(), 200);
    world.delete(&format!("/v1/desks/{}", desk.id)).await;
    assert!([404, 503].contains(&world.get(&path).await.status().as_u16()));
    world.end().await;
}

#[tokio::test]
async fn web_sockets_pass_and_end_with_either_side() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let open = || fake.state.open.load(Ordering::SeqCst);
    let url = format!("{}/v1/desks/{}/view?key={}", world.url.replace("http", "ws"), desk.id, world.admin);
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    for size in [1, 1000, 1 << 20] {
        let message = Message::binary(vec![7; size]);
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    let desk_now = world.fleet.desk(&crate::metrics::internal(), &desk.id).await.unwrap();
    assert_eq!(desk_now.busy.as_deref(), Some("live view"));
    // The client leaves without a word.
    drop(socket);
    until("the desk is told", async || open() == 0).await;

    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    fake.stop();
    let end = tokio::time::timeout(PATIENCE, socket.next()).await.expect("the client is told");
    assert!(end.is_none_or(|message| message.is_err()), "no closing handshake came");
    let refused = tokio_tungstenite::connect_async(url.replace(&world.admin, "hd_wrong")).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    world.end().await;
}

#[tokio::test]
async fn a_tunnel_ends_when_its_key_is_revoked() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let made = world.key("viewer", Scope::Desk { desk: desk.id.clone() }, 0).await;
    let url = format!("{}/k/{}/v1/desks/{}/view", world.url.replace("http", "ws"), made.secret, desk.id);
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    assert_eq!(world.delete(&format!("/v1/keys/{}", made.key.id)).await.status(), 204);
    let end = tokio::time::timeout(PATIENCE, socket.next()).await.expect("the tunnel ends");
    assert!(end.is_none_or(|message| message.is_err()));
    world.end().await;
}

#[tokio::test]
async fn an_answer_ends_when_its_key_is_revoked() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let made = world.key("viewer", Scope::Desk { desk: desk.id.clone() }, 0).await;
    let ask = |path: &str| world.ask(Method::GET, &format!("/v1/desks/{}/{path}", desk.id), &made.secret);
    let mut begun = ask("stream").send().await.unwrap();
    assert_eq!(begun.chunk().await.unwrap().unwrap(), "part 0\n");
    let waiting = tokio::spawn(ask("slow").send());
    until("both are under way", async || fake.state.waiting.load(Ordering::SeqCst) == 2).await;
    assert_eq!(world.delete(&format!("/v1/keys/{}", made.key.id)).await.status(), 204);
    let end = tokio::time::timeout(PATIENCE, begun.chunk()).await.expect("the answer ends");
    assert!(end.is_err(), "and is not taken for whole: {end:?}");
    assert_eq!(problem(waiting.await.unwrap().unwrap()).await.status, 403);
    until("the desk is told", async || fake.state.waiting.load(Ordering::SeqCst) == 0).await;
    world.end().await;
}

#[tokio::test]
async fn a_long_request_makes_a_desk_busy() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let request = world.ask(Method::POST, &format!("/v1/desks/{}/slow", desk.id), &world.admin);
    let asked = tokio::spawn(request.send());
    let busy = async || world.fleet.desk(&crate::metrics::internal(), &desk.id).await.unwrap().busy;
    until("the desk counts as busy", async || busy().await.as_deref() == Some("request")).await;
    fake.state.go.notify_one();
    assert_eq!(asked.await.unwrap().unwrap().text().await.unwrap(), "at last");
    until("and not for ever", async || busy().await.as_deref() != Some("request")).await;
    world.end().await;
}

#[tokio::test]
async fn a_raw_tunnel_carries_bytes_and_ends_of_either_side() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        stream.write_all(format!("you said {heard}").as_bytes()).await.unwrap();
    });
    let mut stream = tokio::net::TcpStream::connect(world.url.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "GET /v1/desks/{}/ports/{port} HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nconnection: upgrade\r\nupgrade: tcp\r\n\r\n",
        desk.id, world.admin
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"question").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "you said question");
    server.await.unwrap();
    world.end().await;
}
