//! Git: the desk's own program, with what it says put into Daytona's form.

use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, empty, ok};
use super::super::{Call, api};
use super::process::{exit_code, run_in};
use axum::http::{Method, StatusCode};
use hotdesk_api::process::RunProcess;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Asks the environment for what a server wants to know, so that it stands on no command line and in no file.
const ASK_ENVIRONMENT: &str =
    "credential.helper=!f() { echo username=\"$HOTDESK_GIT_USER\"; echo password=\"$HOTDESK_GIT_PASSWORD\"; }; f";
/// Shells say so of a program that is not there.
const NO_PROGRAM: i32 = 127;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    path: String,
    url: String,
    branch: Option<String>,
    commit_id: Option<String>,
    depth: Option<u32>,
    insecure_skip_tls: bool,
    username: Option<String>,
    password: Option<String>,
    files: Vec<String>,
    name: String,
    message: String,
    author: String,
    email: String,
    allow_empty: bool,
    remote: Option<String>,
    set_upstream: bool,
    bare: bool,
    initial_branch: Option<String>,
    mode: Option<String>,
    target: Option<String>,
    source: Option<String>,
    staged: Option<bool>,
    worktree: Option<bool>,
    fetch: bool,
    overwrite: bool,
    key: String,
    value: String,
    scope: Option<String>,
    host: Option<String>,
    protocol: Option<String>,
}

pub(crate) async fn answer(mut call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    if method == Method::GET {
        let query = call.query();
        if let ["config"] = words {
            let scope = scope(query.get("scope"))?;
            return config(&desk, query.get("path"), scope, query.need("key")?).await;
        }
        let path = query.need("path")?;
        return match words {
            ["status"] => status(&desk, path).await,
            ["branches"] => branches(&desk, path).await,
            ["history"] => history(&desk, path).await,
            ["remotes"] => remotes(&desk, path).await,
            _ => Err(api::nothing(&call)),
        };
    }
    let wanted: Wanted = call.json().await?;
    let git = Git { desk: &desk, path: Some(&wanted.path), credentials: wanted.credentials() };
    let done = match (&method, words) {
        (&Method::POST, ["clone"]) => return clone(&desk, &wanted).await,
        (&Method::POST, ["init"]) => return init(&desk, &wanted).await,
        (&Method::POST, ["config", "user"]) => return user(&desk, &wanted).await,
        (&Method::POST, ["config"]) => return set(&desk, &wanted).await,
        (&Method::POST, ["credentials"]) => return authenticate(&desk, &wanted).await,
        _ if wanted.path.is_empty() => return Err(Failure::bad_request("bad request: path is required")),
        (&Method::POST, ["commit"]) => return commit(&git, &wanted).await,
        (&Method::POST, ["remotes"]) => return add_remote(&git, &wanted).await,
        (&Method::POST, ["branches"]) => {
            // It is checked out, too.
            git.run(&["checkout", "-b", &wanted.name, "--"]).await?;
            return empty(StatusCode::CREATED);
        }
        (&Method::DELETE, ["branches"]) => {
            git.run(&["branch", "-D", "--", &wanted.name]).await?;
            return empty(StatusCode::NO_CONTENT);
        }
        (&Method::POST, ["add"]) => git.run_on(&["add"], &wanted.files).await,
        (&Method::POST, ["checkout"]) => git.run(&["checkout", need("branch", wanted.branch.as_deref())?, "--"]).await,
        (&Method::POST, ["push"]) => {
            let mut words = vec!["push"];
            words.extend(wanted.set_upstream.then_some("--set-upstream"));
            words.extend(wanted.from());
            // Without a branch, the one that is checked out: what "simple" refuses for want of an upstream is meant all the same.
            words.extend(wanted.branch.is_none().then_some("HEAD"));
            git.run(&words).await
        }
        (&Method::POST, ["pull"]) => {
            let mut words = vec!["pull", "--no-rebase"];
            if wanted.remote.is_some() || wanted.branch.is_some() {
                words.extend(wanted.from());
            }
            git.run(&words).await
        }
        (&Method::POST, ["reset"]) => reset(&git, &wanted).await,
        (&Method::POST, ["restore"]) => restore(&git, &wanted).await,
        _ => return Err(api::nothing(&call)),
    };
    done.and_then(|_| empty(StatusCode::OK))
}

