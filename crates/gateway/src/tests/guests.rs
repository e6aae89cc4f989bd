//! Those who come without a key: by a link, by a token of a sandbox, to a public port. Each holds a right to one thing, for a time.

use super::*;
use axum::Router;
use axum::extract::Request;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::IntoResponse;
use axum::routing::any;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// What makes a desk a sandbox of E2B's.
const E2B: &str = "e2b:sandbox";

/// A program in a desk: it answers with the path, and keeps WebSockets open.
async fn program() -> u16 {
    program_on(0).await.expect("a free port")
}

async fn program_on(port: u16) -> Option<u16> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.ok()?;
    let port = listener.local_addr().unwrap().port();
    let hold =
        async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(async |mut socket| while let Some(Ok(_)) = socket.next().await {});
    let seen = async |request: Request| format!("the program saw {}", request.uri()).into_response();
    let stream = async || {
        let parts = futures_util::stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((Ok::<_, std::io::Error>("part\n"), ()))
        });
        axum::body::Body::from_stream(parts)
    };
    let app = Router::new().route("/socket", any(hold)).route("/stream", any(stream)).fallback(seen);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Some(port)
}

pub(super) fn sandbox_id(desk: &Desk) -> String {
    format!("i{}", desk.id.trim_start_matches("d-"))
}

/// A request without a key.
fn stranger(world: &World, path: &str) -> reqwest::RequestBuilder {
    world.client.get(format!("{}{path}", world.url))
}

fn to_port(world: &World, desk: &Desk, port: u16, path: &str) -> reqwest::RequestBuilder {
    stranger(world, path).header("e2b-sandbox-id", sandbox_id(desk)).header("e2b-sandbox-port", port.to_string())
}

async fn audit(world: &World) -> Vec<Value> {
    let list: Value = world.get("/v1/audit?limit=500").await.json().await.unwrap();
    list["lines"].as_array().unwrap().clone()
}

/// A sandbox of Daytona's.
async fn daytona(world: &World, request: Value) -> (u16, Value) {
    let response = world.post("/daytona/api/sandbox", request).await;
    let status = response.status().as_u16();
    (status, response.json().await.unwrap())
}

#[tokio::test]
async fn ports_of_desks_that_are_no_sandboxes_are_closed() {
    let world = World::new().await;
    let port = program().await;
    let (native, _) = world.desk().await;
    let (_, daytona) = daytona(&world, json!({"public": false})).await;
    let daytona: Desk = world.get(&format!("/v1/desks/{}", daytona["id"].as_str().unwrap())).await.json().await.unwrap();
    let (foreign, _) = world.desk_with(json!({"project": "other"})).await;
    for desk in [&native, &daytona, &foreign] {
        let before: Desk = world.get(&format!("/v1/desks/{}", desk.id)).await.json().await.unwrap();
        for request in [
            to_port(&world, desk, port, "/passwd"),
            to_port(&world, desk, 49983, "/health").header("x-access-token", "x"),
            stranger(&world, "/passwd").header("host", format!("{port}-{}.localhost", sandbox_id(desk))),
            stranger(&world, "/passwd").header("host", format!("{port}-{}.evil.example", sandbox_id(desk))),
        ] {
            let response = request.send().await.unwrap();
            let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
            assert!([401, 403, 404, 502].contains(&status) && !text.contains("the program saw"), "{} {status} {text}", desk.id);
        }
        // The same words as for a desk that is not there.
        let known = to_port(&world, desk, port, "/").send().await.unwrap();
        let unknown =
            stranger(&world, "/").header("e2b-sandbox-id", "ibbbbbbbbbbbb").header("e2b-sandbox-port", port.to_string());
        let unknown = unknown.send().await.unwrap();
        assert_eq!((known.status().as_u16(), unknown.status().as_u16()), (404, 404));
        assert_eq!(known.text().await.unwrap(), unknown.text().await.unwrap());
        let after: Desk = world.get(&format!("/v1/desks/{}", desk.id)).await.json().await.unwrap();
        assert!(after.idle_s >= before.idle_s, "a stranger keeps no desk awake");
    }
    world.end().await;
}

