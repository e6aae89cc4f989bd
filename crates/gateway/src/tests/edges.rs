//! Mistakes, limits, browsers, and the end.

use super::*;
use crate::{Rate, Rates};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn each_mistake_has_its_status() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let path = format!("/v1/desks/{}", desk.id);
    let wrong = world.ask(Method::PUT, &path, &world.admin).send().await.unwrap();
    assert_eq!(wrong.status(), 405);
    let allowed = wrong.headers()["allow"].to_str().unwrap().to_owned();
    for method in ["GET", "PATCH", "DELETE"] {
        assert!(allowed.contains(method), "{allowed}");
    }
    assert_eq!(problem(wrong).await.code, "method_not_allowed");
    let strange = world.ask(Method::from_bytes(b"BREW").unwrap(), "/v1/desks", &world.admin).send().await.unwrap();
    assert_eq!(strange.status(), 405);
    let trace = world.ask(Method::TRACE, &format!("{path}/screenshot"), &world.admin).send().await.unwrap();
    assert!(trace.headers().contains_key("allow"));
    assert_eq!(problem(trace).await.status, 405, "would show the desk's secret");
    assert_eq!(problem(world.get("/v1/nowhere").await).await.status, 404);
    assert_eq!(problem(world.get("/nowhere").await).await.status, 404);
    let text = world.ask(Method::POST, "/v1/desks", &world.admin).header("content-type", "text/plain").body("{}");
    assert_eq!(problem(text.send().await.unwrap()).await.status, 415);
    let json =
        |body: Vec<u8>| world.ask(Method::POST, "/v1/desks", &world.admin).header("content-type", "application/json").body(body);
    assert_eq!(problem(json(b"{".to_vec()).send().await.unwrap()).await.status, 400);
    assert_eq!(problem(json(b"{\"colour\": 1}".to_vec()).send().await.unwrap()).await.status, 400);
    assert_eq!(problem(json(vec![b' '; 2 << 20]).send().await.unwrap()).await.status, 413);
    for path in [
        "/v1/desks?colour=red",
        "/v1/desks?label=x",
        "/v1/desks?state=sleepy",
        "/v1/events?limit=0",
        "/v1/events?after=-1",
        "/v1/audit?limit=x",
    ] {
        assert_eq!(problem(world.get(path).await).await.status, 400, "{path}");
    }
    assert_eq!(problem(world.get("/v1/desks/a%00b").await).await.status, 400);
    assert!([400, 404].contains(&problem(world.get("/v1/desks/%ff").await).await.status));
    // A refused upload is heard out, so that the client sees why.
    let large =
        world.client.put(format!("{}{path}/files/content?path=x", world.url)).body(vec![0; 20 << 20]).send().await.unwrap();
    assert_eq!(large.status(), 401);
    world.end().await;
}

#[tokio::test]
async fn limits_hold_per_key_and_lock_nobody_out() {
    let rates =
        Rates { control: Rate { per_second: 1, burst: 5 }, failures: Rate { per_second: 1, burst: 3 }, ..Rates::default() };
    let world = World::with(Config { rates, ..Config::default() }).await;
    let fleet = async |key: &str| world.ask(Method::GET, "/v1/fleet", key).send().await.unwrap();
    for _ in 0..3 {
        assert_eq!(fleet("hd_wrong").await.status(), 401);
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(fleet("hd_wrong").await.status().as_u16());
    }
    assert!(seen.contains(&429), "{seen:?}");
    assert_eq!(fleet(&world.admin).await.status(), 200, "a good key is let in from the same address");
    let mut refused = None;
    for _ in 0..20 {
        let response = fleet(&world.admin).await;
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("a limit");
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert!(problem(refused).await.retry);
    world.end().await;
}

#[tokio::test]
async fn a_client_behind_a_proxy_is_limited_and_written_down_as_itself() {
    let rates = Rates { failures: Rate { per_second: 1, burst: 3 }, ..Rates::default() };
    let proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
    let world = World::with(Config { rates, proxies, open_metrics: true, ..Config::default() }).await;
    let ask = async |path: &str, client: &str| {
        let request = world.client.get(format!("{}{path}", world.url)).header("x-forwarded-for", client);
        request.send().await.unwrap().status().as_u16()
    };
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(ask("/v1/fleet", "6.6.6.6, 192.0.2.1").await);
    }
    assert!(seen.contains(&429), "{seen:?}");
    assert_eq!(ask("/v1/fleet", "192.0.2.2").await, 401, "another client is not locked out");
    assert_eq!(ask("/metrics", "192.0.2.3").await, 401, "a client elsewhere is no program of this machine");
    assert_eq!(world.client.get(format!("{}/metrics", world.url)).send().await.unwrap().status(), 200);
    until("the client's address is in the audit log", async || {
        let list: Value = world.get("/v1/audit?limit=100").await.json().await.unwrap();
        list["lines"].as_array().unwrap().iter().any(|line| line["from"] == "192.0.2.1")
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing() {
    let world = World::with(Config { origins: vec!["https://board.example".into()], ..Config::default() }).await;
    let get = |path: &str| world.client.get(format!("{}{path}", world.url));
    assert_eq!(get("/health").send().await.unwrap().status(), 200);
    assert_eq!(get("/health").header("host", "evil.example").send().await.unwrap().status(), 403);
    assert_eq!(get("/health").header("origin", "https://evil.example").send().await.unwrap().status(), 403);
    let own = get("/v1/fleet").bearer_auth(&world.admin).header("origin", "https://board.example").send().await.unwrap();
    assert_eq!(own.headers()["access-control-allow-origin"], "https://board.example");
    let other = get("/v1/fleet").bearer_auth(&world.admin).header("origin", "https://evil.example").send().await.unwrap();
    assert!(other.headers().get("access-control-allow-origin").is_none());
    let first = world
        .client
        .request(Method::OPTIONS, format!("{}/v1/desks", world.url))
        .header("origin", "https://board.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type");
    let first = first.send().await.unwrap();
    assert_eq!(first.status(), 204);
    assert_eq!(first.headers()["access-control-allow-headers"], "authorization,content-type");
    world.end().await;
}

#[tokio::test]
async fn the_end_lets_requests_finish_and_desks_go_on() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let slow = tokio::spawn(world.ask(Method::POST, &format!("/v1/desks/{}/slow", desk.id), &world.admin).send());
    until("it is under way", async || fake.state.waiting.load(Ordering::SeqCst) == 1).await;
    let mut events =
        world.ask(Method::GET, "/v1/events", &world.admin).header("accept", "text/event-stream").send().await.unwrap();
    assert!(events.chunk().await.unwrap().is_some());
    let url = format!("{}/v1/desks/{}/view?key={}", world.url.replace("http", "ws"), desk.id, world.admin);
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();

    world.shutdown.cancel();
    while events.chunk().await.unwrap().is_some() {}
    let end = tokio::time::timeout(PATIENCE, futures_util::StreamExt::next(&mut socket)).await.expect("the tunnel ends");
    assert!(end.is_none_or(|message| message.is_err()));
    until("nobody is let in", async || world.client.get(format!("{}/health", world.url)).send().await.is_err()).await;
    fake.state.go.notify_one();
    assert_eq!(slow.await.unwrap().unwrap().text().await.unwrap(), "at last");
    tokio::time::timeout(PATIENCE, world.running).await.expect("the gateway ends").unwrap();
    assert!(world.provider.desk(&desk.id).is_some(), "the desk goes on");
    world.fleet.close().await;
}
