//! The dashboard's files: without a key, with the right headers, and nothing else opened with them.

use super::*;

#[tokio::test]
async fn the_page_needs_no_key_and_lets_nothing_else_in() {
    let world = World::new().await;
    let get = async |path: &str| world.client.get(format!("{}{path}", world.url)).send().await.unwrap();
    for path in ["/", "/fleet", "/desks/d-1", "/desks/d-1/traces/t-1"] {
        let answer = get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/html"), "{path}");
        let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        let text = answer.text().await.unwrap();
        assert!(text.contains("hotdesk") && !text.contains("//cdn"), "{text}");
    }
    assert_eq!(get("/assets/none.js").await.status(), 404);
    for path in ["/v1/desks", "/v1/fleet", "/desks", "/fleet/x", "/assets"] {
        assert_eq!(get(path).await.status(), 401, "{path}");
    }
    let changed = world.client.post(format!("{}/", world.url)).send().await.unwrap();
    assert_eq!(changed.status(), 401);
    world.end().await;
}

#[tokio::test]
async fn what_a_browser_has_is_not_sent_again() {
    let world = World::new().await;
    let ask = || world.client.get(&world.url);
    let first = ask().send().await.unwrap();
    // A tree where nobody built the page has nothing to keep.
    if let Some(tag) = first.headers().get("etag").cloned() {
        let again = ask().header("if-none-match", tag).send().await.unwrap();
        assert_eq!(again.status(), 304);
        assert_eq!(again.bytes().await.unwrap().len(), 0);
    } else {
        assert!(first.text().await.unwrap().contains("make build"));
    }
    world.end().await;
}

#[tokio::test]
async fn a_glance_is_no_work() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let busy = async || world.get(&format!("/v1/desks/{}", desk.id)).await.json::<Value>().await.unwrap()["busy"].clone();
    let path = format!("/v1/desks/{}/screenshot", desk.id);
    let glance = world.ask(Method::GET, &path, &world.admin).header("x-hotdesk-glance", "1").send().await.unwrap();
    assert_eq!((glance.status(), busy().await), (StatusCode::OK, Value::Null));
    assert_eq!((world.get(&path).await.status(), busy().await), (StatusCode::OK, json!("api call")));
    world.end().await;
}
