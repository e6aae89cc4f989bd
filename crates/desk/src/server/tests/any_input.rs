//! Whatever is sent, the server answers, and never because something broke.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use serde_json::json;
use std::time::Duration;

/// Every JSON entrance: method and path, with a number for what stands in braces.
fn entrances() -> Vec<(String, String)> {
    let document = serde_json::to_value(crate::server::openapi::document()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation.pointer("/requestBody/content/application~1json").is_some() {
                found.push((method.to_uppercase(), path.replace("{id}", "1")));
            }
        }
    }
    for path in ["/execute", "/execute_with_verification", "/setup/launch", "/run_python", "/run_bash_script", "/list_directory"]
    {
        found.push(("POST".into(), path.into()));
    }
    found
}

/// The names that requests really have, so that more than the first check is reached.
fn names() -> Vec<String> {
    let document = serde_json::to_value(crate::server::openapi::document()).unwrap();
    let mut names: Vec<String> = ["command", "code", "script", "timeout", "verification", "do"].map(String::from).into();
    for schema in document["components"]["schemas"].as_object().unwrap().values() {
        names.extend(schema["properties"].as_object().into_iter().flat_map(|properties| properties.keys().cloned()));
    }
    names.sort();
    names.dedup();
    names
}

/// Values without a lower-case word or a slash in them: nothing here is the name of a program or of somebody's file.
fn value(names: Vec<String>) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..1500).prop_map(Value::from),
        Just(Value::from(u64::MAX)),
        Just(Value::from(i64::MIN)),
        any::<f64>().prop_map(Value::from),
        "[A-Z0-9 ~.\u{0}ÄÖ€🦀\u{202e}\"'\\\\-]{0,12}".prop_map(Value::from),
        Just(Value::from("X".repeat(5000))),
    ];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        let name = prop_oneof![4 => proptest::sample::select(names.clone()), 1 => "[A-Za-z\u{0}]{0,4}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let json = value(names()).prop_map(|value| value.to_string().into_bytes());
    let nested = (1usize..5000).prop_map(|depth| "[".repeat(depth).into_bytes());
    let broken = (value(names()), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(value, at, byte)| {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    prop_oneof![6 => json, 2 => broken, 1 => nested, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

#[test]
fn every_json_entrance_answers_anything() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let desk = runtime.block_on(TestDesk::new());
    let entrances = entrances();
    assert!(entrances.len() > 12, "{entrances:?}");
    let input =
        (proptest::sample::select(entrances), bodies(), prop_oneof![9 => Just("application/json"), 1 => Just("text/plain")]);
    let mut runner = TestRunner::new(Runs { cases: 1500, failure_persistence: None, max_shrink_iters: 200, ..Runs::default() });
    let outcome = runner.run(&input, |((method, path), body, kind)| {
        let request = Request::builder().method(method.as_str()).uri(&path).header("content-type", kind);
        let request = request.body(Body::from(body)).unwrap();
        let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), desk.ask(request)).await });
        let answer = answer.map_err(|_| TestCaseError::fail("no answer"))?;
        prop_assert!(!answer.text().contains("an error in hotdesk ended this request"), "{} {}: {}", method, path, answer.text());
        if ["/v1/files", "/v1/git", "/v1/processes", "/v1/terminals"].iter().any(|part| path.starts_with(part)) {
            prop_assert!(answer.status.as_u16() < 500, "{} {}: {}", method, path, answer.text());
        }
        if path.starts_with("/v1") && !answer.status.is_success() {
            prop_assert_eq!(answer.header("content-type"), "application/problem+json", "{} {}", method, path);
        }
        Ok(())
    });
    runtime.block_on(async {
        for terminal in desk.desk.terminals.list() {
            desk.desk.terminals.close(terminal.id).await.unwrap();
        }
        for job in desk.desk.processes.jobs().list() {
            desk.desk.processes.jobs().end(job.info().id, Duration::ZERO).await.unwrap();
        }
    });
    outcome.unwrap();
}

#[tokio::test]
async fn a_list_is_no_object_at_any_entrance() {
    let desk = TestDesk::new().await;
    let refused = async |method: &str, path: &str, body: String| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let answer = desk.ask(request.body(Body::from(body.clone())).unwrap()).await;
        assert!(answer.status.is_client_error(), "{method} {path} {body}: {} {}", answer.status, answer.text());
        // A list of the right length is taken where it should not be, and one of another length is refused anyway.
        assert!(answer.text().contains("a list, expected an object") || answer.status == 404, "{path}: {}", answer.text());
    };
    for (method, path) in entrances().into_iter().filter(|(_, path)| path.starts_with("/v1")) {
        refused(&method, &path, "[]".into()).await;
    }
    refused("POST", "/v1/input", json!({"actions": [], "settle": [100]}).to_string()).await;
    refused("POST", "/v1/input", json!({"actions": [["wait", {"ms": 1}]]}).to_string()).await;
}

#[test]
fn every_path_and_query_is_answered() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let desk = runtime.block_on(TestDesk::new());
    let paths = [
        "/v1/files",
        "/v1/files/stat",
        "/v1/files/content",
        "/v1/git/status",
        "/v1/git/history",
        "/v1/processes",
        "/v1/processes/1/output",
        "/v1/terminals/1",
    ];
    let pair = ("(path|depth|hidden|follow|from|encoding|all|x)", "[A-Z0-9~%&=;+.-]{0,10}").prop_map(|(k, v)| format!("{k}={v}"));
    let input = (proptest::sample::select(paths.to_vec()), proptest::collection::vec(pair, 0..4));
    let mut runner = TestRunner::new(Runs { cases: 500, failure_persistence: None, ..Runs::default() });
    let outcome = runner.run(&input, |(path, pairs)| {
        let Ok(request) = Request::get(format!("{path}?{}", pairs.join("&"))).body(Body::empty()) else { return Ok(()) };
        let answer = runtime.block_on(desk.ask(request));
        prop_assert!(answer.status.as_u16() < 500, "{} {:?}: {}", path, pairs, answer.text());
        Ok(())
    });
    outcome.unwrap();
}
