//! The routes, over HTTP and against a real X server.

use super::*;
use crate::screen::xvfb::{SIZE, Server, decode};
use axum::body::Body;
use axum::http::Request;
use futures_util::{SinkExt, StreamExt};
use hotdesk_api::screen::ScreenEvent;
use http_body_util::BodyExt;
use tokio_tungstenite::tungstenite::Message;
use tower::ServiceExt;

#[test]
fn regions() {
    assert_eq!(region("1,-2, 30,40").expect("four numbers"), Rect { x: 1, y: -2, width: 30, height: 40 });
    for bad in ["", "1,2,3", "1,2,3,4,5", "1,2,-3,4", "a,b,c,d", "1.5,2,3,4", "99999999999,0,1,1"] {
        assert!(matches!(region(bad), Err(Error::Invalid(_))), "{bad}");
    }
}

#[test]
fn times_have_limits() {
    assert_eq!(settling(None, None).expect("the defaults"), (QUIET, LIMIT));
    assert!(settling(Some(u64::MAX), None).is_err());
    assert!(settling(None, Some(300_001)).is_err());
}

#[test]
fn tags() {
    for known in ["\"a\"", "\"b\", W/\"a\"", "*"] {
        assert!(names(&HeaderValue::from_static(known), "\"a\""), "{known}");
    }
    assert!(!names(&HeaderValue::from_static("\"ab\""), "\"a\""));
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().expect("text"))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