#[tokio::test]
async fn ports_of_sandboxes_are_for_programs_and_written_down() {
    let world = World::new().await;
    let port = program().await;
    let (desk, _) = world.desk_with(json!({"labels": {E2B: "1"}})).await;
    let text = to_port(&world, &desk, port, "/x").send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "the program saw /x");
    let host = |domain: &str| format!("{port}-{}.{domain}", sandbox_id(&desk));
    for domain in ["localhost", "e2b.app"] {
        assert_eq!(stranger(&world, "/x").header("host", host(domain)).send().await.unwrap().status(), 200, "{domain}");
    }
    // A page whose name was made to point here, and a page of another site.
    assert_eq!(stranger(&world, "/x").header("host", host("evil.example")).send().await.unwrap().status(), 403);
    let crossed = to_port(&world, &desk, port, "/x").header("origin", "https://evil.example").send().await.unwrap();
    assert_eq!(crossed.status(), 403);
    until("the use of the port is in the audit log", async || {
        let lines = audit(&world).await;
        lines
            .iter()
            .any(|line| line["key"] == format!("e2b:{}", sandbox_id(&desk)) && line["path"] == "/x" && line["status"] == 200)
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn a_public_sandbox_never_shows_the_desk_itself() {
    let world = World::new().await;
    let (status, made) = daytona(&world, json!({"public": true})).await;
    assert_eq!(status, 200, "{made}");
    let id = made["id"].as_str().unwrap();
    // Every port with a meaning of its own, and the command that OSWorld's server would execute.
    for port in [2280, 5000, 22_222, 33_333] {
        for path in ["execute", "v1/processes/run", "process/execute", ""] {
            let url = format!("{}/daytona/preview/{id}/{port}/{path}", world.url);
            let response =
                world.client.post(url).json(&json!({"command": ["echo", "owned"], "shell": false})).send().await.unwrap();
            let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
            assert!([401, 403].contains(&status) && !text.contains("owned"), "{port}/{path}: {status} {text}");
        }
    }
    let port = program().await;
    let text = stranger(&world, &format!("/daytona/preview/{id}/{port}/x")).send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "the program saw /x", "what programs offer is public");
    // With the token of the port it is the desk, as before.
    let link: Value = world.get(&format!("/daytona/api/sandbox/{id}/ports/5000/preview-url")).await.json().await.unwrap();
    let url = format!("{}/daytona/preview/{id}/5000/execute", world.url);
    let request = world.client.post(url).header("x-daytona-preview-token", link["token"].as_str().unwrap());
    let response = request.json(&json!({"command": ["echo", "mine"]})).send().await.unwrap();
    assert!(response.text().await.unwrap().contains("mine"));
    world.end().await;
}

#[tokio::test]
async fn wishes_that_cannot_be_kept_are_refused() {
    let world = World::new().await;
    for network in [
        json!({"denyOut": ["0.0.0.0/0"]}),
        json!({"allowOut": ["10.0.0.0/8"]}),
        json!({"rules": {"example.com": []}}),
        json!({"egressProxy": "http://proxy.example"}),
        json!({"somethingNew": true}),
        json!(["0.0.0.0/0"]),
    ] {
        let wish = json!({"templateID": "bare", "network": network});
        let request = world.client.post(format!("{}/sandboxes", world.url)).header("x-api-key", &world.admin).json(&wish);
        let response = request.send().await.unwrap();
        let (status, told) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
        assert!([400, 501].contains(&status), "{wish}: {status} {told}");
        assert_eq!((told["code"].as_u64(), told["message"].is_string()), (Some(status.into()), true), "{told}");
    }
    // What asks for nothing is no wish.
    let wish = json!({"templateID": "bare", "network": {"allowOut": [], "denyOut": [], "rules": {}, "allowPublicTraffic": true}});
    let request = world.client.post(format!("{}/sandboxes", world.url)).header("x-api-key", &world.admin).json(&wish);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 201, "{}", response.text().await.unwrap());

    for wish in [
        json!({"networkAllowList": "10.0.0.0/8"}),
        json!({"domainAllowList": "example.com"}),
        json!({"outboundProxyUrl": "http://proxy.example"}),
        json!([]),
        json!(["name"]),
    ] {
        let (status, told) = daytona(&world, wish.clone()).await;
        assert!([400, 422, 501].contains(&status), "{wish}: {status} {told}");
        assert_eq!((told["statusCode"].as_u64(), told["message"].is_string()), (Some(status.into()), true), "{told}");
    }
    for (wish, blocked) in
        [(json!({"networkBlockAll": true}), true), (json!({"networkAllowList": "", "networkBlockAll": false}), false)]
    {
        let (status, told) = daytona(&world, wish.clone()).await;
        assert_eq!((status, &told["networkBlockAll"]), (200, &json!(blocked)), "{wish}: {told}");
        let again: Value =
            world.get(&format!("/daytona/api/sandbox/{}", told["id"].as_str().unwrap())).await.json().await.unwrap();
        assert_eq!(again["networkBlockAll"], blocked, "the answer is what is so");
    }
    world.end().await;
}