impl Wanted {
    fn credentials(&self) -> Option<(&str, &str)> {
        let given = |text: &'_ Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let some = given(&self.username) || given(&self.password);
        some.then(|| (self.username.as_deref().unwrap_or_default(), self.password.as_deref().unwrap_or_default()))
    }

    /// A remote and a branch of it, as far as they are named.
    fn from(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.remote.as_deref().unwrap_or("origin")).chain(self.branch.as_deref())
    }
}

fn need<'a>(name: &str, value: Option<&'a str>) -> Reply<&'a str> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| Failure::bad_request(format!("bad request: {name} is required")))
}

// ── the program ──

struct Git<'a> {
    desk: &'a Desk,
    /// The repository; paths are below the home.
    path: Option<&'a str>,
    credentials: Option<(&'a str, &'a str)>,
}

impl Git<'_> {
    async fn run(&self, words: &[&str]) -> Reply<String> {
        self.run_with(words, None).await
    }

    /// With files, which may be called like options.
    async fn run_on(&self, words: &[&str], files: &[String]) -> Reply<String> {
        if files.is_empty() {
            return Err(Failure::bad_request("bad request: files are required"));
        }
        let words: Vec<&str> = words.iter().copied().chain(["--"]).chain(files.iter().map(String::as_str)).collect();
        self.run(&words).await
    }

    async fn run_with(&self, words: &[&str], input: Option<String>) -> Reply<String> {
        let (code, said) = self.ask(words, input).await?;
        if code == 0 { Ok(said) } else { Err(self.complaint(words, &said)) }
    }

    /// How it ended and what it said.
    async fn ask(&self, words: &[&str], input: Option<String>) -> Reply<(i32, String)> {
        let mut argv = vec!["git".to_owned()];
        if let Some(path) = self.path {
            argv.extend(["-C".to_owned(), path.to_owned()]);
        }
        let mut variables = BTreeMap::from([
            // It asks nobody, and speaks the language in which it is read.
            ("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()),
            ("LC_ALL".to_owned(), "C.UTF-8".to_owned()),
        ]);
        if let Some((user, password)) = self.credentials {
            argv.extend(["-c", "credential.helper=", "-c", ASK_ENVIRONMENT].map(str::to_owned));
            variables.insert("HOTDESK_GIT_USER".into(), user.into());
            variables.insert("HOTDESK_GIT_PASSWORD".into(), password.into());
        }
        argv.extend(words.iter().map(|word| (*word).to_owned()));
        // By way of a shell, which knows what to say if there is no such program.
        let shell = ["/bin/sh", "-c", "exec \"$@\"", "sh"].map(str::to_owned).into_iter().chain(argv).collect();
        let run = RunProcess { argv: Some(shell), stdin: input, ..RunProcess::default() };
        let result = run_in(self.desk, run, Some(variables), None).await?;
        if exit_code(&result) == NO_PROGRAM {
            let hint =
                "the template of this sandbox has no git: take `code` or `desktop`, or a template of your own with the package";
            return Err(Failure::unsupported(hint));
        }
        Ok((exit_code(&result), result.stdout))
    }

    /// What went wrong, by what it said. SDKs raise finer classes by the status.
    fn complaint(&self, words: &[&str], said: &str) -> Failure {
        let lower = said.to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let status = if says(&[
            "authentication failed",
            "could not read username",
            "could not read password",
            "terminal prompts disabled",
        ]) {
            StatusCode::UNAUTHORIZED
        } else if says(&["returned error: 403", "permission denied"]) {
            StatusCode::FORBIDDEN
        } else if says(&[
            "non-fast-forward",
            "fetch first",
            "updates were rejected",
            "would be overwritten",
            "already exists",
            "needs merge",
            "conflict",
            "unmerged",
        ]) {
            StatusCode::CONFLICT
        } else if says(&[
            "not a git repository",
            "cannot change to",
            "repository not found",
            "returned error: 404",
            "does not exist",
            "not found",
            "did not match any",
            "unknown revision",
            "invalid reference",
            "no such remote",
            "does not appear to be a git repository",
        ]) {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::BAD_REQUEST
        };
        let mut text = format!("git {}: {}", words.first().unwrap_or(&""), said.trim());
        if let Some((_, password)) = self.credentials.filter(|(_, password)| !password.is_empty()) {
            text = text.replace(password, "***");
        }
        Failure::new(status, text)
    }
}