async fn send(screen: &Screen, request: Request<Body>) -> Answer {
    let (router, _) = router_of::<Screen>().with_state(screen.clone()).split_for_parts();
    let response = router.oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn get(screen: &Screen, path: &str) -> Answer {
    send(screen, Request::get(path).body(Body::empty()).expect("a request")).await
}

async fn send_json(screen: &Screen, method: &str, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    send(screen, request.body(Body::from(body.to_owned())).expect("a request")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.fill(0x336699, 0, 0, 320, 240);
    let first = get(&screen, "/v1/screenshot?cursor=none").await;
    assert_eq!((first.status, first.header("content-type"), first.header("cache-control")), (200, "image/png", "no-cache"));
    assert_eq!(decode(&first.body), (SIZE, painter.look()));
    let again = |tag: &str| {
        Request::get("/v1/screenshot?cursor=none").header("if-none-match", tag).body(Body::empty()).expect("a request")
    };
    let tag = first.header("etag").to_owned();
    let unchanged = send(&screen, again(&tag)).await;
    assert_eq!((unchanged.status, unchanged.body.len(), unchanged.header("etag")), (304, 0, tag.as_str()));
    painter.fill(0, 0, 0, 1, 1);
    assert_eq!(send(&screen, again(&tag)).await.status, 200);

    let part = get(&screen, "/v1/screenshot?region=10,10,50,40&scale=0.5&format=png").await;
    assert_eq!(decode(&part.body).0, Size { width: 25, height: 20 });
    assert_eq!(get(&screen, "/v1/screenshot?format=jpeg&quality=50").await.header("content-type"), "image/jpeg");
    assert_eq!(get(&screen, "/v1/screenshot?format=webp&max_width=100").await.header("content-type"), "image/webp");
    let waited = get(&screen, "/v1/screenshot?wait=settled&quiet_ms=10&limit_ms=60000").await;
    assert_eq!((waited.status, waited.header("x-hotdesk-settled")), (200, "true"));
    let waited = get(&screen, "/v1/screenshot?wait=settled&quiet_ms=1000&limit_ms=0").await;
    assert_eq!((waited.status, waited.header("x-hotdesk-settled")), (200, "false"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_with_a_reason() {
    let server = Server::start(&[]);
    let screen = server.screen();
    for query in [
        "format=gif",
        "region=1,2,3",
        "region=5000,0,1,1",
        "scale=0",
        "scale=2",
        "scale=x",
        "max_width=0",
        "max_width=-1",
        "quality=0&format=jpeg",
        "quality=300",
        "cursor=maybe",
        "wait=forever",
        "wait=settled&quiet_ms=999999999",
        "quiet_ms=5",
        "unknown=1",
    ] {
        let answer = get(&screen, &format!("/v1/screenshot?{query}")).await;
        assert_eq!((answer.status, answer.header("content-type")), (400, "application/problem+json"), "{query}");
        assert!(!answer.json()["detail"].as_str().expect("a reason").is_empty());
    }
    for (method, path, body) in [
        ("POST", "/v1/screen/settled", "[]"),
        ("POST", "/v1/screen/settled", "{\"quiet\":1}"),
        ("PUT", "/v1/screen/size", "{\"width\":-1,\"height\":5}"),
        ("PUT", "/v1/screen/size", "{\"width\":1,\"height\":1}"),
        ("GET", "/v1/screen/stream?max_fps=0", ""),
        ("GET", "/v1/screen/stream", ""),
    ] {
        assert_eq!(send_json(&screen, method, path, body).await.status, 400, "{method} {path} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_and_the_size() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.point(12, 34);
    let info = get(&screen, "/v1/screen").await.json();
    assert_eq!(info["size"], serde_json::json!({"width": 320, "height": 240}));
    assert_eq!((info["depth"].as_u64(), &info["pointer"]), (Some(24), &serde_json::json!({"x": 12, "y": 34})));
    let settled = send_json(&screen, "POST", "/v1/screen/settled", "{\"quiet_ms\":5,\"limit_ms\":60000}").await;
    assert_eq!(settled.json()["settled"], true);
    let size = send_json(&screen, "PUT", "/v1/screen/size", "{\"width\":160,\"height\":120}").await;
    assert_eq!((size.status, &size.json()["width"]), (200, &serde_json::json!(160)));
    let size = send_json(&screen, "PUT", "/v1/screen/size", "{\"width\":1600,\"height\":1200}").await;
    assert_eq!((size.status, size.json()["hint"].is_string()), (501, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_changes() {
    let mut server = Server::start(&[]);
    let (screen, painter, reserved) = (server.screen(), server.painter(), server.reserved.clone());
    painter.fill(0, 0, 0, 320, 240);
    let (router, _) = router_of::<Screen>().with_state(screen).split_for_parts();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    let url = format!("ws://{address}/v1/screen/stream?pixels=png&max_fps=60");
    let (mut stream, _) = tokio_tungstenite::connect_async(url).await.expect("a stream");

    let (regions, pictures) = change(&mut stream).await;
    assert_eq!(regions, vec![Rect { x: 0, y: 0, width: 320, height: 240 }]);
    assert_eq!(pictures[0], (SIZE, painter.look()));
    painter.fill(0xff0000, 64, 16, 64, 16);
    let (regions, pictures) = change(&mut stream).await;
    assert_eq!(regions, vec![Rect { x: 64, y: 16, width: 64, height: 16 }]);
    assert_eq!(pictures[0], (Size { width: 64, height: 16 }, [255, 0, 0].repeat(64 * 16)));
    painter.point(5, 6);
    assert_eq!(change(&mut stream).await.0, vec![]);

    server.child.kill().expect("our child");
    server.child.wait().expect("our child");
    let Some(Ok(Message::Text(text))) = stream.next().await else { panic!("a text message") };
    assert!(matches!(serde_json::from_str(&text), Ok(ScreenEvent::Down { .. })), "{text}");
    drop(server);
    let server = Server::start_on(reserved, &[]);
    server.painter().fill(0x00ff00, 0, 0, 320, 240);
    while change(&mut stream).await.1.iter().all(|(_, rgb)| rgb[..3] != [0, 255, 0]) {}
    stream.send(Message::Close(None)).await.expect("open");
}

type Stream = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// The next change and its pictures.
async fn change(stream: &mut Stream) -> (Vec<Rect>, Vec<(Size, Vec<u8>)>) {
    let Some(Ok(Message::Text(text))) = stream.next().await else { panic!("a text message") };
    let Ok(ScreenEvent::Change { regions, .. }) = serde_json::from_str(&text) else { panic!("a change: {text}") };
    let mut pictures = Vec::new();
    for _ in &regions {
        let Some(Ok(Message::Binary(png))) = stream.next().await else { panic!("a picture") };
        pictures.push(decode(&png));
    }
    (regions, pictures)
}
