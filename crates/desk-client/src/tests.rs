//! The client against servers that answer byte by byte, too much, too late, or not at all.

use crate::{Client, Connect, Direct, Error, blocking, enter_port, headers};
use hotdesk_api::freeze::Thaw;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A desk at an address.
struct At(SocketAddr);

impl Connect for At {
    type Stream = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect(self.0).await
    }

    fn open(&self, headers: &mut HeaderMap) {
        headers::open(headers, Some("secret"));
    }
}

/// A server that does this with its first connection, after it has read a request, which it gives back.
async fn server<F>(answer: impl FnOnce(TcpStream) -> F + Send + 'static) -> (Client<Direct<At>>, JoinHandle<String>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(Direct(At(listener.local_addr().unwrap())));
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = Vec::new();
        while !is_whole(&request) {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request ended early");
        }
        answer(stream).await;
        String::from_utf8(request).unwrap()
    });
    (client, served)
}

/// A server that sends these bytes, so many at a time, and closes.
async fn saying(answer: impl Into<Vec<u8>>, size: usize) -> (Client<Direct<At>>, JoinHandle<String>) {
    let answer = answer.into();
    server(async move |mut stream| {
        for piece in answer.chunks(size) {
            // Whoever has enough closes.
            if stream.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn good(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn requests_carry_what_a_desk_asks_for() {
    let (client, served) = saying(good("{\"a\":1}"), 100).await;
    let answer: Value = client.entrance("here").post("/v1/x?path=a%20b", &json!({"b": 2})).await.unwrap();
    assert_eq!(answer, json!({"a": 1}));
    let request = served.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!((lines.remove(0), body), ("POST /v1/x?path=a%20b HTTP/1.1", r#"{"b":2}"#));
    lines.sort_unstable();
    let expected = [
        "authorization: Bearer secret",
        "connection: close",
        "content-length: 7",
        "content-type: application/json",
        "host: desk",
        "x-hotdesk-entrance: here",
    ];
    assert_eq!(lines, expected);
    let (client, served) = saying("HTTP/1.1 204 No Content\r\n\r\n", 100).await;
    client.tell(Method::DELETE, "/v1/x", &()).await.unwrap();
    assert!(!served.await.unwrap().contains("content-type"), "there is no body");
    let unwritable = client.get::<Value>("/a b").await.unwrap_err();
    assert!(matches!(unwritable, Error::InvalidRequest(_)), "{unwritable}");
}

#[tokio::test]
async fn answers_come_whole_however_they_are_cut() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
    let until_closed = "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}";
    for answer in [&*good("{\"a\":1}"), chunked, until_closed] {
        for size in [1, 2, 3, 7, 1000] {
            let (client, _served) = saying(answer, size).await;
            assert_eq!(client.get::<Value>("/v1/x").await.unwrap(), json!({"a": 1}), "{answer:?} in pieces of {size}");
        }
    }
    let (client, _served) = saying(good(""), 100).await;
    assert_eq!(client.get::<Value>("/v1/x").await.unwrap(), Value::Null, "nothing is null");
}

#[tokio::test]
async fn an_answer_has_a_largest_size() {
    let announced = format!("HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n{}", "x".repeat(101));
    let chunk = format!("32\r\n{}\r\n", "x".repeat(50));
    let unannounced = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(3));
    for answer in [announced, unannounced] {
        let (client, _served) = saying(answer, 1000).await;
        let error = client.at_most(100).bytes(Method::GET, "/v1/x", Default::default()).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge(100)), "{error}");
    }
    let (client, _served) = saying(good(&"x".repeat(100)), 1000).await;
    assert_eq!(client.at_most(100).bytes(Method::GET, "/v1/x", Default::default()).await.unwrap().bytes.len(), 100);
}

#[tokio::test]
async fn a_desk_that_does_not_answer_is_given_up() {
    let (client, served) = server(async |_stream| std::future::pending().await).await;
    let error = client.within(Duration::from_millis(50)).health().await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    served.abort();
    let (client, served) = server(async |mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        std::future::pending().await
    })
    .await;
    let error = client.within(Duration::from_millis(50)).get::<Value>("/v1/x").await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "half an answer is none: {error}");
    served.abort();
}

#[tokio::test]
async fn it_is_known_whether_something_may_have_been_done() {
    let nobody = Client::new(Direct(At(([127, 0, 0, 1], 1).into())));
    assert!(matches!(nobody.health().await.unwrap_err(), Error::Connect(_)));
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let (client, _served) = saying(answer, 100).await;
        let error = client.get::<Value>("/v1/x").await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{answer:?}: {error}");
    }
    let (client, _served) = saying(good("<html>"), 100).await;
    assert!(matches!(client.get::<Value>("/v1/x").await.unwrap_err(), Error::Malformed(_)));
}

