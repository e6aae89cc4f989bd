//! Any port of the desk through its one address.

use super::{Served, TestDesk};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Asks for a tunnel and returns the answer's head with the connection behind it.
async fn tunnel(served: &Served, port: u16) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let ask = format!("GET /v1/ports/{port} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

#[tokio::test]
async fn bytes_go_both_ways_until_either_side_ends() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (head, mut outer) = tunnel(&served, listener.local_addr().unwrap().port()).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let (mut inner, _) = listener.accept().await.unwrap();
    outer.write_all(b"asked").await.unwrap();
    let mut asked = [0; 5];
    inner.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"asked");
    outer.shutdown().await.unwrap();
    assert_eq!(inner.read(&mut asked).await.unwrap(), 0, "the end of one direction is passed on");
    inner.write_all(b"answered").await.unwrap();
    drop(inner);
    let mut answered = Vec::new();
    outer.read_to_end(&mut answered).await.unwrap();
    assert_eq!(answered, b"answered");
    served.stop.cancel();
    served.running.await.unwrap();
}

#[tokio::test]
async fn what_listens_on_ipv6_is_found_too() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let Ok(listener) = TcpListener::bind("[::1]:0").await else { return };
    let (head, _outer) = tunnel(&served, listener.local_addr().unwrap().port()).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
}

#[tokio::test]
async fn a_port_where_nothing_listens_and_a_plain_request_are_problems() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (head, _) = tunnel(&served, free).await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    desk.get("/v1/ports/80").await.problem(400, "invalid");
    desk.get("/v1/ports/70000").await.problem(400, "invalid");
}

#[tokio::test]
async fn a_desk_without_a_display_shows_no_activity() {
    let activity = TestDesk::new().await.get("/v1/activity").await.good();
    assert_eq!(
        activity,
        serde_json::json!({"screen_changed": 0.0, "viewers": 0, "commands": 0, "recording": false, "driver": "agent"})
    );
}

#[tokio::test]
async fn what_listens_is_listed() {
    let desk = TestDesk::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let six = TcpListener::bind("[::1]:0").await.ok();
    let port = listener.local_addr().unwrap().port();
    // A connection has a port too, but does not listen there.
    let outer = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let listed = desk.get("/v1/ports").await.good()["ports"].as_array().unwrap().clone();
    let count = |port: u16, address: &str| {
        let entry = serde_json::json!({"port": port, "address": address});
        listed.iter().filter(|one| **one == entry).count()
    };
    assert_eq!(count(port, "127.0.0.1"), 1, "{listed:?}");
    assert_eq!(count(outer.local_addr().unwrap().port(), "127.0.0.1"), 0, "{listed:?}");
    if let Some(six) = six {
        assert_eq!(count(six.local_addr().unwrap().port(), "::1"), 1, "{listed:?}");
    }
    assert!(listed.iter().map(|one| one["port"].as_u64()).is_sorted());
}
