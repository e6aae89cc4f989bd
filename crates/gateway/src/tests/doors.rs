//! Whoever comes in, however it is spelled: what is admitted is what is served, and what reaches a desk is in the audit log.

use super::auth::operations;
use super::guests::sandbox_id;
use super::*;
use crate::{Rate, Rates};
use axum::extract::ws::WebSocketUpgrade;
use axum::http::header;
use hotdesk_fleet::Who;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// Sends bytes as they are, which no client library does, and returns all that comes back.
async fn raw(world: &World, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(world.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.unwrap_or_else(|_| panic!("no end of {}", request.lines().next().unwrap_or_default())).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn world() -> World {
    let free = Rate { per_second: 0, burst: 0 };
    World::with(Config { rates: Rates { control: free, desks: free, keyless: free, failures: free }, ..Config::default() }).await
}

async fn lines(world: &World) -> Vec<hotdesk_fleet::store::Audit> {
    world.fleet.store().audits(100_000).await.unwrap()
}

/// Other ways to write a path, some of which somebody on the way might take for the same.
fn spellings(path: &str) -> Vec<String> {
    let mut found = vec![path.to_owned(), format!("/{path}"), format!("{path}/"), format!("/x/..{path}"), format!("/.{path}")];
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).take(5).collect();
    for (number, at) in slashes.into_iter().enumerate() {
        let (before, after) = (&path[..at], &path[at + 1..]);
        // The rarer ones once: there are many paths.
        let between: &[&str] = if number == 0 { &["//", "%2f", "/x/../", "/./", ";/"] } else { &["//", "%2f", "/x/../"] };
        found.extend(between.iter().map(|between| format!("{before}{between}{after}")));
        if let Some(first) = after.bytes().next() {
            found.push(format!("{before}/%{first:02x}{}", &after[1..]));
        }
    }
    found.push(path.to_ascii_uppercase());
    found.dedup();
    found
}

/// Calls of other dialects that the description of ours does not have.
fn foreign(desk: &str, sandbox: &str) -> Vec<(Method, String)> {
    let toolbox = [
        (Method::POST, "process/execute"),
        (Method::GET, "computeruse/screenshot"),
        (Method::POST, "computeruse/mouse/click"),
        (Method::GET, "files/download?path=/etc/passwd"),
        (Method::GET, "user-home-dir"),
    ];
    let mut calls = Vec::new();
    for (method, path) in toolbox {
        calls.push((method.clone(), format!("/daytona/toolbox/{desk}/{path}")));
        calls.push((method.clone(), format!("/daytona/api/toolbox/{desk}/toolbox/{path}")));
        calls.push((method, format!("/daytona/preview/{desk}/2280/{path}")));
    }
    calls.push((Method::GET, format!("/daytona/preview/{desk}/5000/screenshot")));
    calls.push((Method::GET, format!("/osworld/{desk}:5000/screenshot")));
    calls.push((Method::GET, format!("/sandboxes/{sandbox}/metrics")));
    calls.push((Method::POST, "/process.Process/List".into()));
    calls.push((Method::GET, "/files?path=/etc/passwd".into()));
    calls.push((Method::POST, "/mcp".into()));
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_admitted_is_what_is_served_and_written_down() {
    let world = world().await;
    let (desk, fake) = world.desk_with(json!({"labels": {"e2b:sandbox": "1"}})).await;
    let own = operations(&desk.id, "s-aaaaaaaaaaaa").into_iter().map(|(method, path, ..)| (method, path));
    // What ends the desk, or never ends by itself, is left out: each has a test of its own.
    let ends = ["start", "stop", "reset", "archive", "delete", "fork", "snapshot", "events", "build"];
    let lasts = |(method, path): &(Method, String)| *method != Method::DELETE && !ends.iter().any(|end| path.ends_with(end));
    let calls: Vec<_> = own.chain(foreign(&desk.id, &sandbox_id(&desk))).filter(lasts).collect();
    let admin = Who { key: String::new(), name: "test".into(), scope: Scope::Admin };
    let asked = || fake.state.asked.load(Ordering::SeqCst);
    let mut reached = Vec::new();
    for (method, path) in calls {
        for spelled in spellings(&path) {
            let head = format!("{method} {spelled} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
            let rest = "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            let before = asked();
            let answer = raw(&world, &format!("{head}{rest}")).await;
            assert_eq!(asked(), before, "a stranger reached a desk by {method} {spelled}: {answer}");
            // A key of its own, so that the line which is due once in a minute is due now.
            let new = hotdesk_api::fleet::NewKey { name: "one".into(), scope: Scope::Admin, ttl_s: 0, max_desks: None };
            let made = world.fleet.make_key(&admin, new).await.unwrap();
            raw(&world, &format!("{head}authorization: Bearer {}\r\n{rest}", made.secret)).await;
            if asked() > before {
                reached.push((made.key.id, format!("{method} {spelled}")));
            }
        }
    }
    assert!(reached.len() > 50, "{}", reached.len());
    let mut missing = Vec::new();
    until("whatever reached the desk is in the audit log", async || {
        let keys: HashSet<String> = lines(&world).await.into_iter().map(|line| line.key).collect();
        missing = reached.iter().filter(|(key, _)| !keys.contains(key)).map(|(_, call)| call.clone()).collect::<Vec<_>>();
        missing.is_empty() || keys.len() > reached.len()
    })
    .await;
    assert_eq!(missing, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn two_lengths_of_a_body_smuggle_nothing() {
    let world = world().await;
    let (desk, fake) = world.desk().await;
    let count = || fake.state.count.load(Ordering::SeqCst);
    let hidden =
        format!("POST /v1/desks/{}/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", desk.id);
    let head = format!(
        "POST /v1/desks/{}/back HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n",
        desk.id, world.admin
    );
    let long = hidden.len() + 5;
    for lengths in [
        format!("content-length: {long}\r\ntransfer-encoding: chunked\r\n"),
        format!("transfer-encoding: chunked\r\ncontent-length: {long}\r\n"),
        "content-length: 5\r\ntransfer-encoding: chunked\r\n".to_owned(),
        format!("content-length: 5\r\ncontent-length: {long}\r\n"),
        format!("content-length: {long}\r\ntransfer-encoding: identity\r\n"),
        format!("content-length: {long}\r\ntransfer-encoding: chunked, identity\r\n"),
        format!("content-length: {long}\r\ntransfer-encoding:\x0bchunked\r\n"),
    ] {
        let answer = raw(&world, &format!("{head}{lengths}\r\n0\r\n\r\n{hidden}")).await;
        let status = &answer[..answer.len().min(12)];
        assert!(["HTTP/1.1 200", "HTTP/1.1 400"].contains(&status), "{lengths:?}: {answer}");
        assert_eq!(count(), 0, "{lengths:?} smuggled a request: {answer}");
    }
    // The desk is told one length, and the right one.
    let path = format!("/v1/desks/{}/echo", desk.id);
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n", world.admin);
    let answer =
        raw(&world, &format!("{head}content-length: 9\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")).await;
    assert!(answer.contains(r#""body":"abc""#) && !answer.contains(r#""content-length":"9""#), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn nobody_takes_away_what_the_gateway_adds() {
    let world = world().await;
    let (desk, _) = world.desk().await;
    let named = "authorization, x-forwarded-for, x-forwarded-proto, x-forwarded-host, content-length, host";
    let answer = raw(
        &world,
        &format!(
            "POST /v1/desks/{}/echo HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\nconnection: close, {named}\r\n\
             x-http-method-override: DELETE\r\nx-forwarded-for: 6.6.6.6\r\ncontent-length: 3\r\n\r\nabc",
            desk.id, world.admin
        ),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "the desk's secret was taken away: {answer}");
    for wanted in [r#""body":"abc""#, r#""method":"POST""#, r#""x-forwarded-for":"127.0.0.1""#] {
        assert!(answer.contains(wanted), "{wanted}: {answer}");
    }
    // The host of an absolute address is no way around the header.
    let sandbox = format!("8000-{}.localhost", sandbox_id(&desk));
    let answer =
        raw(&world, &format!("GET http://{sandbox}/v1/desks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    for hosts in [format!("host: localhost\r\nhost: {sandbox}\r\n"), format!("host: {sandbox}\r\nhost: localhost\r\n")] {
        let answer = raw(&world, &format!("GET /v1/desks HTTP/1.1\r\n{hosts}connection: close\r\n\r\n")).await;
        let status = &answer[..answer.len().min(12)];
        assert!(["HTTP/1.1 400", "HTTP/1.1 401", "HTTP/1.1 404"].contains(&status), "{hosts:?}: {answer}");
    }
    world.end().await;
}

#[tokio::test]
async fn an_upgrade_sets_no_cookies_of_ours() {
    let world = world().await;
    let (desk, _) = world.desk().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = async |upgrade: WebSocketUpgrade| {
        let mut response = upgrade.on_upgrade(async |_| ());
        for cookie in
            ["hotdesk-session=theirs; Path=/", "__Host-hotdesk-session=theirs; Path=/", "daytona-sandbox-auth=x", "own=1; Path=/"]
        {
            response.headers_mut().append(header::SET_COOKIE, cookie.parse().unwrap());
        }
        response
    };
    let app = axum::Router::new().route("/socket", axum::routing::any(socket));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let url = format!("{}/v1/desks/{}/ports/{port}/socket", world.url.replace("http", "ws"), desk.id);
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {}", world.admin).parse().unwrap());
    let (_socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
    let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap()).collect();
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    assert!(cookies[0].starts_with("own=1") && cookies[0].contains(&format!("/ports/{port}")), "{cookies:?}");
    world.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_is_written_down() {
    let world = world().await;
    let (desk, fake) = world.desk().await;
    let asked = tokio::spawn(world.ask(Method::POST, &format!("/v1/desks/{}/slow", desk.id), &world.admin).send());
    until("the desk works", async || fake.state.waiting.load(Ordering::SeqCst) == 1).await;
    asked.abort();
    until("it is in the audit log", async || {
        lines(&world).await.iter().any(|line| line.path.ends_with("/slow") && line.status == 499)
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn nothing_is_done_that_can_not_be_written_down() {
    let world = world().await;
    let (desk, fake) = world.desk().await;
    let mut taken = Vec::new();
    while let Ok(place) = world.fleet.audit_place() {
        taken.push(place);
    }
    let count = format!("/v1/desks/{}/count", desk.id);
    let daytona = format!("/daytona/toolbox/{}/process/execute", desk.id);
    for (method, path) in
        [(Method::POST, &*count), (Method::POST, &daytona), (Method::POST, "/v1/desks"), (Method::DELETE, "/v1/keys/k")]
    {
        let response = world.ask(method.clone(), path, &world.admin).json(&json!({})).send().await.unwrap();
        let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
        assert!(status == 503 && text.contains("audit log"), "{method} {path}: {status} {text}");
    }
    assert_eq!(fake.state.count.load(Ordering::SeqCst), 0);
    assert_eq!(world.get("/v1/desks").await.status(), 200, "what is not written down goes on");
    // Strangers are refused as ever, and fill nothing.
    assert_eq!(world.ask(Method::POST, &count, "hd_wrong").send().await.unwrap().status(), 401);
    drop(taken);
    assert_eq!(world.post(&count, json!({})).await.status(), 200);
    world.end().await;
}
