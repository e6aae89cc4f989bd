//! The dialect of `docs/dialects.md`: what is written there is what runs.

use super::*;

#[tokio::test]
async fn a_dialect_is_one_file_and_one_line() {
    let world = World::new().await;
    let refused = world.client.post(format!("{}/tiny/boxes", world.url)).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert!(refused.json::<Value>().await.unwrap()["error"].as_str().unwrap().contains("key"), "in the dialect's own form");
    let made: Value = world.post("/tiny/boxes", json!({})).await.json().await.unwrap();
    let id = made["box"].as_str().unwrap();
    let picture = world.get(&format!("/tiny/boxes/{id}/picture")).await;
    assert_eq!((picture.status().as_u16(), picture.headers()["content-type"].to_str().unwrap()), (200, "image/png"));
    let other = world.project_key("other").await;
    assert_eq!(world.ask(Method::GET, &format!("/tiny/boxes/{id}/picture"), &other).send().await.unwrap().status(), 404);
    until("both are in the audit log", async || {
        let list: Value = world.get("/v1/audit?limit=100").await.json().await.unwrap();
        let has = |path: &str| list["lines"].as_array().unwrap().iter().any(|line| line["path"] == path);
        has("/tiny/boxes") && has(&format!("/tiny/boxes/{id}/picture"))
    })
    .await;
    world.end().await;
}

#[test]
fn the_walk_through_shows_it_whole() {
    let page = include_str!("../../../../docs/dialects.md");
    let source = include_str!("../dialects/tiny.rs");
    assert!(page.contains(source.trim()), "docs/dialects.md shows crates/gateway/src/dialects/tiny.rs, and differs from it");
    assert!(source.lines().count() < 100);
}
