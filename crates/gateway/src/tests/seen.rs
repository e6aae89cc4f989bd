//! What is seen from outside: metrics, the audit log, health.

use super::*;
use std::collections::BTreeSet;

#[tokio::test]
async fn metrics_are_what_prometheus_reads() {
    let world = World::with(Config { open_metrics: true, ..Config::default() }).await;
    let (desk, _) = world.desk().await;
    for _ in 0..3 {
        world.get(&format!("/v1/desks/{}/screenshot", desk.id)).await.bytes().await.unwrap();
    }
    let response = world.client.get(format!("{}/metrics", world.url)).send().await.unwrap();
    assert_eq!(response.status(), 200, "open to this machine");
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let text = response.text().await.unwrap();
    let (mut lines, mut families) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap();
            assert!(families.insert(name.to_owned()), "{name} is there twice");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(lines.insert(series.to_owned()), "{series} is there twice");
        }
    }
    for wanted in [
        "hotdesk_http_request_seconds_bucket",
        "hotdesk_desk_request_seconds_bucket{class=\"screenshot\"",
        "hotdesk_fleet_desks{state=\"running\"}",
        "hotdesk_fleet_memory_bytes",
        "hotdesk_cost_today",
    ] {
        assert!(lines.iter().any(|series| series.starts_with(wanted)), "{wanted} is missing:\n{text}");
    }
    let memory = format!("hotdesk_desk_memory_bytes{{desk=\"{}\"", desk.id);
    assert!(lines.iter().any(|series| series.starts_with(&memory)), "{memory}");
    assert!(!text.contains("hd_"));
    world.end().await;
}

#[tokio::test]
async fn metrics_are_closed_by_default() {
    let world = World::new().await;
    assert_eq!(world.client.get(format!("{}/metrics", world.url)).send().await.unwrap().status(), 401);
    assert_eq!(world.get("/metrics").await.status(), 200);
    let project = world.project_key("p").await;
    assert_eq!(world.ask(Method::GET, "/metrics", &project).send().await.unwrap().status(), 403);
    world.end().await;
}

#[tokio::test]
async fn changes_are_written_to_the_audit_log_without_secrets() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let key = &world.admin;
    let prefixed = format!("{}/k/{key}/v1/desks/{}/input?key={key}", world.url, desk.id);
    for _ in 0..5 {
        assert_eq!(world.client.post(&prefixed).body("[]").send().await.unwrap().status(), 200);
    }
    assert_eq!(world.client.delete(format!("{}/k/hd_wrong/v1/desks/{}", world.url, desk.id)).send().await.unwrap().status(), 401);
    world.get("/v1/desks").await;
    assert_eq!(world.delete(&format!("/v1/desks/{}", desk.id)).await.status(), 200);
    let mut lines = Vec::new();
    until("the lines are written", async || {
        let list: Value = world.get("/v1/audit?limit=100").await.json().await.unwrap();
        assert!(!list.to_string().contains("hd_"), "{list}");
        lines = list["lines"].as_array().unwrap().clone();
        lines.iter().any(|line| line["method"] == "DELETE" && line["status"] == 200)
    })
    .await;
    let with = |method: &str, path: &str, status: u16| {
        lines.iter().filter(|l| l["method"] == method && l["path"] == path && l["status"] == status).count()
    };
    let path = format!("/v1/desks/{}", desk.id);
    assert_eq!(with("POST", "/v1/desks", 201), 1);
    assert_eq!(with("POST", &format!("{path}/input"), 200), 1, "the first of a minute");
    assert_eq!(with("DELETE", &path, 401), 1);
    assert_eq!(with("DELETE", &path, 200), 1);
    assert_eq!(with("GET", "/v1/desks", 200), 0, "reading is no change");
    let refused = lines.iter().find(|line| line["status"] == 401).unwrap();
    assert_eq!((&refused["key"], &refused["from"]), (&json!("-"), &json!("127.0.0.1")));
    world.end().await;
}

#[tokio::test]
async fn health_and_readiness_need_no_key() {
    let world = World::new().await;
    let get = async |path: &str| world.client.get(format!("{}{path}", world.url)).send().await.unwrap();
    assert_eq!(get("/health").await.json::<Value>().await.unwrap()["status"], "ok");
    until("the fleet is ready", async || get("/ready").await.status() == 200).await;
    let document: Value = get("/v1/openapi.json").await.json().await.unwrap();
    assert_eq!(document["info"]["title"], "hotdesk fleet");
    let named = world.client.get(format!("{}/health", world.url)).header("x-request-id", "my-id.1").send().await.unwrap();
    assert_eq!(named.headers()["x-request-id"], "my-id.1");
    let odd = world.client.get(format!("{}/health", world.url)).header("x-request-id", "a b").send().await.unwrap();
    assert_eq!(odd.headers()["x-request-id"].len(), 16);
    world.end().await;
}

#[test]
fn boards_and_alerts_ask_for_what_there_is() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let there = read("crates/gateway/src/metrics.rs") + &read("crates/fleet/src/telemetry.rs");
    for file in ["deploy/grafana/hotdesk.json", "deploy/prometheus/alerts.yml", "docs/operating.md"] {
        let text = read(file);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("hotdesk_"));
        for word in words.filter(|word| !["hotdesk_fleet", "hotdesk_gateway", "hotdesk_desk"].contains(word)) {
            let name = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            assert!(there.contains(&format!("\"{name}\"")), "{file} asks for {word}, which nobody counts");
        }
    }
    serde_json::from_str::<Value>(&read("deploy/grafana/hotdesk.json")).unwrap();
}