#[tokio::test]
async fn what_a_desk_knows_opens_nothing_at_the_gateway() {
    let world = World::new().await;
    let (desk, _) = world.desk_with(json!({"labels": {E2B: "1"}})).await;
    // The desk's own secret, which programs in it can read.
    let who = crate::metrics::internal();
    let secret = world.fleet.glance(&who, &desk.id).await.unwrap().secret;
    let derived: String = Sha256::new()
        .chain_update("hotdesk e2b sandbox")
        .chain_update([0])
        .chain_update(&secret)
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let list = async |token: &str| {
        let request = world.client.post(format!("{}/process.Process/List", world.url)).json(&json!({}));
        let request = request.header("e2b-sandbox-id", sandbox_id(&desk)).header("e2b-sandbox-port", "49983");
        request.header("x-access-token", token).send().await.unwrap().status().as_u16()
    };
    for token in [&derived, &secret, "", "x"] {
        assert_eq!(list(token).await, 401, "{token}");
    }
    let told: Value = world.get(&format!("/sandboxes/{}", sandbox_id(&desk))).await.json().await.unwrap();
    let token = told["envdAccessToken"].as_str().unwrap().to_owned();
    assert_ne!(list(&token).await, 401, "the fleet's own");
    // It names no other sandbox, and none that is no sandbox.
    let (native, _) = world.desk().await;
    let other = token.replace(desk.id.trim_start_matches("d-"), native.id.trim_start_matches("d-"));
    let request =
        world.client.post(format!("{}/process.Process/List", world.url)).json(&json!({})).header("x-access-token", &other);
    assert!([401, 502].contains(&request.send().await.unwrap().status().as_u16()));
    let told = world.get(&format!("/sandboxes/{}", sandbox_id(&native))).await;
    assert!(told.status() == 404 || told.json::<Value>().await.unwrap().get("envdAccessToken").is_none());
    world.end().await;
}

