//! Programs and scripts.

use super::{Bench, StatusCode, json};
use serde_json::Value;
use std::path::Path;

#[tokio::test]
async fn programs_run_and_tell() {
    let bench = Bench::new();
    let run = async |fields: Value| {
        let reply = bench.post("/execute", fields).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        assert_eq!(reply.headers["x-hotdesk-engine"], "process");
        reply.json()
    };
    let done =
        |output: &str, error: &str, code: i32| json!({"status": "success", "output": output, "error": error, "returncode": code});
    assert_eq!(
        run(json!({"command": "printf '%s|' 'a b' ~/c $HOME"})).await,
        done(&format!("a b|{}/c|$HOME|", bench.home()), "", 0)
    );
    assert_eq!(run(json!({"command": "echo $WORD; echo e >&2; exit 7", "shell": "false"})).await, done("value\n", "e\n", 7));
    assert_eq!(run(json!({"command": ["echo $0-$1-$#", "a", "b", "c"], "shell": true})).await, done("a-b-2\n", "", 0));
    assert_eq!(run(json!({"command": ["sh", "-c", "kill -9 $$"]})).await, done("", "", -9));
    assert_eq!(run(json!({"command": ["printf", "a\\377b\\r\\nc\\r"]})).await, done("a\u{fffd}b\nc\n", "", 0));
    assert_eq!(run(json!({"shell": true})).await, done("", "", 0));
}

#[tokio::test]
async fn programs_that_cannot_run_are_told_the_python_way() {
    let bench = Bench::new();
    for (command, message) in [
        (json!(["it's missing"]), "[Errno 2] No such file or directory: \"it's missing\""),
        (json!("/tmp"), "[Errno 13] Permission denied: '/tmp'"),
        (json!([]), "list index out of range"),
        (json!(""), "list index out of range"),
        (json!(["a\0b"]), "embedded null byte"),
        (json!(["true", "x".repeat(200_000)]), "[Errno 7] Argument list too long: 'true'"),
    ] {
        for path in ["/execute", "/setup/execute", "/execute_with_verification", "/setup/launch"] {
            let reply = bench.post(path, json!({"command": command})).await;
            assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(reply.json(), json!({"status": "error", "message": message}));
        }
    }
    for path in ["/execute", "/setup/launch"] {
        assert!(bench.post(path, json!({"command": "echo 'a"})).await.is_page(StatusCode::INTERNAL_SERVER_ERROR));
    }
}

#[tokio::test]
async fn a_client_that_leaves_does_not_end_its_program() {
    let bench = Bench::new();
    let (begun, ended) = (bench.home.path().join("begun"), bench.home.path().join("ended"));
    let fields = json!({"command": "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo x; touch ended", "shell": true});
    let wait = async |path: &Path| {
        while !path.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        reply = bench.post("/execute", fields) => panic!("it ended early: {}", reply.text()),
        () = wait(&begun) => {}
    }
    std::fs::write(bench.home.path().join("go"), "").unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(20), wait(&ended)).await.expect("the program must go on");
}

#[tokio::test]
async fn verification_waits_for_its_condition() {
    let bench = Bench::new();
    let ask = async |more: Value| {
        let mut fields = json!({"command": "echo a", "max_wait_time": 20, "check_interval": 0.02});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bench.post("/execute_with_verification", fields).await
    };
    let reply =
        ask(json!({"verification": {"command_success": "[ -e two ] || { [ -e one ] && touch two; touch one; false; }"}})).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert_eq!(reply.json()["verification"], "passed");
    assert!(reply.json()["wait_time"].is_f64());
    assert!(bench.home.path().join("two").exists());

    let reply = ask(json!({"verification": {"command_success": "false"}, "max_wait_time": 0.1})).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json()["status"], "verification_failed");
    assert_eq!(reply.json()["wait_time"], 0.1);

    let reply = ask(json!({"verification": {"command_success": "true"}, "max_wait_time": -3})).await;
    assert_eq!(reply.json()["wait_time"], -3);
    assert_eq!(ask(json!({"verification": {"foo": 1}})).await.json()["verification"], "passed");
    assert!(ask(json!({"verification": null})).await.json().get("verification").is_none());
}

