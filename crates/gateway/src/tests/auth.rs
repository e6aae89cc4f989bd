//! Every route of the description, without a key, with a foreign one, and with keys that are good no more.

use super::*;

/// Every operation: method, path, its body if it takes JSON, and whether it needs a key.
pub(super) fn operations(desk: &str, snapshot: &str) -> Vec<(Method, String, bool, bool)> {
    let document = serde_json::to_value(crate::openapi::document()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let id = if path.starts_with("/v1/snapshots") { snapshot } else { desk };
        let filled = path
            .replace("{id}", if path.starts_with("/v1/keys") { "k-aaaaaaaaaaaa" } else { id })
            .replace("{template}", "base")
            .replace("{name}", "base")
            .replace("{port}", "9222")
            .replace("{rest}", "screenshot")
            .replace("{path}", "x");
        assert!(!filled.contains('{'), "this test does not know how to fill {filled}");
        for (method, operation) in item.as_object().unwrap() {
            let open =
                operation["security"].as_array().is_some_and(|list| list.iter().any(|one| one.as_object().unwrap().is_empty()));
            let method = method.to_uppercase().parse().unwrap();
            found.push((method, filled.clone(), operation.get("requestBody").is_some(), open));
        }
    }
    found
}

#[tokio::test]
async fn every_route_is_closed() {
    let world = World::with(Config {
        rates: crate::Rates { failures: crate::Rate { per_second: 0, burst: 0 }, ..Default::default() },
        ..Config::default()
    })
    .await;
    let (desk, _) = world.desk().await;
    let snapshot: hotdesk_api::desk::Snapshot =
        world.post(&format!("/v1/desks/{}/snapshot", desk.id), json!({})).await.json().await.unwrap();
    let expired = world.key("short", Scope::Admin, 1).await.secret;
    let revoked = world.key("revoked", Scope::Admin, 0).await;
    assert_eq!(world.delete(&format!("/v1/keys/{}", revoked.key.id)).await.status(), 204);
    let rotated = world.key("rotated", Scope::Admin, 0).await;
    assert_eq!(world.post(&format!("/v1/keys/{}/rotate", rotated.key.id), json!({})).await.status(), 200);
    let usable = async |key: &str| world.ask(Method::GET, "/v1/fleet", key).send().await.unwrap().status() == 200;
    until("the key expires", async || !usable(&expired).await).await;

    let all = operations(&desk.id, &snapshot.id);
    assert!(all.len() > 45, "{}", all.len());
    let wrong = format!("hd_{}", "A".repeat(43));
    for (method, path, body, open) in &all {
        let send = async |key: Option<&str>| {
            let mut request = world.client.request(method.clone(), format!("{}{path}", world.url));
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            if *body {
                request = request.json(&json!({}));
            }
            request.send().await.unwrap()
        };
        for key in [None, Some(&*expired), Some(&*revoked.secret), Some(&*rotated.secret), Some(&*wrong), Some("x")] {
            let response = send(key).await;
            if *open {
                assert_eq!(response.status(), 200, "{method} {path} {key:?}");
                continue;
            }
            assert_eq!(response.status(), 401, "{method} {path} {key:?}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            assert_eq!(problem(response).await.code, "unauthorized");
        }
    }
    assert_eq!(
        all.iter().filter(|(.., open)| *open).count(),
        2,
        "`/health` and `/ready` are open, nothing else that is described"
    );

    // Nothing of it had an effect.
    let now: Desk = world.get(&format!("/v1/desks/{}", desk.id)).await.json().await.unwrap();
    assert_eq!(now.state, hotdesk_api::desk::State::Running);
    world.end().await;
}

#[tokio::test]
async fn what_is_foreign_does_not_exist() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let snapshot: hotdesk_api::desk::Snapshot =
        world.post(&format!("/v1/desks/{}/snapshot", desk.id), json!({})).await.json().await.unwrap();
    let other = world.project_key("other").await;
    let (own, _) = world.desk_with(json!({"project": "third"})).await;
    let one = world.key("desk", Scope::Desk { desk: own.id.clone() }, 0).await.secret;
    for (method, path, body, open) in operations(&desk.id, &snapshot.id) {
        if open || path == "/vm/create" || (path == "/v1/desks" && method == Method::POST) {
            continue;
        }
        for key in [&other, &one] {
            let mut request = world.ask(method.clone(), &path, key);
            if body {
                // What would be good, so that the key alone is refused.
                request = request.json(&match path.rsplit('/').next().unwrap() {
                    "extend" => json!({"by_s": 60}),
                    "execute" => json!({"command": "echo x"}),
                    "anthropic" => json!({"action": "screenshot"}),
                    "openai" => json!({"type": "screenshot"}),
                    "pools" => json!({"template": "base", "min": 0, "max": 1}),
                    "budgets" => json!({"project": "default"}),
                    "volumes" => json!({"name": "of-another", "project": "elsewhere"}),
                    "keys" => json!({"name": "x", "scope": {"kind": "admin"}}),
                    _ => json!({}),
                });
            }
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            let of_desk = path.contains(&desk.id) || path.contains(&snapshot.id);
            if of_desk {
                assert_eq!(status, 404, "{method} {path}: {text}");
                assert!(!text.contains(&desk.project) || desk.project == "default", "{text}");
            } else {
                let told = [200, 403, 404].contains(&status);
                assert!(told, "{method} {path} {status}: {text}");
                assert!(!text.contains(&desk.id) && !text.contains(&snapshot.id), "{method} {path}: {text}");
                if method != Method::GET {
                    assert_ne!(status, 200, "{method} {path}: {text}");
                }
            }
        }
    }
    // The same words whether a desk is foreign or not there at all.
    let foreign = problem(world.ask(Method::GET, &format!("/v1/desks/{}", desk.id), &other).send().await.unwrap()).await;
    let none = problem(world.ask(Method::GET, "/v1/desks/d-bbbbbbbbbbbb", &other).send().await.unwrap()).await;
    assert_eq!(foreign.detail.replace(&desk.id, "ID"), none.detail.replace("d-bbbbbbbbbbbb", "ID"));
    let now: Desk = world.get(&format!("/v1/desks/{}", desk.id)).await.json().await.unwrap();
    assert_eq!(now.state, hotdesk_api::desk::State::Running);
    world.end().await;
}

