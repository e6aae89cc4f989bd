//! What Daytona's toolbox asks of desks, and who may ask it.

use super::*;
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// What runs programs in a desk is for its keys alone, in our words and in Daytona's.
#[tokio::test]
async fn programs_of_a_desk_are_run_by_its_keys_alone() {
    let failures = crate::Rate { per_second: 0, burst: 0 };
    let world = World::with(Config { rates: crate::Rates { failures, ..Default::default() }, ..Config::default() }).await;
    let (desk, fake) = world.desk().await;
    let (other, _) = world.desk_with(json!({"project": "other"})).await;
    let foreign = world.project_key("other").await;
    let one = world.key("one", Scope::Desk { desk: other.id.clone() }, 0).await.secret;
    let own = world.key("own", Scope::Desk { desk: desk.id.clone() }, 0).await.secret;
    let id = &desk.id;
    for (method, path) in [
        (Method::POST, format!("/v1/desks/{id}/git/clone")),
        (Method::GET, format!("/v1/desks/{id}/git/status?path=x")),
        (Method::POST, format!("/v1/desks/{id}/kernels")),
        (Method::DELETE, format!("/v1/desks/{id}/kernels/one")),
        (Method::POST, format!("/v1/desks/{id}/users/root/kernels")),
        (Method::GET, format!("/v1/desks/{id}/ports")),
        (Method::POST, format!("/daytona/toolbox/{id}/git/add")),
        (Method::POST, format!("/daytona/api/toolbox/{id}/toolbox/git/add")),
        (Method::POST, format!("/daytona/toolbox/{id}/process/interpreter/context")),
        (Method::GET, format!("/daytona/toolbox/{id}/port")),
    ] {
        let send = async |key: Option<&str>| {
            let request = world.client.request(method.clone(), format!("{}{path}", world.url));
            let request = request.json(&json!({"path": "x", "files": ["y"]}));
            match key {
                Some(key) => request.bearer_auth(key),
                None => request,
            }
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
        };
        assert_eq!(send(None).await, 401, "{method} {path}");
        assert_eq!(send(Some("hd_wrong")).await, 401, "{method} {path}");
        for key in [&foreign, &one] {
            assert_eq!(send(Some(key)).await, 404, "{method} {path}");
        }
        assert!(fake.state.echoed.lock().unwrap().is_empty(), "{method} {path}");
        send(Some(&own)).await;
        assert_eq!(fake.state.echoed.lock().unwrap().drain(..).count(), 1, "{method} {path}");
    }
    world.end().await;
}