#[tokio::test]
async fn python_goes_the_way_that_its_header_names() {
    let bench = Bench::new();
    for (command, engine) in [
        (json!(["python3", "-c", "import time; print('a')"]), "native"),
        (json!(["python3", "-c", "import sys; sys.stdout.write('a\\n')"]), "python"),
        (json!(["sh", "-c", "echo a"]), "process"),
    ] {
        let reply = bench.post("/execute", json!({"command": command})).await;
        assert_eq!(reply.json(), json!({"status": "success", "output": "a\n", "error": "", "returncode": 0}));
        assert_eq!(reply.headers["x-hotdesk-engine"], engine, "{command}");
    }
}

#[tokio::test]
async fn without_python_the_rest_still_works() {
    let bench = Bench::with_path("/nonexistent");
    let reply = bench.post("/execute", json!({"command": ["python", "-c", "import time; print('a')"]})).await;
    assert_eq!((reply.status, reply.headers["x-hotdesk-engine"].to_str().unwrap()), (StatusCode::OK, "native"));
    let reply = bench.post("/execute", json!({"command": ["python", "-c", "import hashlib"]})).await;
    assert_eq!(reply.json()["message"], "[Errno 2] No such file or directory: 'python'");
    let reply = bench.post("/execute", json!({"command": "echo x", "shell": true})).await;
    assert_eq!(reply.json()["output"], "x\n");
}

#[tokio::test]
async fn python_scripts_answer_in_their_own_shape() {
    let bench = Bench::new();
    let run = async |code: &str| bench.post("/run_python", json!({"code": code})).await.json();
    assert_eq!(
        run("import sys; print('o'); sys.exit(3)").await,
        json!({
            "status": "error", "message": "o\n\nProcess exited with code 3", "need_more": false,
            "output": "o\n", "error": "Process exited with code 3", "return_code": 3,
        })
    );
    let value = run("import os; print(__file__, os.path.exists(__file__)); 1/0").await;
    let (path, there) = value["output"].as_str().unwrap().trim().split_once(' ').unwrap();
    assert!(path.starts_with("/tmp/python_exec_") && path.len() == 52 && there == "True" && !Path::new(path).exists(), "{value}");
    assert!(value["error"].as_str().unwrap().ends_with("ZeroDivisionError: division by zero\n"));
    let reply = bench.post("/run_python", json!({"code": ""})).await;
    assert_eq!(
        (reply.status, reply.json()),
        (StatusCode::BAD_REQUEST, json!({"status": "error", "message": "Code not supplied!"}))
    );
}

#[tokio::test]
async fn bash_scripts_run_once_and_answer() {
    let bench = Bench::new();
    let run = async |fields: Value| bench.post("/run_bash_script", fields).await;
    let reply = run(json!({"script": "echo x >> log; echo out; echo err >&2; stat -c %a $0; head -n 1 $0; exit 5"})).await;
    let output = "out\nerr\n755\n#!/bin/bash\n";
    assert_eq!(
        (reply.status, reply.json()),
        (StatusCode::OK, json!({"status": "error", "output": output, "error": "", "returncode": 5}))
    );
    assert_eq!(std::fs::read_to_string(bench.home.path().join("log")).unwrap(), "x\n");
    std::fs::create_dir(bench.home.path().join("d")).unwrap();
    assert_eq!(run(json!({"script": "pwd", "working_dir": "~/d"})).await.json()["output"], format!("{}/d\n", bench.home()));

    let reply = run(json!({"script": "exec sleep 30", "timeout": 0.2})).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json()["output"], "Script execution timed out after 0.2 seconds");
    let reply = run(json!({"script": "pwd", "working_dir": "/no/such"})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.json()["output"], "Working directory does not exist: /no/such");
    assert_eq!(run(json!({})).await.json()["output"], "Script not supplied!");
}
