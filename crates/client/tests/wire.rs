//! The client against a server that plays the gateway: what is sent, what is sent again, and what never is.

use axum::body::Body;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use axum::{Json, Router};
use futures_util::StreamExt;
use hotdesk_api::desk::NewDesk;
use hotdesk_api::process::StartProcess;
use hotdesk_api::terminal::OpenTerminal;
use hotdesk_client::{Client, Create, Error, Output, Shown, Upload};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What the server was asked.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn note(&self, what: impl Into<String>) -> usize {
        let mut list = self.0.lock().unwrap();
        list.push(what.into());
        list.len()
    }

    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn serve(router: Router<Seen>) -> (Client, Seen) {
    let seen = Seen::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router.with_state(seen.clone())).into_future());
    (Client::new(&format!("http://{address}"), "hd_test").unwrap(), seen)
}

fn desk(id: &str, state: &str) -> Value {
    json!({
        "id": id, "name": null, "project": "default", "template": "base", "snapshot": null, "provider": "local",
        "state": state, "reason": "asked", "labels": {}, "env": [], "resources": {"cpus": 2.0, "memory_mib": 4096, "disk_mib": 5120},
        "policy": {"auto_stop_s": 900, "auto_archive_s": 86400, "auto_delete_s": 0, "ttl_s": 0},
        "screen": {"width": 1920, "height": 1080}, "created_at": "2026-01-01T00:00:00Z", "changed_at": "2026-01-01T00:00:00Z",
        "expires_at": null, "idle_s": null, "busy": null, "cost": 0.0, "stage": null
    })
}

fn problem(status: StatusCode, code: &str, retry: bool, after: Option<&'static str>) -> Response {
    let body = json!({
        "code": code, "status": status.as_u16(), "title": "It did not work", "detail": "because of a test",
        "hint": "try another", "retry": retry
    });
    let mut answer = (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response();
    if let Some(after) = after {
        answer.headers_mut().insert(header::RETRY_AFTER, after.parse().unwrap());
    }
    answer
}

#[tokio::test]
async fn a_desk_is_asked_for_in_the_words_of_the_api() {
    async fn create(State(seen): State<Seen>, headers: HeaderMap, request: Request) -> Response {
        assert_eq!(headers["authorization"], "Bearer hd_test");
        assert_eq!(request.uri().query(), Some("wait=5"));
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        seen.note(format!("{} {}", headers["idempotency-key"].len(), String::from_utf8_lossy(&body)));
        (StatusCode::ACCEPTED, Json(desk("d-1", "creating"))).into_response()
    }
    let (client, seen) = serve(Router::new().route("/v1/desks", post(create))).await;
    let new = NewDesk { name: Some("ä/b".into()), ..NewDesk::default() };
    let done = client.create_with(&new, &Create { wait: Duration::from_secs(5), ..Create::default() }).await.unwrap();
    assert!(!done.over, "202 is not done");
    assert_eq!(seen.list(), [r#"27 {"name":"ä/b"}"#]);
}

#[tokio::test]
async fn refusals_are_told_whole() {
    let (client, _) = serve(
        Router::new()
            .route("/v1/fleet", get(|| async { problem(StatusCode::FORBIDDEN, "denied", false, None) }))
            .route("/v1/desks", post(|| async { problem(StatusCode::TOO_MANY_REQUESTS, "limit", true, Some("30")) })),
    )
    .await;
    let error = client.fleet().await.unwrap_err();
    assert_eq!((error.status(), error.code(), error.hint()), (Some(403), Some("denied"), Some("try another")));
    assert_eq!(error.to_string(), "because of a test");
    let error = client.create(&NewDesk::default()).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Some("limit"), Some(Duration::from_secs(30))));
    // Somebody else's server.
    let (client, _) = serve(Router::new()).await;
    let error = client.costs().await.unwrap_err();
    assert!(error.is_not_found() && error.hint().unwrap().contains("hotdesk fleet"), "{error:?}");
}

#[tokio::test]
async fn too_many_requests_are_sent_again_when_it_is_time() {
    async fn fleet(State(seen): State<Seen>) -> Response {
        match seen.note("") {
            1 => problem(StatusCode::TOO_MANY_REQUESTS, "rate_limited", true, Some("0")),
            2 => problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", true, Some("0")),
            _ => Json(json!({"currency": "USD", "total": 1.0, "today": 1.0, "by_project": {}, "by_day": {}})).into_response(),
        }
    }
    let (client, seen) = serve(Router::new().route("/v1/costs", get(fleet))).await;
    assert_eq!(client.costs().await.unwrap().total, 1.0);
    assert_eq!(seen.list().len(), 3);
}

/// A server that reads a request, says so, and hangs up without an answer; `good` answers come after that.
async fn hangs_up(answers_before: usize, hang_ups: usize) -> (Client, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let noted = seen.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65536];
            let length = stream.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            let key =
                text.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("idempotency-key: ").map(str::to_owned));
            let line = text.lines().next().unwrap_or_default().to_owned();
            let number = noted.note(format!("{line} {}", key.unwrap_or_default()));
            if number > answers_before && number <= answers_before + hang_ups {
                continue;
            }
            let body = desk("d-1", "running").to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (Client::new(&address.to_string(), "hd_test").unwrap(), seen)
}

