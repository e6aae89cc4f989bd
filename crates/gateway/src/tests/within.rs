//! Dialects that are built on our own API ask it within the process: admitted, limited and measured once, and audited.

use super::*;
use crate::{Rate, Rates};

/// Calls a tool at `/mcp`, and gives its result.
async fn tool(world: &World, name: &str, arguments: Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = world.ask(Method::POST, "/mcp", &world.admin).header("accept", "application/json, text/event-stream");
    let response = request.json(&message).send().await.unwrap();
    assert_eq!(response.status(), 200, "{name}");
    let answer: Value = response.json().await.unwrap();
    answer["result"].clone()
}

#[tokio::test]
async fn a_tool_counts_once_against_the_limit_of_its_key() {
    // The message is one request; the tool asks for desks and for templates.
    let rates = Rates { control: Rate { per_second: 1, burst: 1 }, ..Rates::default() };
    let world = World::with(Config { rates, ..Config::default() }).await;
    let listed = tool(&world, "list_desks", json!({})).await;
    assert_ne!(listed["isError"], true, "{listed}");
    world.end().await;
}

#[tokio::test]
async fn what_a_tool_does_is_audited_once() {
    let world = World::new().await;
    let made = tool(&world, "create_desk", json!({"name": "made"})).await;
    assert_ne!(made["isError"], true, "{made}");
    let refused = tool(&world, "delete_desk", json!({"desk": "a\u{0}b"})).await;
    assert_eq!(refused["isError"], true, "a name with a zero byte does not reach the store: {refused}");
    let deleted = tool(&world, "delete_desk", json!({"desk": "made"})).await;
    assert_ne!(deleted["isError"], true, "{deleted}");
    let mut lines = Vec::new();
    until("the lines are written", async || {
        let list: Value = world.get("/v1/audit?limit=100").await.json().await.unwrap();
        lines = list["lines"].as_array().unwrap().clone();
        lines.iter().any(|line| line["method"] == "DELETE" && line["status"] == 200)
    })
    .await;
    let with = |method: &str, path: &str| lines.iter().filter(|line| line["method"] == method && line["path"] == path).count();
    assert_eq!((with("POST", "/v1/desks"), with("POST", "/mcp")), (1, 0), "{lines:#?}");
    let key = world.get("/v1/keys").await.json::<Value>().await.unwrap();
    let made = lines.iter().find(|line| line["method"] == "POST" && line["path"] == "/v1/desks").unwrap();
    assert!(key.to_string().contains(made["key"].as_str().unwrap()), "{made} is by a key of {key}");
    world.end().await;
}