// ── making repositories ──

async fn clone(desk: &Desk, wanted: &Wanted) -> Reply {
    let (url, path) = (need("url", Some(&wanted.url))?, need("path", Some(&wanted.path))?);
    let git = Git { desk, path: None, credentials: wanted.credentials() };
    let depth = wanted.depth.filter(|depth| *depth > 0).map(|depth| format!("--depth={depth}"));
    let branch = wanted.branch.as_deref().filter(|branch| !branch.is_empty()).map(|branch| format!("--branch={branch}"));
    let mut words = Vec::new();
    words.extend(wanted.insecure_skip_tls.then_some(["-c", "http.sslVerify=false"]).into_iter().flatten());
    words.push("clone");
    words.extend(depth.as_deref());
    words.extend(branch.as_deref());
    words.extend(["--", url, path]);
    git.run(&words).await?;
    if let Some(commit) = wanted.commit_id.as_deref().filter(|commit| !commit.is_empty()) {
        let git = Git { path: Some(path), ..git };
        if git.run(&["checkout", "--detach", commit, "--"]).await.is_err() {
            // A clone that is not deep may not have it.
            git.run(&["fetch", "origin", commit]).await?;
            git.run(&["checkout", "--detach", "FETCH_HEAD", "--"]).await?;
        }
    }
    empty(StatusCode::OK)
}

async fn init(desk: &Desk, wanted: &Wanted) -> Reply {
    let path = need("path", Some(&wanted.path))?;
    let branch = wanted.initial_branch.as_deref().filter(|branch| !branch.is_empty());
    let branch = branch.map(|branch| format!("--initial-branch={branch}"));
    let mut words = vec!["init"];
    words.extend(wanted.bare.then_some("--bare"));
    words.extend(branch.as_deref());
    words.extend(["--", path]);
    Git { desk, path: None, credentials: None }.run(&words).await?;
    empty(StatusCode::CREATED)
}

// ── changing them ──

async fn commit(git: &Git<'_>, wanted: &Wanted) -> Reply {
    let message = need("message", Some(&wanted.message))?;
    let (name, email) = (need("author", Some(&wanted.author))?, need("email", Some(&wanted.email))?);
    let (name, email) = (format!("user.name={name}"), format!("user.email={email}"));
    let mut words = vec!["-c", &name, "-c", &email, "commit", "--quiet", "-m", message];
    words.extend(wanted.allow_empty.then_some("--allow-empty"));
    git.run(&words).await?;
    let hash = git.run(&["rev-parse", "HEAD"]).await?;
    ok(json!({"hash": hash.trim()}))
}

async fn reset(git: &Git<'_>, wanted: &Wanted) -> Reply<String> {
    let target = wanted.target.as_deref().filter(|target| !target.is_empty()).unwrap_or("HEAD");
    if !wanted.files.is_empty() {
        return git.run_on(&["reset", "--quiet", target], &wanted.files).await;
    }
    let mode = match wanted.mode.as_deref().unwrap_or("mixed") {
        mode @ ("soft" | "mixed" | "hard" | "merge" | "keep") => format!("--{mode}"),
        "" => "--mixed".into(),
        other => return Err(Failure::bad_request(format!("bad request: {} is no way to reset", other.escape_default()))),
    };
    git.run(&["reset", "--quiet", &mode, target, "--"]).await
}

async fn restore(git: &Git<'_>, wanted: &Wanted) -> Reply<String> {
    let source = wanted.source.as_deref().filter(|source| !source.is_empty()).map(|source| format!("--source={source}"));
    let mut words = vec!["restore"];
    words.extend(source.as_deref());
    words.extend((wanted.staged == Some(true)).then_some("--staged"));
    words.extend((wanted.worktree == Some(true)).then_some("--worktree"));
    git.run_on(&words, &wanted.files).await
}

async fn add_remote(git: &Git<'_>, wanted: &Wanted) -> Reply {
    let (name, url) = (need("name", Some(&wanted.name))?, need("url", Some(&wanted.url))?);
    if wanted.overwrite {
        let _ = git.run(&["remote", "remove", name]).await;
    }
    git.run(&["remote", "add", "--", name, url]).await?;
    if wanted.fetch {
        git.run(&["fetch", name]).await?;
    }
    empty(StatusCode::CREATED)
}