#[tokio::test]
async fn what_can_be_repeated_is_repeated() {
    let (client, seen) = hangs_up(1, 2).await;
    client.desk("d-1").get().await.unwrap();
    client.desk("d-1").get().await.unwrap();
    assert_eq!(seen.list().len(), 4, "one, two in vain, one");
    let (client, seen) = hangs_up(1, 1).await;
    client.desk("d-1").get().await.unwrap();
    client.create(&NewDesk::default()).await.unwrap();
    let list = seen.list();
    assert_eq!(list.len(), 3);
    assert_eq!(list[1], list[2], "with the same key");
    assert!(list[1].len() > 30, "{}", list[1]);
}

#[tokio::test]
async fn an_action_is_never_sent_twice() {
    for verb in ["reset", "input", "run", "spawn", "fork", "extend", "key"] {
        let (client, seen) = hangs_up(1, 1).await;
        let desk = client.desk("d-1");
        desk.get().await.unwrap();
        let error = match verb {
            "reset" => desk.reset().await.map(drop).unwrap_err(),
            "input" => desk.act(vec![]).await.map(drop).unwrap_err(),
            "run" => desk.run(&Default::default()).await.map(drop).unwrap_err(),
            "spawn" => desk.spawn(&Default::default()).await.map(drop).unwrap_err(),
            "fork" => desk.fork(&Default::default()).await.map(drop).unwrap_err(),
            "extend" => desk.extend(Duration::from_secs(1)).await.map(drop).unwrap_err(),
            _ => client.rotate_key("k-1").await.map(drop).unwrap_err(),
        };
        assert!(matches!(error, Error::Broken(_)), "{verb}: {error:?}");
        assert_eq!(seen.list().len(), 2, "{verb} was sent twice");
    }
}

#[tokio::test]
async fn a_fleet_that_never_answered_is_reported_at_once_and_one_that_did_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(&address.to_string(), "hd_test").unwrap();
    let begin = std::time::Instant::now();
    let error = client.fleet().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { url, .. } if url.contains("127.0.0.1")), "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(5), "nothing was waited for");

    // A restart: the address is free for a while, then somebody listens again.
    let router = Router::new().route("/v1/desks/d-1", get(|| async { Json(desk("d-1", "running")) }));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = TcpListener::bind(address).await.unwrap();
    let first =
        tokio::spawn(axum::serve(listener, router.clone()).with_graceful_shutdown(async { drop(stopped.await) }).into_future());
    client.desk("d-1").get().await.unwrap();
    stop.send(()).unwrap();
    let again = tokio::spawn(async move {
        first.await.unwrap().unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        axum::serve(listener, router).await
    });
    client.desk("d-1").reset().await.unwrap_err();
    client.desk("d-1").get().await.unwrap();
    again.abort();
}

