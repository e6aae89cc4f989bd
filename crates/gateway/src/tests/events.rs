//! Streams of events.

use super::*;

/// Reads a stream of events, one after another.
struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    async fn open(world: &World, path: &str, key: &str, last: Option<i64>) -> Self {
        let mut request = world.ask(Method::GET, path, key).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self { response, text: String::new() };
        // The greeting: from here on nothing is missed.
        while !stream.text.contains("\n\n") {
            stream.more().await;
        }
        stream
    }

    async fn more(&mut self) {
        let part = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("something comes").unwrap();
        self.text.push_str(std::str::from_utf8(&part.expect("the stream goes on")).unwrap());
    }

    /// The next event: its id and itself.
    async fn next(&mut self) -> (i64, Value) {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let (id, data) = (field("id: "), field("data: "));
                self.text = rest.to_owned();
                if let (Some(id), Some(data)) = (id, data) {
                    return (id.parse().unwrap(), serde_json::from_str(&data).unwrap());
                }
            }
            self.more().await;
        }
    }

    async fn state(&mut self, desk: &str, state: &str) -> i64 {
        loop {
            let (number, event) = self.next().await;
            assert_eq!(event["number"], number);
            if event["desk"] == desk && event["state"] == state {
                return number;
            }
        }
    }
}

#[tokio::test]
async fn events_come_as_they_happen_and_from_where_one_was() {
    let world = World::new().await;
    let mut live = Stream::open(&world, "/v1/events", &world.admin, None).await;
    let (desk, _) = world.desk().await;
    let first = live.state(&desk.id, "creating").await;
    let ran = live.state(&desk.id, "running").await;
    assert!(ran > first);
    world.post(&format!("/v1/desks/{}/stop", desk.id), json!({})).await;
    let stopped = live.state(&desk.id, "stopped").await;
    drop(live);

    let mut again = Stream::open(&world, "/v1/events", &world.admin, Some(ran)).await;
    assert!(again.next().await.0 > ran, "only what came after");
    assert_eq!(again.state(&desk.id, "stopped").await, stopped);
    let mut all = Stream::open(&world, &format!("/v1/events?after=0&desk={}", desk.id), &world.admin, None).await;
    assert_eq!(all.state(&desk.id, "creating").await, first);

    let list: Value = world.get(&format!("/v1/events?after={first}&limit=1")).await.json().await.unwrap();
    assert_eq!(list["events"].as_array().unwrap().len(), 1);
    assert!(list["events"][0]["number"].as_i64().unwrap() > first);
    let bad =
        world.ask(Method::GET, "/v1/events", &world.admin).header("accept", "text/event-stream").header("last-event-id", "x");
    assert_eq!(problem(bad.send().await.unwrap()).await.status, 400);
    world.end().await;
}

#[tokio::test]
async fn a_key_sees_its_own_events() {
    let world = World::new().await;
    let key = world.project_key("p").await;
    let mut own = Stream::open(&world, "/v1/events?after=0", &key, None).await;
    let (_foreign, _) = world.desk().await;
    let (desk, _) = world.desk_with(json!({"project": "p"})).await;
    loop {
        let (_, event) = own.next().await;
        assert_eq!(event["project"], "p", "{event}");
        if event["desk"] == desk.id && event["state"] == "running" {
            break;
        }
    }
    world.end().await;
}
