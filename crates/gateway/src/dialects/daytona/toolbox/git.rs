//! Git: Daytona's calls as those of the desk.

use super::super::desk::{Desk, encoded};
use super::super::reply::{Failure, Reply, empty, ok};
use super::super::{Call, Query, api};
use axum::http::{Method, StatusCode};
use hotdesk_api::git::{
    AddFiles, AddRemote, BranchList, ChangeGitSetting, Checkout, CloneRepository, Commit, GitAuthor, GitChange, GitCredentials,
    GitScope, GitSetting, GitStatus, History, InitRepository, KeepCredentials, MadeCommit, MakeCommit, NewBranch, PullCommits,
    PushCommits, RemoteList, ResetMode, ResetRepository, RestoreFiles,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Of the desk's own API.
const GIT: &str = "/v1/git";
/// What Daytona takes for the server and the protocol of credentials.
const HOST: &str = "github.com";
const PROTOCOL: &str = "https";

pub(crate) async fn answer(mut call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    let done = match (&method, words) {
        (&Method::GET, words) => look(&call, &desk, words).await,
        (&Method::POST, ["clone"]) => clone(&desk, call.json().await?).await,
        (&Method::POST, ["init"]) => init(&desk, call.json().await?).await,
        (&Method::POST, ["add"]) => add(&desk, call.json().await?).await,
        (&Method::POST, ["commit"]) => commit(&desk, call.json().await?).await,
        (&Method::POST, ["push"]) => push(&desk, call.json().await?).await,
        (&Method::POST, ["pull"]) => pull(&desk, call.json().await?).await,
        (&Method::POST, ["branches"]) => create_branch(&desk, call.json().await?).await,
        (&Method::DELETE, ["branches"]) => delete_branch(&desk, call.json().await?).await,
        (&Method::POST, ["checkout"]) => checkout(&desk, call.json().await?).await,
        (&Method::POST, ["reset"]) => reset(&desk, call.json().await?).await,
        (&Method::POST, ["restore"]) => restore(&desk, call.json().await?).await,
        (&Method::POST, ["remotes"]) => add_remote(&desk, call.json().await?).await,
        (&Method::POST, ["config"]) => set(&desk, call.json().await?).await,
        (&Method::POST, ["config", "user"]) => set_user(&desk, call.json().await?).await,
        (&Method::POST, ["credentials"]) => authenticate(&desk, call.json().await?).await,
        _ => Err(api::nothing(&call)),
    };
    done.map_err(without_git)
}

/// SDKs take 501 for a fault of the server.
fn without_git(failure: Failure) -> Failure {
    match failure.status() {
        StatusCode::NOT_IMPLEMENTED => Failure::unsupported(
            "the template of this sandbox has no git: take `base`, `code` or `desktop`, or a template of your own with the package",
        ),
        _ => failure,
    }
}

/// Asks the desk for something that answers nothing.
async fn ask(desk: &Desk, call: &str, body: &impl Serialize) -> Reply<()> {
    desk.post::<Value>(&format!("{GIT}/{call}"), body).await.map(drop)
}

fn need(name: &str, value: String) -> Reply<String> {
    if value.is_empty() { Err(Failure::bad_request(format!("bad request: {name} is required"))) } else { Ok(value) }
}

/// What is given and not empty.
fn given(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Login {
    username: Option<String>,
    password: Option<String>,
}

impl Login {
    fn credentials(self) -> Option<GitCredentials> {
        let (username, password) = (self.username.unwrap_or_default(), self.password.unwrap_or_default());
        Some(GitCredentials { username, password }).filter(|given| *given != GitCredentials::default())
    }
}

// ── looking ──

async fn look(call: &Call, desk: &Desk, words: &[&str]) -> Reply {
    let query = call.query();
    if let ["config"] = words {
        return config(desk, &query).await;
    }
    let at = |what: &str| query.need("path").map(|path| format!("{GIT}/{what}?path={}", encoded(path)));
    match words {
        ["status"] => ok(status(&desk.get(&at("status")?).await?)),
        ["branches"] => {
            let list: BranchList = desk.get(&at("branches")?).await?;
            ok(json!({"branches": list.branches, "current": list.current.unwrap_or_default()}))
        }
        ["history"] => {
            let history: History = desk.get(&at("history")?).await?;
            let commit = |Commit { hash, author, time, message }| json!({"hash": hash, "author": author.name, "email": author.email, "timestamp": time, "message": message});
            ok(history.commits.into_iter().map(commit).collect::<Vec<_>>())
        }
        ["remotes"] => {
            let list: RemoteList = desk.get(&at("remotes")?).await?;
            ok(list)
        }
        _ => Err(api::nothing(call)),
    }
}

fn status(status: &GitStatus) -> Value {
    let files = status.files.iter().map(|file| {
        let extra = file.from.as_deref().unwrap_or_default();
        json!({"name": file.path, "extra": extra, "staging": word(file.staged), "worktree": word(file.unstaged)})
    });
    let distance = status.distance.unwrap_or_default();
    json!({
        "currentBranch": status.branch.as_deref().unwrap_or("HEAD"),
        "detached": status.branch.is_none(),
        "upstream": status.upstream.as_deref().unwrap_or_default(),
        "branchPublished": status.distance.is_some(),
        "ahead": distance.ahead,
        "behind": distance.behind,
        "fileStatus": files.collect::<Vec<_>>(),
    })
}

fn word(change: GitChange) -> &'static str {
    match change {
        GitChange::Unmodified => "Unmodified",
        GitChange::Modified | GitChange::TypeChanged => "Modified",
        GitChange::Added => "Added",
        GitChange::Deleted => "Deleted",
        GitChange::Renamed => "Renamed",
        GitChange::Copied => "Copied",
        GitChange::Unmerged => "Updated but unmerged",
        GitChange::Untracked => "Untracked",
    }
}

// ── repositories ──

#[derive(Default, Deserialize)]
#[serde(default)]
struct CloneWanted {
    url: String,
    path: String,
    branch: Option<String>,
    commit_id: Option<String>,
    depth: Option<u32>,
    insecure_skip_tls: bool,
    #[serde(flatten)]
    login: Login,
}

async fn clone(desk: &Desk, wanted: CloneWanted) -> Reply {
    let request = CloneRepository {
        url: need("url", wanted.url)?,
        path: need("path", wanted.path)?,
        branch: given(wanted.branch),
        commit: given(wanted.commit_id),
        depth: wanted.depth,
        insecure: wanted.insecure_skip_tls,
        credentials: wanted.login.credentials(),
    };
    ask(desk, "clone", &request).await?;
    empty(StatusCode::OK)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Init {
    path: String,
    bare: bool,
    initial_branch: Option<String>,
}

async fn init(desk: &Desk, wanted: Init) -> Reply {
    let request = InitRepository { path: need("path", wanted.path)?, bare: wanted.bare, branch: given(wanted.initial_branch) };
    ask(desk, "init", &request).await?;
    empty(StatusCode::CREATED)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NewRemote {
    path: String,
    name: String,
    url: String,
    fetch: bool,
    overwrite: bool,
}

async fn add_remote(desk: &Desk, wanted: NewRemote) -> Reply {
    let request = AddRemote {
        path: need("path", wanted.path)?,
        name: need("name", wanted.name)?,
        url: need("url", wanted.url)?,
        fetch: wanted.fetch,
        overwrite: wanted.overwrite,
    };
    ask(desk, "remotes", &request).await?;
    empty(StatusCode::CREATED)
}

// ── commits ──

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Add {
    path: String,
    files: Vec<String>,
}

async fn add(desk: &Desk, wanted: Add) -> Reply {
    ask(desk, "add", &AddFiles { path: need("path", wanted.path)?, files: some_files(wanted.files)? }).await?;
    empty(StatusCode::OK)
}

fn some_files(files: Vec<String>) -> Reply<Vec<String>> {
    if files.is_empty() { Err(Failure::bad_request("bad request: files are required")) } else { Ok(files) }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NewCommit {
    path: String,
    message: String,
    author: String,
    email: String,
    allow_empty: bool,
}

async fn commit(desk: &Desk, wanted: NewCommit) -> Reply {
    let request = MakeCommit {
        path: need("path", wanted.path)?,
        message: need("message", wanted.message)?,
        author: Some(GitAuthor { name: need("author", wanted.author)?, email: need("email", wanted.email)? }),
        allow_empty: wanted.allow_empty,
    };
    let made: MadeCommit = desk.post(&format!("{GIT}/commit"), &request).await?;
    ok(made)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Exchange {
    path: String,
    remote: Option<String>,
    branch: Option<String>,
    set_upstream: bool,
    #[serde(flatten)]
    login: Login,
}

async fn push(desk: &Desk, wanted: Exchange) -> Reply {
    let request = PushCommits {
        path: need("path", wanted.path)?,
        remote: given(wanted.remote),
        branch: given(wanted.branch),
        set_upstream: wanted.set_upstream,
        credentials: wanted.login.credentials(),
    };
    ask(desk, "push", &request).await?;
    empty(StatusCode::OK)
}

async fn pull(desk: &Desk, wanted: Exchange) -> Reply {
    let request = PullCommits {
        path: need("path", wanted.path)?,
        remote: given(wanted.remote),
        branch: given(wanted.branch),
        credentials: wanted.login.credentials(),
    };
    ask(desk, "pull", &request).await?;
    empty(StatusCode::OK)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reset {
    path: String,
    mode: Option<String>,
    target: Option<String>,
    files: Vec<String>,
}

async fn reset(desk: &Desk, wanted: Reset) -> Reply {
    let mode = match given(wanted.mode).as_deref() {
        None | Some("mixed") => ResetMode::Mixed,
        Some("soft") => ResetMode::Soft,
        Some("hard") => ResetMode::Hard,
        Some("merge") => ResetMode::Merge,
        Some("keep") => ResetMode::Keep,
        Some(other) => return Err(Failure::bad_request(format!("bad request: {} is no way to reset", other.escape_default()))),
    };
    // With files Daytona has but one way, whatever it is told.
    let mode = Some(mode).filter(|_| wanted.files.is_empty());
    let request = ResetRepository { path: need("path", wanted.path)?, mode, target: given(wanted.target), files: wanted.files };
    ask(desk, "reset", &request).await?;
    empty(StatusCode::OK)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Restore {
    path: String,
    files: Vec<String>,
    source: Option<String>,
    staged: Option<bool>,
    worktree: Option<bool>,
}

async fn restore(desk: &Desk, wanted: Restore) -> Reply {
    let request = RestoreFiles {
        path: need("path", wanted.path)?,
        files: some_files(wanted.files)?,
        source: given(wanted.source),
        staged: wanted.staged.unwrap_or_default(),
        worktree: wanted.worktree.unwrap_or_default(),
    };
    ask(desk, "restore", &request).await?;
    empty(StatusCode::OK)
}

// ── branches ──

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Branch {
    path: String,
    name: String,
}

async fn create_branch(desk: &Desk, wanted: Branch) -> Reply {
    // It is checked out, too.
    let request = NewBranch { path: need("path", wanted.path)?, name: need("name", wanted.name)?, checkout: true };
    ask(desk, "branches", &request).await?;
    empty(StatusCode::CREATED)
}

async fn delete_branch(desk: &Desk, wanted: Branch) -> Reply {
    let (path, name) = (need("path", wanted.path)?, need("name", wanted.name)?);
    desk.delete(&format!("{GIT}/branches?path={}&name={}", encoded(&path), encoded(&name))).await?;
    empty(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CheckOut {
    path: String,
    branch: String,
}

async fn checkout(desk: &Desk, wanted: CheckOut) -> Reply {
    ask(desk, "checkout", &Checkout { path: need("path", wanted.path)?, branch: need("branch", wanted.branch)? }).await?;
    empty(StatusCode::OK)
}

// ── settings ──

fn scope(name: Option<&str>) -> Reply<Option<GitScope>> {
    match name.unwrap_or_default() {
        "" => Ok(None),
        "local" => Ok(Some(GitScope::Local)),
        "global" => Ok(Some(GitScope::Global)),
        "system" => Ok(Some(GitScope::System)),
        other => {
            Err(Failure::bad_request(format!("bad request: scope is local, global or system, not {}", other.escape_default())))
        }
    }
}

async fn config(desk: &Desk, query: &Query) -> Reply {
    scope(query.get("scope"))?;
    let mut address = format!("{GIT}/config?key={}", encoded(query.need("key")?));
    for name in ["path", "scope"] {
        if let Some(value) = query.get(name).filter(|value| !value.is_empty()) {
            address.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    let setting: GitSetting = desk.get(&address).await?;
    ok(setting)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Setting {
    key: String,
    value: String,
    path: Option<String>,
    scope: Option<String>,
}

async fn set(desk: &Desk, wanted: Setting) -> Reply {
    let scope = scope(wanted.scope.as_deref())?;
    let change = ChangeGitSetting { key: need("key", wanted.key)?, value: wanted.value, path: given(wanted.path), scope };
    desk.json::<Value>(Method::PUT, &format!("{GIT}/config"), &change).await?;
    empty(StatusCode::OK)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    name: String,
    email: String,
    path: Option<String>,
    scope: Option<String>,
}

async fn set_user(desk: &Desk, wanted: User) -> Reply {
    let (name, email) = (need("name", wanted.name)?, need("email", wanted.email)?);
    for (key, value) in [("user.name", name), ("user.email", email)] {
        let (path, scope) = (wanted.path.clone(), wanted.scope.clone());
        set(desk, Setting { key: key.into(), value, path, scope }).await?;
    }
    empty(StatusCode::OK)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Authenticate {
    username: String,
    password: String,
    host: Option<String>,
    protocol: Option<String>,
}

/// Keeps a password in the sandbox, for every program in it: that is what was asked for.
async fn authenticate(desk: &Desk, wanted: Authenticate) -> Reply {
    let keep = KeepCredentials {
        credentials: GitCredentials {
            username: need("username", wanted.username)?,
            password: need("password", wanted.password)?,
        },
        host: given(wanted.host).unwrap_or_else(|| HOST.into()),
        protocol: given(wanted.protocol).unwrap_or_else(|| PROTOCOL.into()),
    };
    ask(desk, "credentials", &keep).await?;
    empty(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::git::{GitDistance, GitFile};

    #[test]
    fn a_status_is_told_in_daytonas_words() {
        let file = |path: &str, from: Option<&str>, staged, unstaged| GitFile {
            path: path.into(),
            from: from.map(str::to_owned),
            staged,
            unstaged,
        };
        let told = status(&GitStatus {
            branch: Some("main".into()),
            upstream: Some("origin/main".into()),
            distance: Some(GitDistance { ahead: 2, behind: 1 }),
            files: vec![
                file("a file", None, GitChange::Unmodified, GitChange::Modified),
                file("new", Some("old"), GitChange::Renamed, GitChange::Unmodified),
                file("both", None, GitChange::Unmerged, GitChange::Unmerged),
            ],
            truncated: false,
        });
        assert_eq!((&told["currentBranch"], &told["branchPublished"]), (&json!("main"), &json!(true)));
        assert_eq!((&told["ahead"], &told["behind"], &told["detached"]), (&json!(2), &json!(1), &json!(false)));
        let files = told["fileStatus"].as_array().unwrap();
        assert_eq!(files[0], json!({"name": "a file", "extra": "", "staging": "Unmodified", "worktree": "Modified"}));
        assert_eq!(files[1], json!({"name": "new", "extra": "old", "staging": "Renamed", "worktree": "Unmodified"}));
        assert_eq!(files[2]["staging"], "Updated but unmerged");
        let detached = status(&GitStatus::default());
        assert_eq!((&detached["currentBranch"], &detached["detached"]), (&json!("HEAD"), &json!(true)));
        assert_eq!((&detached["branchPublished"], &detached["upstream"]), (&json!(false), &json!("")));
    }

    #[test]
    fn credentials_are_those_that_are_given() {
        let wanted = |body: Value| serde_json::from_value::<CloneWanted>(body).unwrap().login.credentials();
        assert_eq!(wanted(json!({"url": "x", "username": null, "password": ""})), None);
        let some = wanted(json!({"password": "p"}));
        assert_eq!(some, Some(GitCredentials { username: String::new(), password: "p".into() }));
    }
}