#[tokio::test]
async fn names_can_not_lead_to_other_routes() {
    let (client, seen) = serve(Router::new().fallback(any(async |State(seen): State<Seen>, request: Request| {
        seen.note(request.uri().path());
        Json(desk("d-1", "running"))
    })))
    .await;
    client.desk("../keys").get().await.unwrap();
    client.desk("a/b?c#d ä").get().await.unwrap();
    client.desk("..").get().await.unwrap();
    let list = seen.list();
    assert_eq!(list[2], "/v1/desks/%25");
    assert_eq!(list[0], "/v1/desks/..%2Fkeys");
    assert_eq!(list[1], "/v1/desks/a%2Fb%3Fc%23d%20%C3%A4");
}

#[tokio::test]
async fn a_socket_instead_of_a_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let router = Router::new().route("/v1/desks/d-1", get(|| async { Json(desk("d-1", "running")) }));
    tokio::spawn(axum::serve(listener, router).into_future());
    let client = Client::new(&format!("unix:{}", path.display()), "hd_test").unwrap();
    assert_eq!(client.desk("d-1").get().await.unwrap().id, "d-1");
}

#[tokio::test]
async fn files_are_streamed_both_ways() {
    let router = Router::new()
        .route(
            "/v1/desks/d-1/files/content",
            put(async |State(seen): State<Seen>, request: Request| {
                seen.note(request.uri().query().unwrap_or_default());
                let mut size = 0;
                let mut body = request.into_body().into_data_stream();
                while let Some(piece) = body.next().await {
                    size += piece.unwrap().len();
                }
                Json(json!({"path": "/x", "size": size, "created": true}))
            })
            .get(|| async {
                let pieces = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![7u8; 1000])));
                Body::from_stream(pieces)
            }),
        )
        .route(
            "/v1/desks/d-2/files/content",
            get(|| async {
                let pieces = futures_util::stream::iter(0..2).then(async |number| match number {
                    0 => Ok(vec![1u8; 10]),
                    // The first piece is on its way by then.
                    _ => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        Err(std::io::Error::other("broken"))
                    }
                });
                Body::from_stream(pieces)
            }),
        );
    let (client, seen) = serve(router).await;
    let desk = client.desk("d-1");
    let pieces = futures_util::stream::iter((0..10).map(|_| Ok(bytes::Bytes::from(vec![1u8; 1000]))));
    let what = hotdesk_api::file::WriteFile { path: "~/a b&c".into(), mode: Some("0600".into()), make_parents: true };
    assert_eq!(desk.write(&what, Upload::stream(pieces, Some(10_000))).await.unwrap().size, 10_000);
    assert_eq!(seen.list(), ["make_parents=true&mode=0600&path=%7E%2Fa+b%26c"]);
    assert_eq!(desk.read("x").await.unwrap().bytes().await.unwrap().len(), 100_000);
    let mut cut = client.desk("d-2").read("x").await.unwrap();
    let end = loop {
        match cut.next().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(end, Err(Error::Broken(_))), "an early end is no end: {end:?}");
}

