//! Programs over HTTP, server-sent events and WebSockets.

use super::*;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn a_program_runs_to_its_end() {
    let desk = TestDesk::new().await;
    let run = async |request: Value| desk.post("/v1/processes/run", request).await;
    let done = run(json!({ "argv": ["sh", "-c", "pwd; cat; echo bad >&2; exit 3"], "stdin": "in" })).await.good();
    assert_eq!(done["stdout"], format!("{}\nin", desk.home.path().display()));
    assert_eq!((&done["stderr"], &done["exit_code"], &done["timed_out"]), (&json!("bad\n"), &json!(3), &json!(false)));

    let done = run(json!({ "shell": "printf 'a\\377b'", "encoding": "base64" })).await.good();
    assert_eq!(done["stdout"], "Yf9i");
    let done = run(json!({ "shell": "printf 'a\\377b'" })).await.good();
    assert_eq!(done["stdout"], "a\u{fffd}b");
    let done = run(json!({ "shell": "cat; echo $A-$HOME", "stdin_base64": "eA==", "env": { "A": "1", "HOME": null } })).await;
    assert_eq!(
        done.good()["stdout"],
        "x1-
"
    );
    let done = run(json!({ "shell": "echo early; sleep 100", "timeout_ms": 300 })).await.good();
    assert_eq!((&done["stdout"], &done["timed_out"], &done["signal"]), (&json!("early\n"), &json!(true), &json!("SIGKILL")));
    let done = run(json!({ "shell": "kill -TERM $$" })).await.good();
    assert_eq!((&done["signal"], done.get("exit_code")), (&json!("SIGTERM"), None));
    let done = run(json!({ "shell": "head -c 5000 /dev/zero", "output_limit": 10, "encoding": "base64" })).await.good();
    assert_eq!((&done["truncated"], &done["stdout"]), (&json!(true), &json!("AAAAAAAAAAAAAA==")));
    let done = run(json!({ "shell": "echo 1; echo 2 >&2; echo 3", "merge_stderr": true })).await.good();
    assert_eq!(done["stdout"], "1\n2\n3\n");
}

#[tokio::test]
async fn the_environment_of_later_programs_can_be_changed() {
    let desk = TestDesk::new().await;
    let change = async |request: Value| {
        let patch = Request::patch("/v1/variables").header("content-type", "application/json");
        desk.ask(patch.body(Body::from(request.to_string())).unwrap()).await.status
    };
    let echo =
        async || desk.post("/v1/processes/run", json!({ "shell": "echo $HOTDESK_TEST_LATER" })).await.good()["stdout"].clone();
    assert_eq!(change(json!({ "set": { "HOTDESK_TEST_LATER": "yes", "": "no", "a=b": "no" } })).await, 204);
    assert_eq!(echo().await, "yes\n");
    assert_eq!(change(json!({ "unset": ["HOTDESK_TEST_LATER"] })).await, 204);
    assert_eq!(echo().await, "\n");
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    let desk = TestDesk::new().await;
    for (request, status, code) in [
        (json!({}), 400, "invalid"),
        (json!({ "argv": [] }), 400, "invalid"),
        (json!({ "argv": [""] }), 400, "invalid"),
        (json!({ "argv": ["a"], "shell": "b" }), 400, "invalid"),
        (json!({ "argv": ["hotdesk-no-such-program"] }), 404, "not_found"),
        (json!({ "argv": ["/etc/passwd"] }), 403, "denied"),
        (json!({ "argv": ["a\0b"] }), 400, "invalid"),
        (json!({ "shell": "true", "cwd": "/no/such" }), 404, "not_found"),
        (json!({ "shell": "true", "env": { "A=B": "c" } }), 400, "invalid"),
        (json!({ "shell": "true", "stdin": "a", "stdin_base64": "YQ==" }), 400, "invalid"),
        (json!({ "shell": "true", "stdin_base64": "?" }), 400, "invalid"),
        (json!({ "shell": "true", "timeout_ms": 999_999_999_999u64 }), 400, "invalid"),
        (json!({ "shell": "true", "output_limit": 999_999_999_999u64 }), 400, "invalid"),
        (json!({ "shell": "true", "encoding": "rot13" }), 400, "invalid"),
    ] {
        desk.post("/v1/processes/run", request.clone()).await.problem(status, code);
    }
    desk.post("/v1/processes", json!({})).await.problem(400, "invalid");
}

#[tokio::test]
async fn programs_in_the_background_are_listed() {
    let desk = TestDesk::new().await;
    let started = desk.post("/v1/processes", json!({ "argv": ["sleep", "300"] })).await;
    assert_eq!(started.status, 201);
    let id = started.good()["id"].as_u64().unwrap();
    assert_eq!(desk.get("/v1/processes").await.good()["processes"][0]["running"], true);
    let all = desk.get("/v1/processes?all=true").await.good();
    let pid = started.good()["pid"].as_i64().unwrap();
    assert!(all["all"].as_array().unwrap().iter().any(|process| process["pid"].as_i64() == Some(pid)));
    desk.delete(&format!("/v1/processes/{id}")).await.good();
}