#[tokio::test]
async fn refusals_are_typed() {
    let problem = r#"{"code": "not_found", "status": 1, "title": "No", "detail": "no such window", "retry": false}"#;
    let (client, _served) =
        saying(format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{problem}", problem.len()), 10).await;
    let error = client.get::<Value>("/v1/windows/1").await.unwrap_err();
    assert_eq!((error.status(), error.to_string().as_str()), (Some(StatusCode::NOT_FOUND), "no such window"));
    assert_eq!(error.refusal().unwrap().problem.code, "not_found");
    let endless = format!("HTTP/1.1 500 Oops\r\n\r\n{}", "x".repeat(1 << 20));
    let (client, _served) = saying(endless, 1 << 16).await;
    let error = client.get::<Value>("/v1/x").await.unwrap_err();
    assert_eq!(error.refusal().unwrap().problem.detail, "the answer was 500 Internal Server Error");
}

#[tokio::test]
async fn a_desk_that_is_not_ready_says_how_far_it_is() {
    let body = r#"{"ready": false, "stage": "bus", "more": 1}"#;
    let (client, served) =
        saying(format!("HTTP/1.1 503 Service Unavailable\r\ncontent-length: {}\r\n\r\n{body}", body.len()), 100).await;
    let health = client.health().await.unwrap();
    assert_eq!((health.ready, health.stage.as_str()), (false, "bus"));
    assert!(served.await.unwrap().starts_with("GET /health HTTP/1.1\r\n"));
    for other in ["{}", r#"{"ready": "yes"}"#, "<html>"] {
        let (client, _served) = saying(good(other), 100).await;
        let error = client.health().await.unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{other}: {error}");
    }
}

#[tokio::test]
async fn events_arrive_however_they_are_cut() {
    let text =
        "HTTP/1.1 200 OK\r\n\r\nevent: stdout\nid: 3\ndata: {\"a\":1}\n\n: keep alive\n\ndata: no JSON\n\ndata: {\"b\":2}\n\n";
    for size in 1..20 {
        let (client, _served) = saying(text, size).await;
        let mut events = client.events("/v1/output").await.unwrap();
        assert_eq!(events.next_json().await.unwrap(), Some(json!({ "a": 1 })));
        assert_eq!(events.next_json().await.unwrap(), Some(json!({ "b": 2 })));
        assert_eq!(events.next().await.unwrap(), None);
    }
    let (client, _served) = saying("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ndata: 1\n\ndata: 2", 3).await;
    let mut events = client.events("/v1/output").await.unwrap();
    assert_eq!(events.next().await.unwrap().as_deref(), Some("1"));
    assert!(matches!(events.next().await, Err(Error::Broken(_))), "a stream that breaks off has not ended");
    let (client, _served) = saying(format!("HTTP/1.1 200 OK\r\n\r\ndata: {}", "x".repeat(2 << 20)), 1 << 16).await;
    assert!(matches!(client.events("/v1/output").await.unwrap().next().await, Err(Error::TooLarge(_))));
}

#[tokio::test]
async fn a_frozen_desk_has_closed_the_connection_that_asked() {
    let closed = Arc::new(AtomicBool::new(false));
    let closing = closed.clone();
    let (client, served) = server(async move |mut stream| {
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{\"cut\":3}";
        stream.write_all(answer.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        // Closing by the other side would be seen here.
        let mut byte = [0];
        let left = tokio::time::timeout(Duration::ZERO, stream.read(&mut byte)).await;
        assert!(left.is_err(), "the client left first: {left:?}");
        closing.store(true, Ordering::SeqCst);
    })
    .await;
    assert_eq!(client.freeze().await.unwrap().cut, 3);
    assert!(closed.load(Ordering::SeqCst));
    assert!(served.await.unwrap().starts_with("POST /v1/freeze HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_port_is_entered_or_the_reason_told() {
    let (client, _served) = server(async |mut stream| {
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: tcp\r\n\r\nhi").await.unwrap();
        let mut said = [0; 3];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    })
    .await;
    let stream = client.transport().0.connect().await.unwrap();
    let port = enter_port(stream, 80, |headers| headers::open(headers, None)).await.unwrap();
    let mut port = hyper_util::rt::TokioIo::new(port);
    port.write_all(b"abc").await.unwrap();
    let mut heard = [0; 5];
    port.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hiabc");

    let (client, served) = saying("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", 100).await;
    let stream = client.transport().0.connect().await.unwrap();
    let error = enter_port(stream, 81, |headers| headers::open(headers, Some("s"))).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let request = served.await.unwrap();
    assert!(request.starts_with("GET /v1/ports/81 HTTP/1.1\r\n") && request.contains("authorization: Bearer s\r\n"), "{request}");
}

/// The other end of a Unix socket, in a thread: gives the request.
fn thread(mut stream: std::os::unix::net::UnixStream, answer: &'static str) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut request = Vec::new();
        while !is_whole(&request) {
            let mut piece = [0; 100];
            let length = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..length]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    })
}

#[test]
fn a_program_without_a_runtime_asks_and_waits() {
    let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let served = thread(other, "HTTP/1.1 204 No Content\r\n\r\n");
    let thaw = Thaw { token: Some("new".into()), ..Thaw::default() };
    blocking::ask(own, Some("old"), async |desk| desk.thaw(&thaw).await).unwrap();
    let request = served.join().unwrap();
    assert!(request.starts_with("POST /v1/thaw HTTP/1.1\r\n") && request.contains("authorization: Bearer old\r\n"), "{request}");
    assert!(request.contains(r#""token":"new""#));

    let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let served = thread(other, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n");
    let twice = blocking::ask(own, None, async |desk| {
        assert_eq!(desk.get::<Value>("/v1/x").await?, json!([1]), "also what comes in chunks");
        desk.get::<Value>("/v1/x").await
    });
    assert!(matches!(twice, Err(Error::Connect(_))), "a socket is good for one request");
    assert!(!served.join().unwrap().contains("authorization"));
}
