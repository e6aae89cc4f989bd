//! Sandboxes of templates that are not built yet, which takes longer than any client waits.

use super::*;

/// The template that `FakeProvider` does not have yet.
const SLOW: &str = "office";

async fn desks(world: &World) -> Vec<Desk> {
    let list: Value = world.get("/v1/desks").await.json().await.unwrap();
    serde_json::from_value(list["desks"].clone()).unwrap()
}

#[tokio::test]
async fn e2b_is_refused_at_once_and_nothing_is_left() {
    let world = World::new().await;
    let create = async || world.post("/v2/sandboxes", json!({"templateID": SLOW})).await;
    for _ in 0..2 {
        let refused = create().await;
        assert_eq!((refused.status().as_u16(), refused.headers()["should-retry"].to_str().unwrap()), (503, "false"));
        let told = refused.text().await.unwrap();
        for word in ["not built yet", "installing packages", "hotdesk template build office"] {
            assert!(told.contains(word), "{told}");
        }
    }
    assert_eq!(desks(&world).await, [], "nothing was made");
    // It was begun by whoever asked first.
    world.provider.built.send_replace(true);
    until("a sandbox can be made", async || create().await.status() == 201).await;
    world.end().await;
}

#[tokio::test]
async fn an_e2b_sandbox_that_nobody_was_told_of_ends_soon() {
    let world = World::new().await;
    world.provider.held.send_replace(true);
    let request = world
        .ask(Method::POST, "/v2/sandboxes", &world.admin)
        .json(&json!({"templateID": "bare", "timeout": 3000, "autoPause": true}));
    let asking = tokio::spawn(request.send());
    until("it is on its way", async || desks(&world).await.len() == 1).await;
    asking.abort();
    let _ = asking.await;
    world.provider.held.send_replace(false);
    until("it runs", async || desks(&world).await[0].state == hotdesk_api::desk::State::Running).await;
    let life = |desk: &Desk| {
        let time = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        time(desk.expires_at.as_ref().unwrap()).duration_since(time(&desk.created_at)).as_secs()
    };
    let left = desks(&world).await.remove(0);
    assert!(life(&left) <= 120 && !left.policy.end_stops, "{} s: {:?}", life(&left), left.policy);
    let body = json!({"templateID": "bare", "timeout": 3000, "autoPause": true});
    assert_eq!(world.post("/v2/sandboxes", body).await.status(), 201);
    let told = desks(&world).await.into_iter().find(|desk| desk.id != left.id).unwrap();
    assert!(life(&told) >= 3000 && told.policy.end_stops, "{} s: {:?}", life(&told), told.policy);
    world.end().await;
}

#[tokio::test]
async fn daytona_is_told_to_wait() {
    let world = World::new().await;
    let made: Value = world.post("/daytona/api/sandbox", json!({"snapshot": SLOW})).await.json().await.unwrap();
    assert_eq!(made["state"], "pulling_snapshot", "{made}");
    assert!(made["errorReason"].as_str().unwrap().contains("hotdesk template build office"), "{made}");
    let look = async || -> Value {
        world.get(&format!("/daytona/api/sandbox/{}", made["id"].as_str().unwrap())).await.json().await.unwrap()
    };
    assert_eq!(look().await["state"], "pulling_snapshot");
    world.provider.built.send_replace(true);
    until("it is there", async || look().await["state"] == "started").await;
    assert_eq!(look().await["errorReason"], Value::Null);
    world.end().await;
}

#[tokio::test]
async fn an_image_of_daytonas_is_built() {
    let images = crate::Images([("a/b".to_owned(), SLOW.to_owned())].into());
    let world = World::with(Config { images, ..Config::default() }).await;
    let image = json!({"buildInfo": {"dockerfileContent": "FROM a/b:1\nWORKDIR /srv/app\nENTRYPOINT [\"serve\", \"it's\"]\n"}, "env": {"A": "1"}});
    let made: Value = world.post("/daytona/api/sandbox", image).await.json().await.unwrap();
    assert_eq!(made["state"], "building_snapshot", "{made}");
    world.provider.built.send_replace(true);
    let id = made["id"].as_str().unwrap();
    let look = async || -> Value { world.get(&format!("/daytona/api/sandbox/{id}")).await.json().await.unwrap() };
    until("it is there", async || look().await["state"] == "started").await;
    // The entrypoint is the desk's to run, with every start; its client sees the variables that it gave.
    assert_eq!(look().await["env"], json!({"A": "1"}));
    let spec = world.provider.specs.lock().unwrap()[id].clone();
    assert_eq!(spec.env["HOTDESK_ENTRYPOINT"], r"cd '/srv/app' && 'serve' 'it'\''s'");
    world.end().await;
}
