//! Kernels, with the real Python.

use super::{TestDesk, config};
use crate::server::app;
use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

impl TestDesk {
    async fn kernel(&self, name: &str) {
        assert_eq!(self.post("/v1/kernels", json!({"name": name})).await.status, 201);
    }

    /// All that code does.
    async fn execute(&self, kernel: &str, body: Value) -> Vec<Value> {
        let answer = self.post(&format!("/v1/kernels/{kernel}/execute"), body).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "text/event-stream"), "{}", answer.text());
        answer.text().lines().filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap())).collect()
    }

    /// What it prints, and how it ends.
    async fn run(&self, kernel: &str, code: &str) -> (String, Value) {
        let mut events = self.execute(kernel, json!({"code": code})).await;
        let end = events.pop().unwrap();
        assert_eq!(end["event"], "end");
        let printed = events.iter().filter(|event| event["event"] == "stdout").filter_map(|event| event["data"].as_str());
        (printed.collect(), end)
    }

    /// Code under way.
    async fn begin(&self, kernel: &str, body: Value) -> BodyDataStream {
        let request = Request::post(format!("/v1/kernels/{kernel}/execute")).header("content-type", "application/json");
        let response = self.app.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    }

    async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        for _ in 0..6000 {
            if so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what}");
    }
}

fn done() -> Value {
    json!({"event": "end", "outcome": "done"})
}