#[tokio::test]
async fn output_is_streamed_replayed_and_resumed() {
    let desk = TestDesk::new().await;
    let id = desk.post("/v1/processes", json!({ "shell": "echo ä; read x; echo got $x >&2; exit 4" })).await.good()["id"].clone();
    let request = Request::get(format!("/v1/processes/{id}/output")).body(Body::empty()).unwrap();
    let mut live = desk.app.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
    let first = String::from_utf8(live.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert_eq!(first, "event: stdout\nid: 3\ndata: {\"event\":\"stdout\",\"offset\":0,\"data\":\"ä\\n\"}\n\n");
    desk.post(&format!("/v1/processes/{id}/stdin"), json!({ "base64": "b2sK" })).await.good();
    let mut rest = String::new();
    while let Some(piece) = live.next().await {
        rest.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
    }
    assert!(rest.contains("\"stderr\",\"offset\":3,\"data\":\"got ok\\n\""), "{rest}");
    assert!(rest.ends_with("data: {\"event\":\"exit\",\"exit_code\":4,\"timed_out\":false}\n\n"), "{rest}");

    let again = desk.get(&format!("/v1/processes/{id}/output?follow=false&encoding=base64")).await.text();
    assert!(again.contains("\"data\":\"w6QK\"") && again.contains("exit"), "{again}");
    let resume = Request::get(format!("/v1/processes/{id}/output")).header("last-event-id", "3").body(Body::empty()).unwrap();
    assert_eq!(desk.ask(resume).await.text(), rest);
    desk.post(&format!("/v1/processes/{id}/stdin"), json!({ "text": "x" })).await.problem(409, "conflict");
    desk.post(&format!("/v1/processes/{id}/signal"), json!({ "signal": "TERM" })).await.problem(409, "conflict");
    assert_eq!(desk.delete(&format!("/v1/processes/{id}")).await.good()["exit"]["exit_code"], 4);
    desk.get(&format!("/v1/processes/{id}")).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_program_is_signalled_and_ended() {
    let desk = TestDesk::new().await;
    let start = async |script: &str| desk.post("/v1/processes", json!({ "shell": script })).await.good()["id"].as_u64().unwrap();
    // Not through a shell: those lose a signal that comes while they start a program.
    let id = desk.post("/v1/processes", json!({ "argv": ["sleep", "300"] })).await.good()["id"].as_u64().unwrap();
    desk.post(&format!("/v1/processes/{id}/signal"), json!({ "signal": "NONSENSE" })).await.problem(400, "invalid");
    desk.post(&format!("/v1/processes/{id}/signal"), json!({ "signal": "int", "tree": true })).await.good();
    desk.desk.processes.jobs().get(id).unwrap().wait().await;
    assert_eq!(desk.get(&format!("/v1/processes/{id}")).await.good()["exit"]["signal"], "SIGINT");
    let id = start("trap '' TERM; echo ready; sleep 300 & wait; sleep 300").await;
    desk.desk.processes.jobs().get(id).unwrap().output.read(0).next().await;
    let ended = desk.delete(&format!("/v1/processes/{id}?grace_ms=100")).await.good();
    assert_eq!((&ended["running"], &ended["exit"]["signal"]), (&json!(false), &json!("SIGKILL")));
    let id = desk.post("/v1/processes", json!({ "shell": "sleep 300", "timeout_ms": 100 })).await.good()["id"].as_u64().unwrap();
    desk.desk.processes.jobs().get(id).unwrap().wait().await;
    assert_eq!(desk.get(&format!("/v1/processes/{id}")).await.good()["exit"]["timed_out"], true);
}

#[tokio::test]
async fn a_program_is_attached_to() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let script = "echo before; while read x; do echo out $x; echo err $x >&2; done; exit 9";
    let id = desk.post("/v1/processes", json!({ "shell": script })).await.good()["id"].clone();
    let path = format!("/v1/processes/{id}/attach");
    let mut socket = served.socket(&path).await.unwrap();
    let mut other = served.socket(&path).await.unwrap();
    socket.send(Message::binary(b"one\n".to_vec())).await.unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    while !(stdout.contains("out one") && stderr.contains("err one")) {
        collect(socket.next().await.unwrap().unwrap(), &mut stdout, &mut stderr);
    }
    assert!(stdout.starts_with("before\n"));
    socket.send(Message::text(r#"{"do":"dance"}"#)).await.unwrap();
    let problem = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(problem.contains(r#""event":"problem""#) && problem.contains("dance"), "{problem}");
    socket.send(Message::text(r#"{"do":"close_stdin"}"#)).await.unwrap();
    let exit = loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Text(text) => break text,
            message => collect(message, &mut stdout, &mut stderr),
        }
    };
    assert_eq!(exit.as_str(), r#"{"event":"exit","exit_code":9,"timed_out":false}"#);
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_))) | None));
    // The other one saw the same.
    let (mut seen, mut errors) = (String::new(), String::new());
    while let Some(Ok(message)) = other.next().await {
        collect(message, &mut seen, &mut errors);
    }
    assert_eq!((seen, errors), (stdout, stderr));
    assert!(served.socket("/v1/processes/999/attach").await.is_err());
}

fn collect(message: Message, stdout: &mut String, stderr: &mut String) {
    let Message::Binary(bytes) = message else { return };
    let text = std::str::from_utf8(&bytes[1..]).unwrap();
    match bytes[0] {
        1 => stdout.push_str(text),
        2 => stderr.push_str(text),
        tag => panic!("{tag}"),
    }
}

/// A client that never reads, attached to a program that never stops.
#[tokio::test]
async fn a_client_that_does_not_read_does_not_stop_the_program() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let id = desk.post("/v1/processes", json!({ "shell": "head -c 100000000 /dev/zero" })).await.good()["id"].as_u64().unwrap();
    let _socket = served.socket(&format!("/v1/processes/{id}/attach")).await.unwrap();
    let job = desk.desk.processes.jobs().get(id).unwrap();
    job.wait().await;
    assert_eq!(job.info().output_bytes, 100_000_000);
}