#[tokio::test]
async fn git_of_daytona_is_that_of_the_desk() {
    let world = World::new().await;
    let (desk, fake) = world.desk().await;
    let login = json!({"username": "me", "password": "secret"});
    for (method, call, body, status, asked) in [
        (
            Method::POST,
            "clone",
            json!({"url": "u", "path": "p", "branch": "b", "commit_id": "c", "depth": 3, "insecure_skip_tls": true, "username": "me", "password": "secret"}),
            200,
            (
                "POST",
                "clone",
                json!({"url": "u", "path": "p", "branch": "b", "commit": "c", "depth": 3, "insecure": true, "credentials": login}),
            ),
        ),
        (
            Method::POST,
            "init",
            json!({"path": "p", "bare": true, "initial_branch": ""}),
            201,
            ("POST", "init", json!({"path": "p", "bare": true, "branch": null})),
        ),
        (Method::POST, "add", json!({"path": "p", "files": ["."]}), 200, ("POST", "add", json!({"path": "p", "files": ["."]}))),
        (
            Method::POST,
            "push",
            json!({"path": "p", "set_upstream": true, "password": "secret"}),
            200,
            (
                "POST",
                "push",
                json!({"path": "p", "remote": null, "branch": null, "set_upstream": true, "credentials": {"username": "", "password": "secret"}}),
            ),
        ),
        (
            Method::POST,
            "pull",
            json!({"path": "p", "remote": "r", "branch": "b"}),
            200,
            ("POST", "pull", json!({"path": "p", "remote": "r", "branch": "b", "credentials": null})),
        ),
        (
            Method::POST,
            "branches",
            json!({"path": "p", "name": "n"}),
            201,
            ("POST", "branches", json!({"path": "p", "name": "n", "checkout": true})),
        ),
        (
            Method::DELETE,
            "branches",
            json!({"path": "a b", "name": "x/y"}),
            204,
            ("DELETE", "branches?path=a%20b&name=x%2Fy", Value::Null),
        ),
        (
            Method::POST,
            "checkout",
            json!({"path": "p", "branch": "b"}),
            200,
            ("POST", "checkout", json!({"path": "p", "branch": "b"})),
        ),
        (
            Method::POST,
            "reset",
            json!({"path": "p", "mode": "hard", "target": "HEAD~1"}),
            200,
            ("POST", "reset", json!({"path": "p", "mode": "hard", "target": "HEAD~1", "files": []})),
        ),
        (
            Method::POST,
            "restore",
            json!({"path": "p", "files": ["f"], "staged": true}),
            200,
            ("POST", "restore", json!({"path": "p", "files": ["f"], "source": null, "staged": true, "worktree": false})),
        ),
        (
            Method::POST,
            "remotes",
            json!({"path": "p", "name": "n", "url": "u", "overwrite": true}),
            201,
            ("POST", "remotes", json!({"path": "p", "name": "n", "url": "u", "fetch": false, "overwrite": true})),
        ),
        (
            Method::POST,
            "config",
            json!({"key": "k", "value": "v", "scope": "system"}),
            200,
            ("PUT", "config", json!({"key": "k", "value": "v", "path": null, "scope": "system"})),
        ),
        (
            Method::POST,
            "credentials",
            json!({"username": "me", "password": "secret"}),
            200,
            ("POST", "credentials", json!({"credentials": login, "host": "github.com", "protocol": "https"})),
        ),
    ] {
        let path = format!("/daytona/toolbox/{}/git/{call}", desk.id);
        let response = world.ask(method.clone(), &path, &world.admin).json(&body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{method} {call}: {}", response.text().await.unwrap());
        let all: Vec<_> = fake.state.echoed.lock().unwrap().drain(..).collect();
        let (method, path, body) = asked;
        assert_eq!(all, [(method.to_owned(), format!("/v1/git/{path}"), body)]);
    }
    for (call, body) in [
        ("clone", json!({"url": "u"})),
        ("add", json!({"path": "p"})),
        ("commit", json!({"path": "p", "message": "m", "author": "a"})),
        ("checkout", json!({"path": "p"})),
        ("reset", json!({"path": "p", "mode": "gentle"})),
        ("config", json!({"key": "k", "scope": "everywhere"})),
        ("credentials", json!({"username": "me"})),
    ] {
        let response = world.post(&format!("/daytona/toolbox/{}/git/{call}", desk.id), body).await;
        assert_eq!(response.status(), 400, "{call}");
        let text = response.json::<Value>().await.unwrap()["message"].as_str().unwrap().to_owned();
        assert!(text.starts_with("bad request: "), "{call}: {text}");
    }
    assert!(fake.state.echoed.lock().unwrap().is_empty());
    world.end().await;
}

#[tokio::test]
async fn code_of_daytona_runs_in_a_kernel_of_the_desk() {
    let world = World::new().await;
    let (desk, _) = world.desk().await;
    let run = async |context: Option<&str>, events: &[Value]| {
        let url = format!("{}/daytona/toolbox/{}/process/interpreter/execute", world.url.replace("http", "ws"), desk.id);
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {}", world.admin).parse().unwrap());
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        let code: String = events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect();
        let code = if events.is_empty() { "a line that is no event".to_owned() } else { code };
        let wanted = json!({"code": code, "contextId": context});
        socket.send(Message::text(wanted.to_string())).await.unwrap();
        let mut chunks = Vec::new();
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Text(text) => chunks.push(serde_json::from_str::<Value>(&text).unwrap()),
                Message::Close(frame) => {
                    let frame = frame.unwrap();
                    return (chunks, u16::from(frame.code), frame.reason.to_string());
                }
                _ => {}
            }
        }
        panic!("no end: {chunks:?}");
    };
    let failed = json!({"name": "E", "value": "v", "traceback": "t"});
    let event = |kind: &str, with: &Value| {
        let mut event = with.clone();
        event["event"] = kind.into();
        event
    };
    let end = |outcome: &str| json!({"event": "end", "outcome": outcome, "reason": "it was so"});
    let events = [
        event("stdout", &json!({"data": "out"})),
        event("stderr", &json!({"data": "err"})),
        event("result", &json!({"data": "4"})),
        event("error", &failed),
        end("done"),
        event("stdout", &json!({"data": "never"})),
    ];
    let mut error = failed.clone();
    error["type"] = "error".into();
    let chunks = vec![
        json!({"type": "stdout", "text": "out"}),
        json!({"type": "stderr", "text": "err"}),
        error,
        json!({"type": "control", "text": "completed"}),
    ];
    assert_eq!(run(None, &events).await, (chunks.clone(), 1000, String::new()));
    assert_eq!(run(Some("own"), &events).await, (chunks, 1000, String::new()));
    assert_eq!(run(None, &[end("timed_out")]).await, (vec![], 4008, String::new()));
    assert_eq!(run(None, &[end("died")]).await, (vec![], 1001, "it was so".into()));
    assert_eq!(run(None, &[]).await, (vec![], 1001, "the interpreter ended".into()));
    assert_eq!(run(Some("no such"), &events).await, (vec![], 1008, "context not found: no such".into()));
    world.end().await;
}