#[tokio::test]
async fn a_kernel_remembers_and_tells() {
    let desk = TestDesk::new().await;
    std::fs::create_dir(desk.path("sub")).unwrap();
    let made = desk.post("/v1/kernels", json!({"name": "one", "cwd": "sub", "env": {"GIVEN": "yes"}})).await;
    assert_eq!(made.status, 201);
    let cwd = desk.path("sub").display().to_string();
    assert_eq!((&made.good()["name"], &made.good()["cwd"], &made.good()["busy"]), (&json!("one"), &json!(cwd), &json!(false)));
    assert_eq!(desk.run("one", "x = 41").await, (String::new(), done()));
    let code = "import os, sys\nprint(x + 1)\nos.system('echo sub')\nprint('ä', file=sys.stderr)\nprint(os.getcwd(), os.environ['GIVEN'])\n(x, None)";
    let events = desk.execute("one", json!({"code": code, "result": true})).await;
    let text = |kind: &str| {
        let of = events.iter().filter(|event| event["event"] == kind).filter_map(|event| event["data"].as_str());
        of.collect::<String>()
    };
    assert_eq!(text("stdout"), format!("42\nsub\n{cwd} yes\n"));
    assert_eq!((text("stderr"), text("result")), ("ä\n".into(), "(41, None)".into()));
    assert_eq!(events.last(), Some(&done()));
    // Nobody asked for its value.
    assert_eq!(desk.execute("one", json!({"code": "x"})).await, [done()]);
    assert_eq!(desk.execute("one", json!({"code": "None", "result": true})).await, [done()]);

    let events = desk.execute("one", json!({"code": "def f():\n    raise ValueError('no')\nf()", "result": true})).await;
    assert_eq!((&events[0]["name"], &events[0]["value"]), (&json!("ValueError"), &json!("no")));
    let trace = events[0]["traceback"].as_str().unwrap();
    assert!(trace.starts_with("Traceback") && trace.contains("line 2, in f") && !trace.contains("<string>"), "{trace}");
    let events = desk.execute("one", json!({"code": "if then"})).await;
    assert_eq!((&events[0]["name"], &events[1]), (&json!("SyntaxError"), &done()));
    assert_eq!(desk.execute("one", json!({"code": "raise SystemExit(3)"})).await[0]["name"], "SystemExit");
    assert_eq!(desk.execute("one", json!({"code": "raise ValueError('half: \\ud800')"})).await[0]["value"], "half: \\ud800");

    let colour = json!({"code": "print(os.environ.get('COLOUR'), end='')", "env": {"COLOUR": "teal"}});
    assert_eq!(desk.execute("one", colour).await[0]["data"], "teal");
    assert_eq!(desk.run("one", "print(os.environ.get('COLOUR'))").await.0, "None\n");
    // What it defines is found by others.
    assert_eq!(
        desk.run("one", "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))))").await.0,
        "<class '__main__.C'>\n"
    );
    let (big, end) = desk.run("one", "print('x' * 3_000_000)").await;
    assert_eq!((big.len(), end), (3_000_001, done()));

    desk.kernel("two").await;
    assert_eq!(desk.run("two", "print('x' in globals())").await.0, "False\n");
    let names = desk.get("/v1/kernels").await.good();
    let names: Vec<_> = names["kernels"].as_array().unwrap().iter().map(|kernel| kernel["name"].clone()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(desk.post("/v1/kernels", json!({})).await.good()["name"].as_str().unwrap().len(), 16);
    assert_eq!(desk.get("/v1/activity").await.good()["commands"], 0, "a kernel that waits is no work");
    desk.delete("/v1/kernels/one").await.good();
    desk.delete("/v1/kernels/one").await.problem(404, "not_found");
    desk.get("/v1/kernels/one").await.problem(404, "not_found");
    desk.kernel("one").await;
    assert_eq!(desk.run("one", "print('x' in globals())").await.0, "False\n");
}

#[tokio::test]
async fn code_waits_for_its_turn_and_is_interrupted() {
    let desk = TestDesk::new().await;
    desk.kernel("one").await;
    let mut first = desk.begin("one", json!({"code": "import time\nprint('begun')\ntime.sleep(300)"})).await;
    first.next().await.unwrap().unwrap();
    assert_eq!(desk.get("/v1/kernels/one").await.good()["busy"], true);
    assert_eq!(desk.get("/v1/activity").await.good()["commands"], 1);
    // It waits behind the other, which goes on.
    let late = desk.execute("one", json!({"code": "print('never')", "timeout_ms": 50})).await;
    assert_eq!((late.len(), &late[0]["outcome"]), (1, &json!("timed_out")));
    let next = desk.run("one", "print('next')");
    let interrupt = async {
        desk.post("/v1/kernels/one/interrupt", json!({})).await.good();
        let mut rest = String::new();
        while let Some(piece) = first.next().await {
            rest.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        }
        rest
    };
    let (rest, next) = tokio::join!(interrupt, next);
    assert!(rest.contains("KeyboardInterrupt") && rest.ends_with("data: {\"event\":\"end\",\"outcome\":\"done\"}\n\n"), "{rest}");
    assert_eq!(next, ("next\n".into(), done()));
    // Nothing runs: nothing happens.
    desk.post("/v1/kernels/one/interrupt", json!({})).await.good();
    assert_eq!(desk.run("one", "print(1)").await, ("1\n".into(), done()));

    // Who leaves interrupts.
    let file = desk.path("left");
    let code = format!(
        "try:\n    print('begun')\n    time.sleep(300)\nfinally:\n    open({:?}, 'w').close()",
        file.display().to_string()
    );
    let mut leaving = desk.begin("one", json!({"code": code})).await;
    leaving.next().await.unwrap().unwrap();
    drop(leaving);
    desk.until("the code ends", async || file.exists()).await;
    assert_eq!(desk.run("one", "print('here')").await.0, "here\n");
}

#[tokio::test]
async fn code_that_takes_too_long_ends_and_its_kernel_stays_if_it_can() {
    let desk = TestDesk::new().await;
    desk.kernel("one").await;
    desk.run("one", "import os, time\nx = 1").await;
    for code in ["time.sleep(300)", "os.system('sleep 300')", "while True: pass"] {
        let events = desk.execute("one", json!({"code": code, "timeout_ms": 300})).await;
        assert_eq!(events.last().unwrap()["outcome"], "timed_out", "{code}");
        assert_eq!(desk.run("one", "print(x)").await.0, "1\n", "{code}: it was interrupted, not ended");
    }
    let stubborn = "while True:\n    try:\n        time.sleep(300)\n    except KeyboardInterrupt:\n        pass";
    let end = desk.execute("one", json!({"code": stubborn, "timeout_ms": 300})).await.pop().unwrap();
    assert_eq!(end["outcome"], "timed_out");
    assert!(end["reason"].as_str().unwrap().contains("kernel was ended"), "{end}");
    desk.post("/v1/kernels/one/execute", json!({"code": "1"})).await.problem(404, "not_found");
}

/// Code that is hostile to the worker, to the server, or to itself.
#[tokio::test]
async fn hostile_code_harms_its_own_kernel_at_most() {
    let desk = TestDesk::new().await;
    let flood =
        "import os\nfor fd in range(3, 20):\n    try:\n        while True: os.write(fd, b'x' * 65536)\n    except OSError: pass";
    let lies = "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'{\"request\": 1, \"event\": \"end\"}\\n{\"request\": 99, \"event\": \"stdout\", \"data\": \"x\"}\\nnonsense\\n')\n    except OSError: pass\nprint('done')";
    for (name, code, outcome, prints) in [
        // Where the worker writes, without an end of the line.
        ("flood", flood, "died", ""),
        ("ends", "import os\nos._exit(3)", "died", ""),
        ("killed", "import os\nos.kill(os.getpid(), 9)", "died", ""),
        ("lies", lies, "done", ""),
        ("closed", "import os\nos.close(1)\nos.close(2)", "done", ""),
        ("led away", "import os\nos.dup2(os.open('/dev/null', os.O_WRONLY), 1)\nprint('nowhere')", "done", ""),
        (
            "copied",
            "import os\nif os.fork() == 0: print('child', flush=True)\nelse: os.wait(); print('parent')",
            "done",
            "child\nparent\n",
        ),
        ("no text", "class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "done", ""),
        ("long text", "raise type('N' * 10**6, (Exception,), {})('\\U0001f980' * 10**6)", "done", ""),
        ("odd bytes", "import sys\nsys.stdout.buffer.write(b'a\\xff\\0b')", "done", "a\u{fffd}\0b"),
        ("deep", "def f(): f()\nf()", "done", ""),
        ("stdin", "try: input()\nexcept EOFError: print('nothing to read')", "done", "nothing to read\n"),
        ("pipes", "import os\nfor fd in range(5, 9): os.close(fd)\nprint('x')", "died", ""),
    ] {
        let path = name.replace(' ', "%20");
        desk.kernel(name).await;
        let (printed, end) = desk.run(&path, code).await;
        assert_eq!(end["outcome"], outcome, "{name}: {printed} {end}");
        if !prints.is_empty() {
            assert_eq!(printed, prints, "{name}");
        }
        if outcome == "died" {
            assert!(!end["reason"].as_str().unwrap().is_empty(), "{name}");
            desk.get(&format!("/v1/kernels/{path}")).await.problem(404, "not_found");
        } else {
            let (_, end) = desk.run(&path, "y = 1").await;
            assert_eq!(end, done(), "{name} lives on");
            desk.delete(&format!("/v1/kernels/{path}")).await.good();
        }
    }
    assert_eq!(desk.get("/v1/kernels").await.good()["kernels"], json!([]));
    assert_eq!(desk.get("/v1/activity").await.good()["commands"], 0);
}

/// A client that does not read makes the code wait, and costs no memory.
#[tokio::test]
async fn code_waits_for_a_client_that_does_not_read() {
    let desk = TestDesk::new().await;
    desk.kernel("one").await;
    let file = desk.path("printed");
    let code =
        format!("for n in range(1000):\n    print('x' * 100_000)\n    open({:?}, 'w').write(str(n))", file.display().to_string());
    let mut stream = desk.begin("one", json!({"code": code})).await;
    stream.next().await.unwrap().unwrap();
    let count = || std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut last = count();
    // It stands still once all that lies between is full.
    desk.until("the code waits", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::mem::replace(&mut last, count()) == count() && count() > 0
    })
    .await;
    assert!(count() < 200, "{} of 100 MB were taken", count());
    let mut bytes = 0;
    while let Some(piece) = stream.next().await {
        bytes += piece.unwrap().len();
    }
    assert!(bytes > 99_000_000);
}

#[tokio::test]
async fn closing_a_kernel_leaves_nothing_behind() {
    let desk = TestDesk::new().await;
    desk.kernel("one").await;
    let code = "import subprocess\np = subprocess.Popen(['sleep', '300'], start_new_session=True)\nprint(p.pid)";
    let pid: i32 = desk.run("one", code).await.0.trim().parse().unwrap();
    desk.delete("/v1/kernels/one").await.good();
    let alive = || std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| !env.is_empty());
    desk.until("what it started ends", async || !alive()).await;
}