#[tokio::test]
async fn strangers_make_no_work() {
    let rates = crate::Rates { keyless: crate::Rate { per_second: 1, burst: 5 }, ..Default::default() };
    let world = World::with(Config { rates, ..Config::default() }).await;
    for (path, headers) in [
        ("/health", vec![("x-access-token", "x")]),
        ("/files?path=a&signature=v1_x", vec![]),
        ("/process.Process/List", vec![("x-access-token", "x")]),
        ("/x", vec![("e2b-sandbox-id", "ibbbbbbbbbbbb"), ("e2b-sandbox-port", "80")]),
    ] {
        let mut refused = false;
        for _ in 0..10 {
            let mut request = if path.starts_with("/process") {
                world.client.post(format!("{}{path}", world.url))
            } else {
                stranger(&world, path)
            };
            for (name, value) in &headers {
                request = request.header(*name, *value);
            }
            refused |= request.send().await.unwrap().status() == 429;
        }
        assert!(refused, "{path} has no limit");
    }
    world.end().await;
}

#[tokio::test]
async fn a_page_of_a_port_loads_what_belongs_to_it() {
    let world = World::new().await;
    let port = program().await;
    let (_, made) = daytona(&world, json!({})).await;
    let id = made["id"].as_str().unwrap();
    let link: Value = world.get(&format!("/daytona/api/sandbox/{id}/ports/{port}/preview-url")).await.json().await.unwrap();
    let token = link["token"].as_str().unwrap();
    // A browser that opens the link with the token gets it into the path, where what the page loads has it too.
    let opened = stranger(&world, &format!("/daytona/preview/{id}/{port}/a/?x=1&DAYTONA_SANDBOX_AUTH_KEY={token}"));
    let opened = opened.header("sec-fetch-mode", "navigate").send().await.unwrap();
    let place = opened.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!((opened.status().as_u16(), place.as_str()), (303, format!("/daytona/preview/{token}/{port}/a/?x=1").as_str()));
    // Its scripts and calls come with nobody's origin.
    let loaded = stranger(&world, &place).header("origin", "null").send().await.unwrap();
    assert_eq!((loaded.status().as_u16(), &loaded.headers()["access-control-allow-origin"]), (200, &"null".parse().unwrap()));
    assert!(!loaded.headers().contains_key("access-control-allow-credentials"));
    let asked = world.client.request(Method::OPTIONS, format!("{}{place}", world.url)).header("origin", "null");
    let asked = asked.header("access-control-request-method", "PUT").send().await.unwrap();
    assert_eq!((asked.status().as_u16(), &asked.headers()["access-control-allow-methods"]), (204, &"PUT".parse().unwrap()));
    let wrong = place.replace(token, &format!("{}x", &token[..token.len() - 1]));
    assert_eq!(stranger(&world, &wrong).header("origin", "null").send().await.unwrap().status(), 401);
    // Nobody's origin reads nothing else.
    let api = world.ask(Method::GET, "/v1/desks", &world.admin).header("origin", "null").send().await.unwrap();
    assert!(!api.headers().contains_key("access-control-allow-origin"));
    world.end().await;
}

#[tokio::test]
async fn cookies_are_for_tls_where_there_is_tls() {
    for (public, secure) in [(None, false), (Some("https://desks.example".to_owned()), true)] {
        let world = World::with(Config { public_url: public, ..Config::default() }).await;
        let port = program().await;
        let (_, made) = daytona(&world, json!({})).await;
        let id = made["id"].as_str().unwrap();
        let link: Value = world.get(&format!("/daytona/api/sandbox/{id}/ports/{port}/preview-url")).await.json().await.unwrap();
        let token = link["token"].as_str().unwrap();
        let opened = stranger(&world, &format!("/daytona/preview/{id}/{port}/?DAYTONA_SANDBOX_AUTH_KEY={token}"));
        let signed_in = world.client.post(format!("{}/v1/session", world.url)).json(&json!({"key": world.admin}));
        for request in [opened, signed_in] {
            let response = request.send().await.unwrap();
            let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
            assert!(cookie.contains("; HttpOnly; SameSite=") && cookie.contains("; Secure") == secure, "{cookie}");
        }
        world.end().await;
    }
}