// ── settings ──

fn scope(name: Option<&str>) -> Reply<Option<&'static str>> {
    match name.unwrap_or_default() {
        "" => Ok(None),
        "local" => Ok(Some("--local")),
        "global" => Ok(Some("--global")),
        "system" => Ok(Some("--system")),
        other => {
            Err(Failure::bad_request(format!("bad request: scope is local, global or system, not {}", other.escape_default())))
        }
    }
}

async fn config(desk: &Desk, path: Option<&str>, scope: Option<&str>, key: &str) -> Reply {
    let git = Git { desk, path: path.filter(|path| !path.is_empty()), credentials: None };
    let words: Vec<&str> = ["config"].into_iter().chain(scope).chain(["--get", key]).collect();
    match git.ask(&words, None).await? {
        (0, said) => ok(json!({"value": said.trim_end_matches('\n')})),
        // Not set.
        (1, _) => ok(json!({})),
        (_, said) => Err(git.complaint(&words, &said)),
    }
}

async fn put(desk: &Desk, wanted: &Wanted, pairs: &[(&str, &str)]) -> Reply {
    let path = Some(wanted.path.as_str()).filter(|path| !path.is_empty());
    // Without a repository it can only be meant for all of them.
    let usual = if path.is_some() { "--local" } else { "--global" };
    let scope = scope(wanted.scope.as_deref())?.unwrap_or(usual);
    let git = Git { desk, path, credentials: None };
    for (key, value) in pairs {
        git.run(&["config", scope, key, value]).await?;
    }
    empty(StatusCode::OK)
}

async fn set(desk: &Desk, wanted: &Wanted) -> Reply {
    put(desk, wanted, &[(need("key", Some(&wanted.key))?, &wanted.value)]).await
}

async fn user(desk: &Desk, wanted: &Wanted) -> Reply {
    let (name, email) = (need("name", Some(&wanted.name))?, need("email", Some(&wanted.email))?);
    put(desk, wanted, &[("user.name", name), ("user.email", email)]).await
}

/// Keeps a password in the sandbox, for every program in it: that is what was asked for.
async fn authenticate(desk: &Desk, wanted: &Wanted) -> Reply {
    let user = need("username", wanted.username.as_deref())?;
    let password = need("password", wanted.password.as_deref())?;
    let host = wanted.host.as_deref().filter(|host| !host.is_empty()).unwrap_or("github.com");
    let protocol = wanted.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("https");
    if [user, password, host, protocol].iter().any(|text| text.contains('\n')) {
        return Err(Failure::bad_request("bad request: none of them has more than one line"));
    }
    let git = Git { desk, path: None, credentials: None };
    git.run(&["config", "--global", "credential.helper", "store"]).await?;
    let input = format!("protocol={protocol}\nhost={host}\nusername={user}\npassword={password}\n\n");
    git.run_with(&["credential", "approve"], Some(input)).await?;
    empty(StatusCode::OK)
}

// ── looking at them ──

async fn status(desk: &Desk, path: &str) -> Reply {
    let git = Git { desk, path: Some(path), credentials: None };
    let said = git.run(&["status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"]).await?;
    ok(status_of(&said))
}

/// Reads what `git status --porcelain=v2 --branch -z` says.
fn status_of(said: &str) -> Value {
    let (mut branch, mut upstream, mut counts) = ("", "", None);
    let mut files = Vec::new();
    let mut records = said.split('\0').filter(|record| !record.is_empty());
    while let Some(record) = records.next() {
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        // How many words stand before the name.
        let before = match kind {
            "#" => {
                let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
                match key {
                    "branch.head" => branch = value,
                    "branch.upstream" => upstream = value,
                    "branch.ab" => counts = value.split_once(' '),
                    _ => {}
                }
                continue;
            }
            "?" => {
                files.push(json!({"name": rest, "extra": "", "staging": "Untracked", "worktree": "Untracked"}));
                continue;
            }
            "1" => 7,
            "2" => 8,
            "u" => 9,
            _ => continue,
        };
        let Some(name) = rest.splitn(before + 1, ' ').nth(before) else { continue };
        let mut letters = rest.chars();
        let (staging, worktree) = (letters.next().map_or("", word), letters.next().map_or("", word));
        // Renamed and copied files have their old name behind them.
        let extra = if kind == "2" { records.next().unwrap_or_default() } else { "" };
        files.push(json!({"name": name, "extra": extra, "staging": staging, "worktree": worktree}));
    }
    let number = |text: &str| text.trim_start_matches(['+', '-']).parse::<u64>().unwrap_or(0);
    let detached = branch == "(detached)";
    json!({
        "currentBranch": if detached { "HEAD" } else { branch },
        "detached": detached,
        "upstream": upstream,
        "branchPublished": counts.is_some(),
        "ahead": counts.map_or(0, |(ahead, _)| number(ahead)),
        "behind": counts.map_or(0, |(_, behind)| number(behind)),
        "fileStatus": files,
    })
}

