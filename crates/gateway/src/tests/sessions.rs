//! Browsers: who signs in has a cookie that no page of a desk can use; and what desks serve gets no hold of the dashboard's origin.

use super::*;
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

async fn sign_in(world: &World, key: &str) -> Response {
    let request = world.client.post(format!("{}/v1/session", world.url)).header("origin", &world.url);
    request.json(&json!({"key": key})).send().await.unwrap()
}

/// `name=value` of the session.
async fn cookie(world: &World, key: &str) -> String {
    let response = sign_in(world, key).await;
    assert_eq!(response.status(), 200);
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.split("; ").any(|one| one == part), "{cookie}");
    }
    assert!(!cookie.contains("hd_") && !response.text().await.unwrap().contains("hd_"));
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_for_the_dashboard_and_ends_with_its_key() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let made = world.key("person", Scope::Admin, 0).await;
    let cookie = cookie(&world, &made.secret).await;
    let ask = |method: Method, path: &str, headers: &[(&str, &str)]| {
        let mut request = world.client.request(method, format!("{}{path}", world.url)).header("cookie", &cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        async { request.send().await.unwrap() }
    };
    let own = [("origin", world.url.as_str())];
    assert_eq!(ask(Method::GET, "/v1/desks", &[]).await.status(), 200);
    let extend = format!("/v1/desks/{}/stop", desk.id);
    assert_eq!(ask(Method::GET, "/v1/session", &own).await.json::<Value>().await.unwrap()["name"], "person");
    // A page of a desk, of another site, of a name below ours; and one that says nothing.
    for headers in [
        &[("origin", "null")][..],
        &[("origin", "http://evil.example")],
        &[("origin", "http://8080-iabc.localhost:7700")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[],
    ] {
        let status = ask(Method::POST, &extend, headers).await.status().as_u16();
        assert!([401, 403].contains(&status), "{headers:?}: {status}");
    }
    for headers in [&[("origin", "null")][..], &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]] {
        let status = ask(Method::GET, "/v1/desks", headers).await.status().as_u16();
        assert!([401, 403].contains(&status), "{headers:?}: {status}");
    }
    let screen: Value = ask(Method::GET, &format!("/v1/desks/{}/echo", desk.id), &own).await.json().await.unwrap();
    assert!(!screen.to_string().contains(cookie.split('=').nth(1).unwrap()), "a desk never sees it: {screen}");
    assert_eq!(ask(Method::POST, &extend, &own).await.status(), 200, "the dashboard's own page");

    // Signed out, the cookie is nothing; and neither is that of a key that was revoked.
    let other = self::cookie(&world, &made.secret).await;
    assert_eq!(ask(Method::DELETE, "/v1/session", &own).await.status(), 204);
    assert_eq!(ask(Method::GET, "/v1/desks", &own).await.status(), 401);
    let by_other =
        async || world.client.get(format!("{}/v1/desks", world.url)).header("cookie", &other).send().await.unwrap().status();
    assert_eq!(by_other().await, 200);
    assert_eq!(world.delete(&format!("/v1/keys/{}", made.key.id)).await.status(), 204);
    assert_eq!(by_other().await, 401);
    world.end().await;
}

#[tokio::test]
async fn signing_in_is_limited_and_for_own_pages() {
    let rates = crate::Rates { failures: crate::Rate { per_second: 1, burst: 3 }, ..Default::default() };
    let world = World::with(Config { rates, ..Config::default() }).await;
    let foreign = world.client.post(format!("{}/v1/session", world.url)).header("origin", "http://evil.example");
    assert_eq!(foreign.json(&json!({"key": world.admin})).send().await.unwrap().status(), 403);
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(sign_in(&world, "hd_wrong").await.status().as_u16());
    }
    assert!(seen.contains(&401) && seen.contains(&429), "{seen:?}");
    assert_eq!(sign_in(&world, &world.admin).await.status(), 200, "a good key is let in");
    world.end().await;
}

#[tokio::test]
async fn a_session_is_no_key_in_the_store() {
    let world = World::new().await;
    let cookie = cookie(&world, &world.admin).await;
    let notes = world.fleet.store().notes("session").await.unwrap();
    assert_eq!(notes.len(), 1);
    let id = cookie.split('=').nth(1).unwrap();
    let all = format!("{notes:?}");
    assert!(!all.contains("hd_") && !all.contains(&world.admin) && !all.contains(id), "{all}");
    world.end().await;
}

/// A program in a desk that wants all of the origin.
async fn greedy() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let page = || async {
        let headers = [
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h3=\":1\""),
            ("content-security-policy", "default-src *"),
            ("content-type", "text/html"),
        ];
        let mut response = (headers, "<script>1</script>").into_response();
        for cookie in [
            "hotdesk-session=evil; Path=/",
            "__Host-hotdesk-session=evil; Path=/; Secure",
            "daytona-sandbox-auth=x",
            "mine=1; Domain=localhost; Path=/",
        ] {
            response.headers_mut().append(header::SET_COOKIE, cookie.parse().unwrap());
        }
        response
    };
    let app = Router::new().fallback(get(page));
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

#[tokio::test]
async fn what_desks_serve_has_an_origin_of_its_own() {
    let world = World::new().await;
    let port = greedy().await;
    let made: Value = world.post("/daytona/api/sandbox", json!({"public": true})).await.json().await.unwrap();
    let id = made["id"].as_str().unwrap();
    let (e2b, _) = world.desk_with(json!({"labels": {"e2b:sandbox": "1"}})).await;
    let get = |path: String| world.ask(Method::GET, &path, &world.admin);
    for request in [
        get(format!("/v1/desks/{id}/ports/{port}/x")),
        get(format!("/daytona/preview/{id}/{port}/x")),
        world.client.get(format!("{}/daytona/preview/{id}/{port}/x", world.url)),
        world
            .client
            .get(format!("{}/x", world.url))
            .header("e2b-sandbox-id", format!("i{}", &e2b.id[2..]))
            .header("e2b-sandbox-port", port.to_string()),
        get(format!("/v1/desks/{id}/files/content?path=x.html")),
        get(format!("/v1/desks/{id}/screenshot")),
        get("/v1/desks".into()),
    ] {
        let response = request.send().await.unwrap();
        let url = response.url().clone();
        assert_eq!(response.status(), 200, "{url}");
        let policies: Vec<_> =
            response.headers().get_all("content-security-policy").iter().map(|v| v.to_str().unwrap()).collect();
        let sandbox =
            policies.iter().find(|policy| policy.starts_with("sandbox")).unwrap_or_else(|| panic!("{url} {policies:?}"));
        assert!(!sandbox.contains("allow-same-origin") && !sandbox.contains("allow-top-navigation"), "{sandbox}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        for name in ["service-worker-allowed", "clear-site-data", "strict-transport-security", "alt-svc"] {
            assert!(!response.headers().contains_key(name), "{url} {name}");
        }
        for cookie in response.headers().get_all("set-cookie") {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.starts_with("mine=1") && !cookie.contains("Domain"), "{url} {cookie}");
        }
    }
    let worker = get(format!("/v1/desks/{id}/ports/{port}/sw.js")).header("service-worker", "script").send().await.unwrap();
    assert_eq!(worker.status(), 403);
    // The dashboard's own page is not one of them.
    let page = world.client.get(format!("{}/", world.url)).send().await.unwrap();
    assert!(!page.headers()["content-security-policy"].to_str().unwrap().contains("sandbox"));
    world.end().await;
}
