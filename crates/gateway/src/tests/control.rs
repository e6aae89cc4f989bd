//! The fleet's own routes, through a whole life.

use super::*;
use hotdesk_api::desk::{Snapshot, State};

#[tokio::test]
async fn a_life_through_the_api() {
    let world = World::new().await;
    let (desk, _) = world.desk_with(json!({"name": "a", "labels": {"team": "x"}, "env": {"A": "1"}})).await;
    let path = format!("/v1/desks/{}", desk.id);
    assert_eq!((desk.state, desk.template.as_str()), (State::Running, "base"));
    let taken = problem(world.post("/v1/desks", json!({"name": "a"})).await).await;
    assert_eq!(taken.status, 409);

    let found: Value = world.get("/v1/desks?label=team=x&state=running&project=default").await.json().await.unwrap();
    assert_eq!(found["desks"][0]["id"], desk.id);
    let none: Value = world.get("/v1/desks?label=team=y").await.json().await.unwrap();
    assert_eq!(none["desks"], json!([]));

    let changed = world.ask(Method::PATCH, &path, &world.admin).json(&json!({"labels": {"team": null, "b": "2"}})).send().await;
    let changed: Desk = changed.unwrap().json().await.unwrap();
    assert_eq!(changed.labels, [("b".to_owned(), "2".to_owned())].into());

    let extended: Desk = world.post(&format!("{path}/extend"), json!({"by_s": 3600})).await.json().await.unwrap();
    assert!(extended.expires_at.is_some());
    let usage: Value = world.get(&format!("{path}/usage")).await.json().await.unwrap();
    assert_eq!(usage["processes"], 7);
    let console = world.get(&format!("{path}/console?lines=2")).await;
    assert!(console.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(console.text().await.unwrap().lines().count(), 2);

    let step = async |verb: &str| {
        let response = world.post(&format!("{path}/{verb}"), json!({})).await;
        assert_eq!(response.status(), 200, "{verb}");
        response.json::<Desk>().await.unwrap().state
    };
    assert_eq!(step("reset").await, State::Running);
    assert_eq!(step("stop").await, State::Stopped);
    assert_eq!(step("stop").await, State::Stopped, "again is no error");
    assert_eq!(step("start").await, State::Running);

    let gone = world.delete(&path).await;
    assert_eq!(gone.status(), 200);
    assert_eq!(gone.json::<Desk>().await.unwrap().state, State::Deleted);
    assert_eq!(world.get(&path).await.status(), 404);
    world.end().await;
}

#[tokio::test]
async fn waiting_is_the_clients_choice() {
    let world = World::new().await;
    let response = world.post("/v1/desks?wait=0", json!({})).await;
    assert_eq!(response.status(), 202);
    let place = response.headers()["location"].to_str().unwrap().to_owned();
    let desk: Desk = response.json().await.unwrap();
    assert_eq!(place, format!("/v1/desks/{}", desk.id));
    until("it runs", async || world.get(&place).await.json::<Desk>().await.unwrap().state == State::Running).await;
    for wait in ["601", "-1", "x", "1.5", ""] {
        assert_eq!(problem(world.post(&format!("/v1/desks?wait={wait}"), json!({})).await).await.status, 400, "{wait}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_create_that_failed_tells_the_desk_and_the_reason() {
    let world = World::new().await;
    *world.provider.broken.lock().unwrap() = true;
    let response = world.post("/v1/desks", json!({})).await;
    let place = response.headers().get("location").map(|v| v.to_str().unwrap().to_owned());
    let refused = problem(response).await;
    assert_eq!(refused.status, 502, "{}", refused.detail);
    assert!(refused.detail.contains("its X server did not start"), "{}", refused.detail);
    let desk: Desk = world.get(&place.unwrap()).await.json().await.unwrap();
    assert_eq!(desk.state, State::Error);
    assert!(refused.detail.contains(&desk.id));
    let closed = problem(world.get(&format!("/v1/desks/{}/screenshot", desk.id)).await).await;
    assert_eq!((closed.status, closed.retry), (503, false));
    world.end().await;
}

#[tokio::test]
async fn the_same_wish_gives_the_same_desk() {
    let world = World::new().await;
    let ask = async |wish: &str| {
        let request = world.ask(Method::POST, "/v1/desks", &world.admin).header("idempotency-key", wish).json(&json!({}));
        request.send().await.unwrap()
    };
    let first: Desk = ask("w1").await.json().await.unwrap();
    let again: Desk = ask("w1").await.json().await.unwrap();
    let other: Desk = ask("w2").await.json().await.unwrap();
    assert_eq!(first.id, again.id);
    assert_ne!(first.id, other.id);
    assert_eq!(ask("").await.status(), 400);
    assert_eq!(ask(&"x".repeat(256)).await.status(), 400);
    let other = world.ask(Method::POST, "/v1/desks", &world.admin).header("idempotency-key", "w1").json(&json!({"name": "x"}));
    assert_eq!(problem(other.send().await.unwrap()).await.status, 409, "the same key, another wish");
    world.end().await;
}

#[tokio::test]
async fn snapshots_and_forks() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let path = format!("/v1/desks/{}", desk.id);
    let saved: Snapshot = world.post(&format!("{path}/snapshot"), json!({"name": "s"})).await.json().await.unwrap();
    assert!(saved.memory, "where the provider can and the desk runs");
    let files: Snapshot = world.post(&format!("{path}/snapshot"), json!({"memory": false})).await.json().await.unwrap();
    assert!(!files.memory);
    let response = world.post(&format!("{path}/fork"), json!({"labels": {"fork": "1"}})).await;
    assert_eq!(response.status(), 201, "{}", response.text().await.unwrap());
    let fork: Desk = response.json().await.unwrap();
    assert_ne!(fork.id, desk.id);
    assert_eq!(fork.labels["fork"], "1");
    assert_eq!(problem(world.post(&format!("{path}/fork"), json!({"template": "bare"})).await).await.status, 400);
    assert_eq!(problem(world.post(&format!("{path}/fork"), json!({"nonsense": 1})).await).await.status, 400);
    let list: Value = world.get("/v1/snapshots").await.json().await.unwrap();
    assert!(list["snapshots"].as_array().unwrap().iter().any(|s| s["id"] == saved.id));
    assert_eq!(world.delete(&format!("/v1/snapshots/{}", saved.id)).await.status(), 204);
    assert_eq!(world.delete(&format!("/v1/snapshots/{}", saved.id)).await.status(), 404);
    world.end().await;
}

#[tokio::test]
async fn pools_keys_money_templates() {
    let world = World::new().await;
    let put = async |path: &str, body: Value| world.ask(Method::PUT, path, &world.admin).json(&body).send().await.unwrap();
    let pool: Value = put("/v1/pools", json!({"template": "base", "min": 1, "max": 2})).await.json().await.unwrap();
    assert_eq!((&pool["template"], &pool["min"]), (&json!("base"), &json!(1)));
    let pools: Value = world.get("/v1/pools").await.json().await.unwrap();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 1);
    assert_eq!(world.delete("/v1/pools/base").await.status(), 204);

    let made = world.key("k", Scope::Admin, 0).await;
    let keys: Value = world.get("/v1/keys").await.json().await.unwrap();
    assert!(keys["keys"].as_array().unwrap().iter().any(|key| key["id"] == made.key.id));
    assert!(!keys.to_string().contains(&made.secret));
    let rotated: MadeKey = world.post(&format!("/v1/keys/{}/rotate", made.key.id), json!({})).await.json().await.unwrap();
    assert_ne!(rotated.secret, made.secret);
    assert_eq!(world.ask(Method::GET, "/v1/fleet", &rotated.secret).send().await.unwrap().status(), 200);

    let budget = json!({"project": "p", "per_day": 5.0, "alert_at": 0.5});
    let set: Value = put("/v1/budgets", budget).await.json().await.unwrap();
    assert_eq!(set["per_day"], 5.0);
    let budgets: Value = world.get("/v1/budgets").await.json().await.unwrap();
    assert_eq!(budgets["budgets"][0]["project"], "p");
    let costs: Value = world.get("/v1/costs").await.json().await.unwrap();
    assert_eq!(costs["currency"], "USD");

    let templates: Value = world.get("/v1/templates").await.json().await.unwrap();
    assert!(templates["templates"].is_array());
    assert_eq!(world.post("/v1/templates/nonsense/build", json!({})).await.status(), 404);
    let info: Value = world.get("/v1/fleet").await.json().await.unwrap();
    assert_eq!(info["providers"][0]["name"], "fake");
    world.end().await;
}

#[tokio::test]
async fn the_routes_of_vm() {
    let world = World::new().await;
    let response = world.ask(Method::POST, "/vm/create", &world.admin).send().await.unwrap();
    assert_eq!(response.status(), 200, "no body is needed");
    let made: Value = response.json().await.unwrap();
    assert_eq!(made["status"], "running");
    assert_eq!(made["vm_id"], made["id"]);
    let id = made["id"].as_str().unwrap();
    let url = made["url"].as_str().unwrap();
    assert_eq!(url, format!("{}/v1/desks/{id}", world.url));
    assert_eq!(world.ask(Method::GET, "", &world.admin).build().unwrap().url().as_str(), format!("{}/", world.url));
    for command in [json!("echo hello you"), json!(["echo", "hello", "you"])] {
        let ran: Value = world.post(&format!("/vm/{id}/execute"), json!({"command": command})).await.json().await.unwrap();
        assert_eq!(ran, json!({"status": "success", "output": "hello you\n", "error": "", "returncode": 0}));
    }
    let failed = world.post(&format!("/vm/{id}/execute"), json!({"command": "nonsense", "shell": true})).await;
    assert_eq!(failed.status(), 200);
    assert_eq!(failed.json::<Value>().await.unwrap()["returncode"], -1);
    assert_eq!(problem(world.post(&format!("/vm/{id}/execute"), json!({"command": 1})).await).await.status, 400);
    assert_eq!(problem(world.post(&format!("/vm/{id}/execute"), json!({"command": "x", "y": 1})).await).await.status, 400);
    let picture = world.get(&format!("/vm/{id}/screenshot")).await;
    assert_eq!(picture.headers()["content-type"], "image/png");
    let gone: Value = world.delete(&format!("/vm/{id}/delete")).await.json().await.unwrap();
    assert_eq!((&gone["status"], &gone["vm_id"]), (&json!("deleted"), &json!(id)));
    assert_eq!(problem(world.get(&format!("/vm/{id}/screenshot")).await).await.status, 404);
    world.end().await;
}

/// What a request leaves out is the template's, whoever asks in whatever words.
#[tokio::test]
async fn what_is_left_out_of_a_snapshot_is_the_templates() {
    let world = World::new().await;
    let asked = json!({"name": "some", "imageName": "synacktra/osworld-ubuntu:1", "cpu": 1});
    let made: Value = world.post("/daytona/api/snapshots", asked).await.json().await.unwrap();
    let template: Value = world.get("/daytona/api/snapshots/osworld").await.json().await.unwrap();
    assert_eq!((&made["cpu"], &made["mem"], &made["disk"]), (&json!(1), &template["mem"], &template["disk"]));
    assert_eq!(made["disk"], 8, "as its template has it");
    world.end().await;
}