#[tokio::test]
async fn programs_and_terminals_over_websockets() {
    let router = Router::new()
        .route("/v1/desks/d-1/processes", post(|| async {
            Json(json!({"id": 3, "pid": 9, "argv": ["cat"], "running": true, "started_ms": 0, "output_bytes": 0}))
        }))
        .route("/v1/desks/d-1/processes/3/attach", get(async |State(seen): State<Seen>, headers: HeaderMap, upgrade: WebSocketUpgrade| {
            assert_eq!(headers["authorization"], "Bearer hd_test");
            upgrade.on_upgrade(async move |mut socket| {
                let Some(Ok(Message::Binary(typed))) = socket.recv().await else { panic!("no input") };
                let Some(Ok(Message::Text(control))) = socket.recv().await else { panic!("no control") };
                seen.note(control.as_str());
                let tagged = |source: u8| Message::binary([&[source], &typed[..]].concat());
                for message in [tagged(1), Message::Ping("x".into()), tagged(2), Message::text(r#"{"event":"exit","exit_code":3,"timed_out":false}"#)] {
                    socket.send(message).await.unwrap();
                }
            })
        }))
        .route("/v1/desks/d-1/terminals", post(async |State(seen): State<Seen>, body: String| {
            seen.note(body);
            Json(json!({"id": 5, "pid": 9, "argv": ["sh"], "cols": 100, "rows": 30, "running": true, "started_ms": 0, "viewers": 0, "output_bytes": 0}))
        }))
        .route("/v1/desks/d-1/terminals/5/attach", get(async |State(seen): State<Seen>, upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async move |mut socket| {
                let Some(Ok(Message::Text(control))) = socket.recv().await else { panic!("no control") };
                seen.note(control.as_str());
                socket.send(Message::binary("$ ")).await.unwrap();
                socket.send(Message::text(r#"{"event":"exit","exit_code":0,"timed_out":false}"#)).await.unwrap();
            })
        }));
    let (client, seen) = serve(router).await;
    let desk = client.desk("d-1");
    let mut program = desk.exec(&StartProcess { argv: Some(vec!["cat".into()]), ..StartProcess::default() }).await.unwrap();
    program.input.write("hello".into()).await.unwrap();
    program.input.close().await.unwrap();
    assert_eq!(program.output.next().await.unwrap(), Some(Output::Stdout("hello".into())));
    assert_eq!(program.output.next().await.unwrap(), Some(Output::Stderr("hello".into())));
    assert!(matches!(program.output.next().await.unwrap(), Some(Output::Exit(exit)) if exit.exit_code == Some(3)));
    assert_eq!(seen.list(), [r#"{"do":"close_stdin"}"#]);

    let mut terminal = desk.terminal(&OpenTerminal { cols: Some(100), ..OpenTerminal::default() }).await.unwrap();
    terminal.keyboard.resize(90, 20).await.unwrap();
    assert_eq!(terminal.screen.next().await.unwrap(), Some(Shown::Data("$ ".into())));
    assert!(matches!(terminal.screen.next().await.unwrap(), Some(Shown::Exit(_))));
    assert_eq!(seen.list()[2], r#"{"do":"resize","cols":90,"rows":20}"#);
}

#[tokio::test]
async fn a_tunnel_carries_bytes() {
    async fn tunnel(mut request: Request) -> Response {
        assert_eq!(request.headers()["upgrade"], "tcp");
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            word.reverse();
            stream.write_all(&word).await.unwrap();
        });
        (StatusCode::SWITCHING_PROTOCOLS, [(header::CONNECTION, "upgrade"), (header::UPGRADE, "tcp")]).into_response()
    }
    let (client, _) = serve(Router::new().route("/v1/desks/d-1/ports/9222", get(tunnel))).await;
    let mut stream = client.desk("d-1").port(9222).await.unwrap();
    stream.write_all(b"abcd").await.unwrap();
    let mut word = Vec::new();
    stream.read_to_end(&mut word).await.unwrap();
    assert_eq!(word, b"dcba");
}

#[tokio::test]
async fn events_go_on_where_they_broke_off() {
    async fn events(State(seen): State<Seen>, headers: HeaderMap) -> Response {
        assert_eq!(headers["accept"], "text/event-stream");
        let last = headers.get("last-event-id").map_or("0", |id| id.to_str().unwrap()).to_owned();
        seen.note(&last);
        let from: i64 = last.parse().unwrap();
        let event = |number: i64| {
            let event = json!({"number": number, "at": "", "desk": null, "project": null, "kind": "state", "state": null, "reason": "", "by": ""});
            format!("id: {number}\ndata: {event}\n\n")
        };
        // Two, then the connection ends.
        ([(header::CONTENT_TYPE, "text/event-stream")], format!(": hello\n\n{}{}", event(from + 1), event(from + 2)))
            .into_response()
    }
    let (client, seen) = serve(Router::new().route("/v1/events", get(events))).await;
    let mut events = client.follow(None, None);
    for number in 1..=6 {
        assert_eq!(events.next().await.unwrap().number, number);
    }
    assert_eq!(seen.list(), ["0", "2", "4"]);
}