#[tokio::test]
async fn a_key_of_one_desk_drives_that_desk() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let (foreign, _) = world.desk().await;
    let key = world.key("one", Scope::Desk { desk: desk.id.clone() }, 0).await.secret;
    let ask = async |method: Method, path: &str| world.ask(method, path, &key).send().await.unwrap().status().as_u16();
    assert_eq!(ask(Method::GET, &format!("/v1/desks/{}", desk.id)).await, 200);
    assert_eq!(ask(Method::GET, &format!("/v1/desks/{}/screenshot", desk.id)).await, 200);
    assert_eq!(ask(Method::GET, &format!("/vm/{}/screenshot", desk.id)).await, 200);
    assert_eq!(ask(Method::GET, &format!("/v1/desks/{}/screenshot", foreign.id)).await, 404);
    assert_eq!(ask(Method::DELETE, &format!("/v1/desks/{}", desk.id)).await, 403);
    assert_eq!(ask(Method::POST, &format!("/v1/desks/{}/reset", desk.id)).await, 200);
    assert_eq!(ask(Method::POST, "/v1/desks").await, 403);
    assert_eq!(ask(Method::GET, "/v1/audit").await, 403);
    assert_eq!(ask(Method::GET, "/metrics").await, 403);
    let list: Value = world.ask(Method::GET, "/v1/desks", &key).send().await.unwrap().json().await.unwrap();
    assert_eq!(list["desks"].as_array().unwrap().len(), 1);
    world.end().await;
}