/// A WebSocket of somebody without a key.
async fn socket(
    world: &World,
    path: &str,
    headers: &[(&'static str, String)],
) -> tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>> {
    let mut request = format!("{}{path}", world.url.replace("http", "ws")).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    tokio_tungstenite::connect_async(request).await.unwrap().0
}

#[tokio::test]
async fn a_signature_that_has_ended_is_told_so() {
    let world = World::new().await;
    let made = world.post("/v2/sandboxes", json!({"templateID": "bare"})).await;
    assert_eq!(made.status(), 201);
    let made: Value = made.json().await.unwrap();
    let token = made["envdAccessToken"].as_str().unwrap();
    let read = async |end: i64, change: &str| {
        let digest = Sha256::digest(format!("/a.txt:read::{token}:{end}"));
        let signature = base64::Engine::encode(&base64::prelude::BASE64_STANDARD_NO_PAD, digest);
        let signature: String = format!("v1_{signature}{change}").bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/files?path=/a.txt&signature={signature}&signature_expiration={end}");
        let answer = stranger(&world, &path).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let now = jiff::Timestamp::now().as_second();
    assert_eq!(read(now - 10, "").await, (401, json!({"code": 401, "message": "signature is already expired"})));
    let (status, told) = read(now - 10, "x").await;
    assert!(status == 401 && told["message"] != "signature is already expired", "a wrong one is not told that much: {told}");
    assert_eq!(read(now + 600, "").await.0, 200);
    world.end().await;
}

#[tokio::test]
async fn tunnels_of_guests_end_with_their_right() {
    let world = World::new().await;
    let port = program().await;
    let (_, made) = daytona(&world, json!({"public": true})).await;
    let id = made["id"].as_str().unwrap().to_owned();
    let signed = async |seconds: u32| -> Value {
        let path = format!("/daytona/api/sandbox/{id}/ports/{port}/signed-preview-url?expiresInSeconds={seconds}");
        world.get(&path).await.json().await.unwrap()
    };
    let by = |name: &str| format!("/daytona/preview/{name}/{port}/socket");
    let (short, taken) = (signed(2).await, signed(600).await);
    let (e2b, _) = world.desk_with(json!({"labels": {E2B: "1"}})).await;
    let place = [("e2b-sandbox-id", sandbox_id(&e2b)), ("e2b-sandbox-port", port.to_string())];
    let mut sockets = vec![
        ("a link that ends", socket(&world, &by(short["token"].as_str().unwrap()), &[]).await),
        ("a link that was taken back", socket(&world, &by(taken["token"].as_str().unwrap()), &[]).await),
        ("a sandbox that is public no more", socket(&world, &by(&id), &[]).await),
        ("a sandbox that is one no more", socket(&world, "/socket", &place).await),
    ];
    // An answer without an end is a tunnel, too.
    let path = format!("/daytona/preview/{}/{port}/stream", signed(2).await["token"].as_str().unwrap());
    let mut stream = stranger(&world, &path).send().await.unwrap();
    let token = taken["token"].as_str().unwrap();
    let expired =
        world.post(&format!("/daytona/api/sandbox/{id}/ports/{port}/signed-preview-url/{token}/expire"), json!({})).await;
    assert_eq!(expired.status(), 200);
    assert_eq!(world.post(&format!("/daytona/api/sandbox/{id}/public/false"), json!({})).await.status(), 200);
    let change = world.ask(Method::PATCH, &format!("/v1/desks/{}", e2b.id), &world.admin).json(&json!({"labels": {E2B: null}}));
    assert_eq!(change.send().await.unwrap().status(), 200);
    for (what, socket) in &mut sockets {
        let end = tokio::time::timeout(PATIENCE, socket.next()).await;
        assert!(end.unwrap_or_else(|_| panic!("{what} keeps its tunnel")).is_none_or(|message| message.is_err()), "{what}");
    }
    let end = async { while let Ok(Some(_)) = stream.chunk().await {} };
    tokio::time::timeout(PATIENCE, end).await.expect("an answer outlives the link");
    world.end().await;
}
