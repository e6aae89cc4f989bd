//! Programs that listen in a desk, reached over HTTP; first of all a browser's debugging port.

use super::*;
use axum::Router;
use axum::extract::Request;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use futures_util::{SinkExt, StreamExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_tungstenite::tungstenite::Message;

/// Plays Chrome: refuses hosts that are not local and every origin, as that does.
async fn chrome(connections: Arc<AtomicUsize>) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let list = move |headers: HeaderMap| async move {
        if headers[header::HOST] != format!("localhost:{port}") {
            return (
                axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                "Host header is specified and is not an IP address or localhost.",
            )
                .into_response();
        }
        axum::Json(json!([{
            "devtoolsFrontendUrl": format!("/devtools/inspector.html?ws=localhost:{port}/devtools/page/1"),
            "webSocketDebuggerUrl": format!("ws://localhost:{port}/devtools/page/1"),
        }]))
        .into_response()
    };
    let page = |headers: HeaderMap, upgrade: WebSocketUpgrade| async move {
        if headers.contains_key(header::ORIGIN) {
            return axum::http::StatusCode::FORBIDDEN.into_response();
        }
        upgrade.on_upgrade(async |mut socket| {
            while let Some(Ok(message)) = socket.next().await {
                let _ = socket.send(message).await;
            }
        })
    };
    let seen = async |request: Request| -> Response {
        let text = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
        ([(header::SET_COOKIE, "session=1; Path=/")], text).into_response()
    };
    let app = Router::new()
        .route("/json/list", get(list))
        .route("/devtools/page/1", get(page))
        .route("/moved", get(async || Redirect::to("/elsewhere?x=1")))
        .fallback(seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.fetch_add(1, Ordering::SeqCst);
            let service = hyper_util::service::TowerToHyperService::new(app.clone());
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(hyper_util::rt::TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_browser_is_debugged_through_the_gateway() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let connections = Arc::<AtomicUsize>::default();
    let port = chrome(connections.clone()).await;
    let host = world.url.trim_start_matches("http://").to_owned();
    let path = format!("/v1/desks/{}/ports/{port}", desk.id);

    let list: Value = world.get(&format!("{path}/json/list")).await.json().await.unwrap();
    assert_eq!(list[0]["webSocketDebuggerUrl"], format!("ws://{host}{path}/devtools/page/1"));

    // A client that knows nothing but a base URL follows the list.
    let prefix = format!("/k/{}{path}", world.admin);
    let list: Value = world.client.get(format!("{}{prefix}/json/list", world.url)).send().await.unwrap().json().await.unwrap();
    let socket = list[0]["webSocketDebuggerUrl"].as_str().unwrap();
    assert_eq!(socket, format!("ws://{host}{prefix}/devtools/page/1"));
    assert_eq!(list[0]["devtoolsFrontendUrl"], format!("{prefix}/devtools/inspector.html?ws={host}{prefix}/devtools/page/1"));
    let mut request = tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(socket).unwrap();
    request.headers_mut().insert("origin", "http://devtools".parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    socket.send(Message::text(r#"{"id":1}"#)).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(r#"{"id":1}"#));

    let before = connections.load(Ordering::SeqCst);
    for _ in 0..10 {
        let text = world.get(&format!("{path}/some/page?a=b")).await.text().await.unwrap();
        assert!(text.starts_with("GET /some/page?a=b"), "{text}");
        assert!(!text.contains(&world.admin) && !text.contains("hd_"), "{text}");
    }
    assert!(connections.load(Ordering::SeqCst) - before <= 3, "connections to ports are kept for a moment");
    world.end().await;
}

#[tokio::test]
async fn programs_in_a_desk_stay_within_their_port() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let port = chrome(Arc::default()).await;
    let path = format!("/v1/desks/{}/ports/{port}", desk.id);
    let response = world.get(&format!("{path}/moved")).await;
    assert_eq!(response.headers()["location"], format!("{path}/elsewhere?x=1"));
    let response = world.get(&format!("{path}/")).await;
    assert_eq!(response.headers()["set-cookie"], format!("session=1; Path={path}/"));
    assert_eq!(response.headers()["referrer-policy"], "same-origin");
    assert!(response.text().await.unwrap().starts_with("GET / "));
    // Its own password is not ours, and passes.
    let prefixed = format!("{}/k/{}{path}/x", world.url, world.admin);
    let text = world.client.get(prefixed).header("authorization", "Basic abc").send().await.unwrap().text().await.unwrap();
    assert!(text.contains("Basic abc"), "{text}");

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refused = problem(world.get(&format!("/v1/desks/{}/ports/{free}/x", desk.id)).await).await;
    assert_eq!((refused.status, refused.retry), (503, true));
    assert!(refused.detail.contains(&free.to_string()), "{}", refused.detail);
    for port in ["0", "70000", "x"] {
        assert_eq!(problem(world.get(&format!("/v1/desks/{}/ports/{port}/x", desk.id)).await).await.status, 400);
    }
    world.end().await;
}