#[tokio::test]
async fn what_cannot_be_says_why() {
    let desk = TestDesk::new().await;
    for (body, status, code) in [
        (json!({"name": ""}), 400, "invalid"),
        (json!({"name": "a/b"}), 400, "invalid"),
        (json!({"name": "x".repeat(200)}), 400, "invalid"),
        (json!({"cwd": "/no/such"}), 404, "not_found"),
        (json!({"env": {"a=b": "c"}}), 400, "invalid"),
        (json!({"language": "R"}), 400, "invalid"),
        // A Python that does not start says why.
        (json!({"env": {"PYTHONHOME": "/no/such"}}), 501, "unsupported"),
    ] {
        desk.post("/v1/kernels", body.clone()).await.problem(status, code);
    }
    desk.kernel("one").await;
    desk.post("/v1/kernels", json!({"name": "one"})).await.problem(409, "conflict");
    desk.post("/v1/kernels/one/execute", json!({})).await.problem(400, "invalid");
    desk.post("/v1/kernels/two/execute", json!({"code": "1"})).await.problem(404, "not_found");
    desk.post("/v1/kernels/two/interrupt", json!({})).await.problem(404, "not_found");
    let running = desk.begin("one", json!({"code": "import time\ntime.sleep(300)"})).await;
    let mut waiting = Vec::new();
    for _ in 1..16 {
        waiting.push(desk.begin("one", json!({"code": "1"})).await);
    }
    desk.post("/v1/kernels/one/execute", json!({"code": "1"})).await.problem(429, "too_many");
    drop((running, waiting));
    desk.until("all of them are gone", async || desk.get("/v1/kernels/one").await.good()["busy"] == false).await;

    let home = tempfile::tempdir().unwrap();
    let mut config = config(home.path());
    config.env.insert("PATH".into(), home.path().display().to_string());
    let without = super::desk(config, home.path()).await;
    let without = TestDesk { app: app(without.clone()), desk: without, home };
    let answer = without.post("/v1/kernels", json!({})).await;
    assert!(answer.problem(501, "unsupported").contains("no `python3`"));
    assert!(answer.json()["hint"].as_str().unwrap().contains("template"));
}
