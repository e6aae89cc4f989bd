//! Whatever is sent, the gateway answers, and never because something broke.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

/// Every JSON entrance: method and path.
fn entrances(desk: &str) -> Vec<(Method, String)> {
    let document = serde_json::to_value(crate::openapi::document()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation.pointer("/requestBody/content/application~1json").is_some() {
                let path = path.replace("{id}", desk).replace("{name}", "x").replace("{template}", "x");
                found.push((method.to_uppercase().parse().unwrap(), path));
            }
        }
    }
    found
}

/// The names that requests really have, so that more than the first check is reached.
fn names() -> Vec<String> {
    let document = serde_json::to_value(crate::openapi::document()).unwrap();
    let mut names: Vec<String> = Vec::new();
    for schema in document["components"]["schemas"].as_object().unwrap().values() {
        names.extend(schema["properties"].as_object().into_iter().flat_map(|properties| properties.keys().cloned()));
    }
    names.sort();
    names.dedup();
    names
}

fn value(names: Vec<String>) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..10_000).prop_map(Value::from),
        Just(Value::from(u64::MAX)),
        Just(Value::from(i64::MIN)),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9 ~.\u{0}ÄÖ€🦀\u{202e}\"'\\\\/-]{0,12}".prop_map(Value::from),
        Just(Value::from("X".repeat(5000))),
        Just(json!({"kind": "project", "project": "p"})),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        let name = prop_oneof![8 => proptest::sample::select(names.clone()), 1 => "[A-Za-z\u{0}]{0,4}"];
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            3 => proptest::collection::vec((name, inner), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let json = value(names()).prop_map(|value| value.to_string().into_bytes());
    let nested = (1usize..5000).prop_map(|depth| "[".repeat(depth).into_bytes());
    prop_oneof![8 => json, 1 => nested, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

#[tokio::test]
async fn a_list_is_no_object_in_any_dialect() {
    let world = World::new().await;
    let (desk, _) = world.desk_with(json!({"labels": {"e2b:sandbox": "1"}})).await;
    let (id, sandbox) = (&desk.id, format!("i{}", desk.id.trim_start_matches("d-")));
    let mut cases: Vec<(Method, String, Value)> =
        entrances(id).into_iter().map(|(method, path)| (method, path, json!([]))).collect();
    let mut post = |path: String, body: Value| cases.push((Method::POST, path, body));
    for part in
        [json!({"resources": [1]}), json!({"policy": [60]}), json!({"screen": [800, 600]}), json!({"volumes": [["v", "/v"]]})]
    {
        post("/v1/desks".into(), part.clone());
        post(format!("/v1/desks/{id}/fork"), part);
    }
    post("/v1/keys".into(), json!({"name": "a", "scope": ["admin"]}));
    for body in [json!([]), json!(["name"]), json!({"buildInfo": ["FROM debian"]}), json!({"volumes": [["v", "/v"]]})] {
        post("/daytona/api/sandbox".into(), body);
    }
    post("/daytona/api/snapshots".into(), json!(["name", "debian:12"]));
    post(format!("/daytona/api/sandbox/{id}/fork"), json!(["copy"]));
    post(format!("/daytona/toolbox/{id}/process/execute"), json!(["id"]));
    post(format!("/daytona/toolbox/{id}/process/session"), json!(["one"]));
    post(format!("/daytona/api/toolbox/{id}/toolbox/process/execute"), json!(["id"]));
    for path in ["/sandboxes", "/v2/sandboxes"] {
        post(path.into(), json!(["base"]));
        post(path.into(), json!({"network": [true]}));
    }
    for (call, body) in
        [("timeout", json!([5])), ("connect", json!([5])), ("fork", json!([5, 1])), ("snapshots", json!(["a", false]))]
    {
        post(format!("/sandboxes/{sandbox}/{call}"), body);
    }
    for (method, path, body) in cases {
        let response = world.ask(method.clone(), &path, &world.admin).json(&body).send().await.unwrap();
        let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
        // Models' calls and forks have words of their own for it.
        let told =
            ["a list, expected an object", "this is no JSON object", "sequence, expected a map"].iter().any(|t| text.contains(t));
        assert!([400, 422].contains(&status) && told, "{method} {path} {body}: {status} {text}");
    }
    let desks: Value = world.get("/v1/desks").await.json().await.unwrap();
    assert_eq!(desks["desks"].as_array().unwrap().len(), 1, "nothing was made: {desks}");
    world.end().await;
}

#[test]
fn every_entrance_answers_anything() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let rates = crate::Rates { control: crate::Rate { per_second: 0, burst: 0 }, ..Default::default() };
    let world = runtime.block_on(World::with(Config { rates, ..Config::default() }));
    let (desk, _) = runtime.block_on(world.desk());
    let entrances = entrances(&desk.id);
    assert!(entrances.len() > 8, "{entrances:?}");
    let query = prop_oneof![3 => Just(String::from("?wait=0")), 1 => "[?](wait|limit|x)=[0-9a-z%&=-]{0,8}"];
    let input = (proptest::sample::select(entrances), bodies(), query);
    let mut runner = TestRunner::new(Runs { cases: 400, failure_persistence: None, max_shrink_iters: 100, ..Runs::default() });
    let outcome = runner.run(&input, |((method, path), body, query)| {
        let query = if path.ends_with("/execute") || path.ends_with("create") { "" } else { query.as_str() };
        let address = format!("{path}{query}");
        let request = world.ask(method.clone(), &address, &world.admin).header("content-type", "application/json").body(body);
        let Ok(request) = request.build() else { return Ok(()) };
        let response =
            runtime.block_on(async { world.client.execute(request).await }).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let (status, kind) = (response.status(), response.headers().get("content-type").cloned());
        let text = runtime.block_on(response.text()).unwrap_or_default();
        prop_assert!(status.as_u16() < 500, "{method} {address} {status}: {text}");
        if !status.is_success() {
            prop_assert_eq!(kind.unwrap(), "application/problem+json", "{} {}", method, address);
        }
        Ok(())
    });
    outcome.unwrap();
    runtime.block_on(world.end());
}