fn word(letter: char) -> &'static str {
    match letter {
        'M' | 'T' => "Modified",
        'A' => "Added",
        'D' => "Deleted",
        'R' => "Renamed",
        'C' => "Copied",
        'U' => "Updated but unmerged",
        _ => "Unmodified",
    }
}

async fn branches(desk: &Desk, path: &str) -> Reply {
    let git = Git { desk, path: Some(path), credentials: None };
    let all = git.run(&["for-each-ref", "--format=%(refname:short)", "refs/heads"]).await?;
    let current = git.run(&["branch", "--show-current"]).await?;
    ok(json!({"branches": all.lines().collect::<Vec<_>>(), "current": current.trim()}))
}

async fn history(desk: &Desk, path: &str) -> Reply {
    let git = Git { desk, path: Some(path), credentials: None };
    let said = git.run(&["log", "-z", "--format=%H%x1f%an%x1f%ae%x1f%aI%x1f%B"]).await?;
    let commit = |record: &str| {
        let mut parts = record.splitn(5, '\x1f');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        let (hash, author, email, timestamp, message) = (next(), next(), next(), next(), next());
        json!({"hash": hash, "author": author, "email": email, "timestamp": timestamp, "message": message.trim_end()})
    };
    ok(said.split('\0').filter(|record| !record.is_empty()).map(commit).collect::<Vec<_>>())
}

async fn remotes(desk: &Desk, path: &str) -> Reply {
    let git = Git { desk, path: Some(path), credentials: None };
    let mut remotes = Vec::new();
    for name in git.run(&["remote"]).await?.lines() {
        let url = git.run(&["remote", "get-url", name]).await?;
        remotes.push(json!({"name": name, "url": without_password(url.trim())}));
    }
    ok(json!({"remotes": remotes}))
}

/// `https://user:password@host/` is shown as `https://user@host/`.
fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, host) = rest.split_once('@').filter(|(user, _)| !user.contains('/'))?;
        Some(format!("{scheme}://{}@{host}", user.split_once(':')?.0))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let said = "# branch.oid 1\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0\
                    1 .M N... 100644 100644 100644 a b a file\0\
                    2 R. N... 100644 100644 100644 a b R100 new name\0old name\0\
                    u UU N... 1 2 3 4 a b c both\0? un tracked\0";
        let status = status_of(said);
        assert_eq!(status["currentBranch"], "main");
        assert_eq!((&status["ahead"], &status["behind"]), (&json!(2), &json!(1)));
        let files = status["fileStatus"].as_array().unwrap();
        assert_eq!(files[0], json!({"name": "a file", "extra": "", "staging": "Unmodified", "worktree": "Modified"}));
        assert_eq!(files[1], json!({"name": "new name", "extra": "old name", "staging": "Renamed", "worktree": "Unmodified"}));
        assert_eq!(files[2]["name"], "both");
        assert_eq!(files[3]["name"], "un tracked");
        assert_eq!(files.len(), 4);
        let fresh = status_of("# branch.oid (initial)\0# branch.head (detached)\0");
        assert_eq!((&fresh["currentBranch"], &fresh["detached"]), (&json!("HEAD"), &json!(true)));
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("https://me:secret@host/a@b"), "https://me@host/a@b");
        for url in ["https://host/a:b@c", "git@host:a/b", "https://me@host/", "/a/b"] {
            assert_eq!(without_password(url), url);
        }
    }
}
