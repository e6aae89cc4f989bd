//! Git, with the real program.

use super::{TestDesk, config, desk};
use crate::server::app;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

const SECRET: &str = "pass\\nword-8472";

impl TestDesk {
    async fn git(&self, call: &str, body: Value) -> Value {
        self.post(&format!("/v1/git/{call}"), body).await.good()
    }

    async fn status(&self, path: &str) -> Value {
        self.get(&format!("/v1/git/status?path={path}")).await.good()
    }

    /// A repository with one commit.
    async fn repository(&self, name: &str) -> String {
        self.git("init", json!({"path": name, "branch": "main"})).await;
        std::fs::write(self.path(name).join("ä b.txt"), "eins\n").unwrap();
        self.git("add", json!({"path": name, "files": ["."]})).await;
        let author = json!({"name": "Ada", "email": "ada@example.org"});
        let made = self.git("commit", json!({"path": name, "message": "first\n\nand why", "author": author})).await;
        made["hash"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_repository_goes_its_way() {
    let desk = TestDesk::new().await;
    let author = json!({"name": "Ada", "email": "ada@example.org"});
    desk.git("init", json!({"path": "server", "bare": true, "branch": "main"})).await;
    desk.git("init", json!({"path": "~/work", "branch": "main"})).await;
    std::fs::write(desk.path("work/ä b.txt"), "eins\n").unwrap();
    std::fs::write(desk.path("work/-f"), "an option?\n").unwrap();
    let status = desk.status("work").await;
    assert_eq!((&status["branch"], &status["upstream"], &status["distance"]), (&json!("main"), &Value::Null, &Value::Null));
    assert_eq!(status["files"][1], json!({"path": "ä b.txt", "staged": "untracked", "unstaged": "untracked"}));
    desk.git("add", json!({"path": "work", "files": ["-f", "ä b.txt"]})).await;
    assert_eq!(desk.status("work").await["files"][0]["staged"], "added");
    // Longer than one argument of a program may be.
    let message = format!("first\n\n{}", "why ".repeat(50_000));
    let first = desk.git("commit", json!({"path": "work", "message": message, "author": author})).await["hash"].clone();
    assert_eq!(desk.status("work").await["files"], json!([]));

    let server = desk.path("server").display().to_string();
    desk.git("remotes", json!({"path": "work", "name": "origin", "url": "/nowhere"})).await;
    desk.post("/v1/git/remotes", json!({"path": "work", "name": "origin", "url": server})).await.problem(409, "conflict");
    desk.git("remotes", json!({"path": "work", "name": "origin", "url": server, "overwrite": true})).await;
    let remotes = desk.get("/v1/git/remotes?path=work").await.good();
    assert_eq!(remotes, json!({"remotes": [{"name": "origin", "url": server}]}));
    desk.git("push", json!({"path": "work", "set_upstream": true})).await;
    assert_eq!(desk.status("work").await["distance"], json!({"ahead": 0, "behind": 0}));
    desk.git("clone", json!({"url": server, "path": "other"})).await;
    std::fs::write(desk.path("other/ä b.txt"), "zwei\n").unwrap();
    assert_eq!(
        desk.status("other").await["files"][0],
        json!({"path": "ä b.txt", "staged": "unmodified", "unstaged": "modified"})
    );
    desk.git("add", json!({"path": "other", "files": ["."]})).await;
    desk.git("commit", json!({"path": "other", "message": "second", "author": {"name": "Ben", "email": "b@example.org"}})).await;
    assert_eq!(desk.status("other").await["distance"]["ahead"], 1);
    desk.git("push", json!({"path": "other"})).await;
    desk.git("pull", json!({"path": "work"})).await;
    assert_eq!(std::fs::read_to_string(desk.path("work/ä b.txt")).unwrap(), "zwei\n");
    let history = desk.get("/v1/git/history?path=work").await.good();
    let commits = history["commits"].as_array().unwrap();
    assert_eq!((commits.len(), &history["truncated"]), (2, &json!(false)));
    assert_eq!((&commits[0]["message"], &commits[0]["author"]["name"]), (&json!("second"), &json!("Ben")));
    assert_eq!((&commits[1]["hash"], &commits[1]["message"]), (&first, &json!(message.trim_end())));
    commits[1]["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(desk.get("/v1/git/history?path=work&limit=1").await.good()["commits"].as_array().unwrap().len(), 1);

    // A commit that a shallow copy does not have.
    let url = format!("file://{server}");
    desk.git("clone", json!({"url": url, "path": "third", "commit": first, "depth": 1})).await;
    assert_eq!(desk.status("third").await["branch"], Value::Null);
    assert_eq!(desk.get("/v1/git/branches?path=third").await.good(), json!({"branches": ["main"]}));

    desk.git("branches", json!({"path": "work", "name": "idea", "checkout": true})).await;
    desk.git("branches", json!({"path": "work", "name": "other/idea"})).await;
    let branches = desk.get("/v1/git/branches?path=work").await.good();
    assert_eq!(branches, json!({"branches": ["idea", "main", "other/idea"], "current": "idea"}));
    desk.git("checkout", json!({"path": "work", "branch": "main"})).await;
    desk.delete("/v1/git/branches?path=work&name=other/idea").await.good();
    desk.delete("/v1/git/branches?path=work&name=idea").await.good();
    desk.delete("/v1/git/branches?path=work&name=idea").await.problem(404, "not_found");

    std::fs::write(desk.path("work/ä b.txt"), "drei\n").unwrap();
    desk.git("restore", json!({"path": "work", "files": ["ä b.txt"]})).await;
    assert_eq!(desk.status("work").await["files"], json!([]));
    std::fs::write(desk.path("work/ä b.txt"), "drei\n").unwrap();
    desk.git("add", json!({"path": "work", "files": ["."]})).await;
    desk.git("reset", json!({"path": "work", "files": ["ä b.txt"]})).await;
    assert_eq!(desk.status("work").await["files"][0]["unstaged"], "modified");
    desk.git("reset", json!({"path": "work", "mode": "hard", "target": "HEAD~1"})).await;
    assert_eq!(std::fs::read_to_string(desk.path("work/ä b.txt")).unwrap(), "eins\n");
}

#[tokio::test]
async fn settings_are_read_and_changed() {
    let desk = TestDesk::new().await;
    desk.repository("work").await;
    let put = async |body: Value| {
        let request = Request::put("/v1/git/config").header("content-type", "application/json");
        desk.ask(request.body(body.to_string().into()).unwrap()).await
    };
    put(json!({"key": "user.name", "value": "Ada"})).await.good();
    put(json!({"key": "user.name", "value": "--unset", "path": "work"})).await.good();
    let get = async |query: &str| desk.get(&format!("/v1/git/config?key=user.name{query}")).await.good();
    assert_eq!(get("").await, json!({"value": "Ada"}));
    assert_eq!(get("&path=work").await, json!({"value": "--unset"}), "a value is no option");
    assert_eq!(get("&path=work&scope=global").await, json!({"value": "Ada"}));
    assert_eq!(desk.get("/v1/git/config?key=no.such").await.good(), json!({}));
    desk.get("/v1/git/config?key=--list").await.problem(400, "invalid");
    put(json!({"key": "--edit", "value": "x"})).await.problem(400, "invalid");
    put(json!({"key": "a.b", "value": "x", "scope": "everywhere"})).await.problem(400, "invalid");
    let keep = json!({"credentials": {"username": "me", "password": SECRET}, "host": "git.example"});
    desk.git("credentials", keep).await;
    assert!(std::fs::read_to_string(desk.path(".git-credentials")).unwrap().contains("@git.example"));
    let two = json!({"credentials": {"username": "me\nhost=evil", "password": "x"}, "host": "git.example"});
    desk.post("/v1/git/credentials", two).await.problem(400, "invalid");
}

#[tokio::test]
async fn what_git_refuses_says_why() {
    let desk = TestDesk::new().await;
    let first = desk.repository("work").await;
    std::fs::create_dir(desk.path("plain")).unwrap();
    let path = "work";
    let marker = desk.path("marker");
    let evil = format!("--upload-pack=touch {}", marker.display());
    for (call, body, status, code, says) in [
        ("clone", json!({"url": "", "path": "x"}), 400, "invalid", "`url`"),
        ("clone", json!({"url": "/no/such", "path": "x"}), 404, "not_found", "does not exist"),
        ("clone", json!({"url": evil, "path": "x"}), 404, "not_found", "does not exist"),
        ("clone", json!({"url": "ext::sh -c touch% marker", "path": "x"}), 400, "invalid", "not allowed"),
        (
            "clone",
            json!({"url": desk.path("work").display().to_string(), "path": "x", "commit": "--quiet"}),
            400,
            "invalid",
            "dash",
        ),
        ("add", json!({"path": "work"}), 400, "invalid", "files"),
        ("add", json!({"path": "work", "files": []}), 400, "invalid", "`files`"),
        ("add", json!({"path": "work", "files": ["none"]}), 404, "not_found", "did not match"),
        ("add", json!({"path": "work", "files": ["a\0b"]}), 400, "invalid", "NUL"),
        ("add", json!({"path": "plain", "files": ["."]}), 404, "not_found", "not a git repository"),
        ("add", json!({"path": "nowhere", "files": ["."]}), 404, "not_found", "not a git repository"),
        ("commit", json!({"path": path, "message": ""}), 400, "invalid", "`message`"),
        (
            "commit",
            json!({"path": path, "message": "m", "author": {"name": "a", "email": "b"}}),
            400,
            "invalid",
            "nothing to commit",
        ),
        ("checkout", json!({"path": path, "branch": "--orphan=x"}), 400, "invalid", "dash"),
        ("checkout", json!({"path": path, "branch": "none"}), 404, "not_found", "invalid reference"),
        ("branches", json!({"path": path, "name": "-D"}), 400, "invalid", "dash"),
        ("branches", json!({"path": path, "name": "main"}), 409, "conflict", "already exists"),
        ("push", json!({"path": path, "remote": evil}), 400, "invalid", "dash"),
        ("push", json!({"path": path, "branch": "--force"}), 400, "invalid", "dash"),
        ("push", json!({"path": path}), 404, "not_found", "origin"),
        ("pull", json!({"path": path, "remote": evil}), 400, "invalid", "dash"),
        ("reset", json!({"path": path, "target": "--hard"}), 400, "invalid", "dash"),
        ("reset", json!({"path": path, "mode": "gentle"}), 400, "invalid", "gentle"),
        ("reset", json!({"path": path, "mode": "hard", "files": ["x"]}), 400, "invalid", "either"),
        ("restore", json!({"path": path, "files": ["none"]}), 404, "not_found", "did not match"),
        ("remotes", json!({"path": path, "name": "--help", "url": "x"}), 400, "invalid", "dash"),
        ("status", json!({}), 405, "method_not_allowed", ""),
        ("clone", json!({"url": "x", "path": "y", "wish": 1}), 400, "invalid", "wish"),
    ] {
        let detail = desk.post(&format!("/v1/git/{call}"), body.clone()).await.problem(status, code);
        assert!(detail.contains(says), "{call} {body}: {detail}");
    }
    assert!(!marker.exists() && !desk.path("work/marker").exists(), "what was named was run");
    desk.get("/v1/git/status?path=nowhere").await.problem(404, "not_found");
    desk.get("/v1/git/status").await.problem(400, "invalid");
    let head = desk.get("/v1/git/history?path=work").await.good()["commits"][0]["hash"].clone();
    assert_eq!(head, json!(first), "nothing of it did anything");
}

#[tokio::test]
async fn a_desk_without_git_says_so() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config(home.path());
    config.env.insert("PATH".into(), home.path().display().to_string());
    let desk = desk(config, home.path()).await;
    let desk = TestDesk { app: app(desk.clone()), desk, home };
    let answer = desk.get("/v1/git/status?path=~").await;
    assert!(answer.problem(501, "unsupported").contains("no such program"));
    assert!(answer.json()["hint"].as_str().unwrap().contains("template"));
}

/// A server of repositories that wants a password, and writes down what it was told.
#[derive(Clone)]
struct Forge {
    files: PathBuf,
    /// Where it sends everybody, instead.
    elsewhere: Option<String>,
    told: Arc<Mutex<Vec<String>>>,
    /// Whether the secret stood on a command line while git asked.
    seen: Arc<Mutex<bool>>,
}

impl Forge {
    async fn start(files: PathBuf, elsewhere: Option<String>) -> (Self, SocketAddr) {
        let forge = Self { files, elsewhere, told: Arc::default(), seen: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer).with_state(forge.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (forge, address)
    }
}

async fn answer(State(forge): State<Forge>, headers: HeaderMap, request: Request) -> Response {
    if let Some(elsewhere) = &forge.elsewhere {
        let to = format!("{elsewhere}{}", request.uri());
        return (StatusCode::FOUND, [(header::LOCATION, to)]).into_response();
    }
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    let lines: Vec<u8> = lines.flat_map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default()).collect();
    *forge.seen.lock().unwrap() |= String::from_utf8_lossy(&lines).contains(SECRET);
    let given = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Basic "));
    let given = given.map(|text| String::from_utf8(STANDARD.decode(text).unwrap()).unwrap());
    forge.told.lock().unwrap().extend(given.clone());
    if given != Some(format!("me:{SECRET}")) {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"forge\"")]).into_response();
    }
    match std::fs::read(forge.files.join(request.uri().path().trim_start_matches('/'))) {
        Ok(bytes) => bytes.into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

#[tokio::test]
async fn credentials_reach_the_server_that_was_named_and_nobody_else() {
    let desk = TestDesk::new().await;
    desk.repository("work").await;
    let bare = desk.path("served");
    std::fs::create_dir(&bare).unwrap();
    desk.git("clone", json!({"url": desk.path("work").display().to_string(), "path": "served/it.git"})).await;
    let publish = json!({"argv": ["git", "-C", "served/it.git", "update-server-info"]});
    desk.post("/v1/processes/run", publish).await.good();
    // Plain files are served, as git serves them where there is no program for it.
    let (forge, address) = Forge::start(bare.join("it.git/.git"), None).await;
    let url = format!("http://{address}");
    let good = json!({"username": "me", "password": SECRET});

    desk.git("clone", json!({"url": url, "path": "copy", "credentials": good})).await;
    assert_eq!(std::fs::read_to_string(desk.path("copy/ä b.txt")).unwrap(), "eins\n");
    desk.git("pull", json!({"path": "copy", "credentials": good})).await;
    assert!(!*forge.seen.lock().unwrap(), "the password stood on a command line");
    let kept = std::fs::read_to_string(desk.path("copy/.git/config")).unwrap();
    assert!(kept.contains(&url) && !kept.contains("word-8472"), "{kept}");
    assert!(!desk.path(".git-credentials").exists());

    // None, and wrong ones: they are not repeated.
    let answer = desk.post("/v1/git/clone", json!({"url": url, "path": "a"})).await;
    answer.problem(403, "credentials_refused");
    let wrong = json!({"username": "me", "password": "not-it-5518"});
    let detail = desk.post("/v1/git/clone", json!({"url": url, "path": "a", "credentials": wrong})).await;
    assert!(!detail.problem(403, "credentials_refused").contains("not-it-5518"));
    let named = format!("http://me:not-it-5518@{address}");
    let detail = desk.post("/v1/git/clone", json!({"url": named, "path": "a"})).await;
    assert!(!detail.problem(403, "credentials_refused").contains("not-it-5518"));
    desk.git("remotes", json!({"path": "work", "name": "forge", "url": named})).await;
    assert_eq!(desk.get("/v1/git/remotes?path=work").await.good()["remotes"][0]["url"], format!("http://me@{address}"));

    // A server that sends git elsewhere: it is not told there.
    let (other, elsewhere) = Forge::start(bare.join("it.git/.git"), None).await;
    let (_, address) = Forge::start(bare, Some(format!("http://{elsewhere}"))).await;
    let url = format!("http://{address}");
    let answer = desk.post("/v1/git/clone", json!({"url": url, "path": "b", "credentials": good})).await;
    answer.problem(403, "credentials_refused");
    assert_eq!(*other.told.lock().unwrap(), Vec::<String>::new());
}
