//! Git repositories, by the desk's own `git`: what is asked for becomes a command, and what git says becomes a value.
//!
//! Whatever clients name stands where git takes no option, or may not begin with a dash. Credentials go to git by its environment:
//! they stand on no command line, in no file and in no log, and are told only to servers that the request or the repository names.

mod login;
mod read;

use crate::error::{Error, Result};
use crate::files;
use crate::place::Place;
use crate::process::{Command, Failure, Processes};
use hotdesk_api::git::{
    AddFiles, AddRemote, BranchList, ChangeGitSetting, Checkout, CloneRepository, DeleteBranch, GitCredentials, GitScope,
    GitSetting, GitStatus, History, InitRepository, KeepCredentials, MadeCommit, MakeCommit, NewBranch, PullCommits, PushCommits,
    ReadGitSetting, ReadHistory, Remote, RemoteList, ResetMode, ResetRepository, RestoreFiles,
};
use login::Login;
use nix::libc;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A day, as for every program that a client waits for. Large repositories come over slow lines.
const LIMIT: Duration = Duration::from_secs(24 * 3600);
/// What is kept of git's output: the history of large repositories is larger.
const OUTPUT: usize = 16 << 20;
/// What is told of a complaint: its end, where git says why.
const COMPLAINT: usize = 16 << 10;

/// The git engine. Cheap to clone.
#[derive(Clone)]
pub struct Git {
    place: Arc<Place>,
    processes: Processes,
}

/// What one command said.
struct Said {
    success: bool,
    code: i32,
    stdout: String,
    truncated: bool,
    complaint: String,
}

impl Git {
    pub fn new(place: Arc<Place>, processes: Processes) -> Self {
        Self { place, processes }
    }

    pub async fn clone_repository(&self, wanted: CloneRepository) -> Result<()> {
        let path = files::resolve(&self.place, &wanted.path)?;
        let target = path.to_string_lossy().into_owned();
        let url = given("url", &wanted.url)?;
        let login = Login::new(wanted.credentials, [url])?;
        let depth = wanted.depth.filter(|depth| *depth > 0).map(|depth| format!("--depth={depth}"));
        let branch = wanted.branch.map(|branch| format!("--branch={branch}"));
        let insecure: &[&str] = if wanted.insecure { &["-c", "http.sslVerify=false"] } else { &[] };
        let mut words = insecure.to_vec();
        words.push("clone");
        words.extend(depth.as_deref());
        words.extend(branch.as_deref());
        words.extend(["--", url, &target]);
        self.anywhere().login(&login).run(&words).await?;
        if let Some(commit) = &wanted.commit {
            let commit = name("commit", commit)?;
            let here = self.at(&wanted.path)?.login(&login);
            if here.run(&["checkout", "--detach", commit, "--"]).await.is_err() {
                // A clone that is not deep may not have it.
                here.run(&[insecure, &["fetch", "--", "origin", commit]].concat()).await?;
                here.run(&["checkout", "--detach", "FETCH_HEAD", "--"]).await?;
            }
        }
        Ok(())
    }

    pub async fn init(&self, wanted: InitRepository) -> Result<()> {
        let path = files::resolve(&self.place, &wanted.path)?.to_string_lossy().into_owned();
        let branch = wanted.branch.map(|branch| format!("--initial-branch={branch}"));
        let mut words = vec!["init"];
        words.extend(wanted.bare.then_some("--bare"));
        words.extend(branch.as_deref());
        words.extend(["--", &path]);
        self.anywhere().run(&words).await.map(drop)
    }

    pub async fn status(&self, path: &str) -> Result<GitStatus> {
        let words = ["status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"];
        let mut here = self.at(path)?;
        // It only looks, and takes no lock that a command of somebody else would run into.
        here.env.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
        let said = here.run(&words).await?;
        Ok(read::status(&said.stdout, said.truncated))
    }

    pub async fn history(&self, wanted: ReadHistory) -> Result<History> {
        let limit = wanted.limit.map(|limit| format!("--max-count={limit}"));
        let mut words = vec!["log", "-z", "--no-show-signature", read::HISTORY];
        words.extend(limit.as_deref());
        let said = self.at(&wanted.path)?.run(&words).await?;
        Ok(read::history(&said.stdout, said.truncated))
    }

    pub async fn add(&self, wanted: AddFiles) -> Result<()> {
        self.at(&wanted.path)?.run_on(&["add"], &wanted.files).await
    }

    pub async fn commit(&self, wanted: MakeCommit) -> Result<MadeCommit> {
        let mut here = self.at(&wanted.path)?;
        if let Some(author) = &wanted.author {
            for role in ["AUTHOR", "COMMITTER"] {
                here.env.push((format!("GIT_{role}_NAME"), given("author.name", &author.name)?.to_owned()));
                here.env.push((format!("GIT_{role}_EMAIL"), given("author.email", &author.email)?.to_owned()));
            }
        }
        // A command line holds less than a message may have.
        here.input = Some(given("message", &wanted.message)?.as_bytes().to_vec());
        let mut words = vec!["commit", "--quiet", "-F", "-"];
        words.extend(wanted.allow_empty.then_some("--allow-empty"));
        here.run(&words).await?;
        let head = self.at(&wanted.path)?.run(&["rev-parse", "HEAD"]).await?;
        Ok(MadeCommit { hash: head.stdout.trim().to_owned() })
    }

    pub async fn push(&self, wanted: PushCommits) -> Result<()> {
        let login = self.login_of(&wanted.path, wanted.credentials, wanted.remote.as_deref()).await?;
        let mut words = vec!["push"];
        words.extend(wanted.set_upstream.then_some("--set-upstream"));
        words.push(name("remote", wanted.remote.as_deref().unwrap_or("origin"))?);
        // What git's "simple" refuses for want of an upstream is meant all the same.
        words.push(name("branch", wanted.branch.as_deref().unwrap_or("HEAD"))?);
        self.at(&wanted.path)?.login(&login).run(&words).await.map(drop)
    }

    pub async fn pull(&self, wanted: PullCommits) -> Result<()> {
        let login = self.login_of(&wanted.path, wanted.credentials, wanted.remote.as_deref()).await?;
        let mut words = vec!["pull", "--no-rebase"];
        if wanted.remote.is_some() || wanted.branch.is_some() {
            words.push(name("remote", wanted.remote.as_deref().unwrap_or("origin"))?);
            words.extend(wanted.branch.as_deref().map(|branch| name("branch", branch)).transpose()?);
        }
        self.at(&wanted.path)?.login(&login).run(&words).await.map(drop)
    }

    pub async fn branches(&self, path: &str) -> Result<BranchList> {
        let here = self.at(path)?;
        let all = here.run(&["for-each-ref", "--format=%(refname:short)", "refs/heads"]).await?;
        let current = here.run(&["branch", "--show-current"]).await?;
        Ok(BranchList {
            branches: all.stdout.lines().map(str::to_owned).collect(),
            current: Some(current.stdout.trim().to_owned()).filter(|current| !current.is_empty()),
        })
    }

    pub async fn create_branch(&self, wanted: NewBranch) -> Result<()> {
        let branch = name("name", &wanted.name)?;
        let words: &[&str] = if wanted.checkout { &["checkout", "-b", branch, "--"] } else { &["branch", "--", branch] };
        self.at(&wanted.path)?.run(words).await.map(drop)
    }

    pub async fn delete_branch(&self, wanted: DeleteBranch) -> Result<()> {
        self.at(&wanted.path)?.run(&["branch", "-D", "--", given("name", &wanted.name)?]).await.map(drop)
    }

    pub async fn checkout(&self, wanted: Checkout) -> Result<()> {
        self.at(&wanted.path)?.run(&["checkout", name("branch", &wanted.branch)?, "--"]).await.map(drop)
    }

    pub async fn reset(&self, wanted: ResetRepository) -> Result<()> {
        let here = self.at(&wanted.path)?;
        let target = name("target", wanted.target.as_deref().unwrap_or("HEAD"))?;
        match wanted.mode {
            mode if wanted.files.is_empty() => {
                let mode = match mode.unwrap_or_default() {
                    ResetMode::Soft => "--soft",
                    ResetMode::Mixed => "--mixed",
                    ResetMode::Hard => "--hard",
                    ResetMode::Merge => "--merge",
                    ResetMode::Keep => "--keep",
                };
                here.run(&["reset", "--quiet", mode, target, "--"]).await.map(drop)
            }
            None | Some(ResetMode::Mixed) => here.run_on(&["reset", "--quiet", target], &wanted.files).await,
            Some(_) => Err(Error::Invalid("give either `mode` or `files`".into())),
        }
    }

    pub async fn restore(&self, wanted: RestoreFiles) -> Result<()> {
        let source = wanted.source.map(|source| format!("--source={source}"));
        let mut words = vec!["restore"];
        words.extend(source.as_deref());
        words.extend(wanted.staged.then_some("--staged"));
        words.extend(wanted.worktree.then_some("--worktree"));
        self.at(&wanted.path)?.run_on(&words, &wanted.files).await
    }

    pub async fn remotes(&self, path: &str) -> Result<RemoteList> {
        let here = self.at(path)?;
        let mut remotes = Vec::new();
        for name in here.run(&["remote"]).await?.stdout.lines() {
            let url = here.run(&["remote", "get-url", "--", name]).await?;
            remotes.push(Remote { name: name.to_owned(), url: login::without_password(url.stdout.trim()) });
        }
        Ok(RemoteList { remotes })
    }

    pub async fn add_remote(&self, wanted: AddRemote) -> Result<()> {
        let (remote, url) = (name("name", &wanted.name)?, given("url", &wanted.url)?);
        let here = self.at(&wanted.path)?;
        if wanted.overwrite {
            // There may be none.
            let _ = here.ask(&["remote", "remove", "--", remote]).await?;
        }
        here.run(&["remote", "add", "--", remote, url]).await?;
        if wanted.fetch {
            here.run(&["fetch", "--", remote]).await?;
        }
        Ok(())
    }

    pub async fn setting(&self, wanted: ReadGitSetting) -> Result<GitSetting> {
        let here = self.at_or_anywhere(wanted.path.as_deref())?;
        let mut words = vec!["config"];
        words.extend(wanted.scope.map(scope));
        words.extend(["--get", "--", given("key", &wanted.key)?]);
        let said = here.ask(&words).await?;
        match said.code {
            0 => Ok(GitSetting { value: Some(said.stdout.trim_end_matches('\n').to_owned()) }),
            // Not set; of a key that is none it says so.
            1 if said.complaint.is_empty() => Ok(GitSetting::default()),
            _ => Err(complaint(&words, said)),
        }
    }

    pub async fn change_setting(&self, wanted: ChangeGitSetting) -> Result<()> {
        // Without a repository it can only be meant for all of them.
        let usual = if wanted.path.is_some() { GitScope::Local } else { GitScope::Global };
        let here = self.at_or_anywhere(wanted.path.as_deref())?;
        let words = ["config", scope(wanted.scope.unwrap_or(usual)), "--", given("key", &wanted.key)?, &wanted.value];
        here.run(&words).await.map(drop)
    }

    pub async fn keep_credentials(&self, wanted: KeepCredentials) -> Result<()> {
        let input = login::description(&wanted)?;
        self.anywhere().run(&["config", "--global", "credential.helper", "store"]).await?;
        let mut here = self.anywhere();
        here.input = Some(input);
        here.run(&["credential", "approve"]).await.map(drop)
    }

    /// Credentials for the servers of a repository, and for `remote` if that is an address.
    async fn login_of(&self, path: &str, credentials: Option<GitCredentials>, remote: Option<&str>) -> Result<Login> {
        if credentials.is_none() {
            return Ok(Login::default());
        }
        let known = self.at(path)?.ask(&["config", "--get-regexp", r"^remote\..*\.(push)?url$"]).await?;
        let urls = known.stdout.lines().filter_map(|line| Some(line.split_once(' ')?.1));
        Login::new(credentials, urls.chain(remote))
    }

    fn anywhere(&self) -> Call<'_> {
        Call { git: self, cwd: self.place.home.clone(), env: Vec::new(), options: Vec::new(), input: None }
    }

    fn at(&self, path: &str) -> Result<Call<'_>> {
        let cwd = files::resolve(&self.place, path)?;
        if !cwd.is_dir() {
            let text = format!("{} is not a git repository: there is no such directory", cwd.display());
            return Err(Error::NotFound(text));
        }
        Ok(Call { cwd, ..self.anywhere() })
    }

    fn at_or_anywhere(&self, path: Option<&str>) -> Result<Call<'_>> {
        path.map_or_else(|| Ok(self.anywhere()), |path| self.at(path))
    }
}

/// A command to be given.
struct Call<'a> {
    git: &'a Git,
    cwd: PathBuf,
    env: Vec<(String, String)>,
    /// Before the command's own words.
    options: Vec<String>,
    input: Option<Vec<u8>>,
}

impl Call<'_> {
    fn login(mut self, login: &Login) -> Self {
        self.options.extend(login.options());
        self.env.extend(login.variables());
        self
    }

    /// What it said, if it did what it should.
    async fn run(&self, words: &[&str]) -> Result<Said> {
        let said = self.ask(words).await?;
        if said.success { Ok(said) } else { Err(complaint(words, said)) }
    }

    /// With files, which may be called like options.
    async fn run_on(&self, words: &[&str], files: &[String]) -> Result<()> {
        if files.is_empty() {
            return Err(Error::Invalid("`files` names none".into()));
        }
        let words: Vec<&str> = words.iter().copied().chain(["--"]).chain(files.iter().map(String::as_str)).collect();
        self.run(&words).await.map(drop)
    }

    async fn ask(&self, words: &[&str]) -> Result<Said> {
        let argv = ["git"].into_iter().chain(self.options.iter().map(String::as_str)).chain(words.iter().copied());
        let mut command = Command::new(argv).limit(LIMIT);
        command.output_limit = OUTPUT;
        command.cwd = Some(self.cwd.clone());
        command.stdin.clone_from(&self.input);
        // It asks nobody, neither here nor by a window, and speaks the language in which it is read.
        let fixed = [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", ""),
            ("SSH_ASKPASS_REQUIRE", "never"),
            ("GIT_MERGE_AUTOEDIT", "no"),
            ("LC_ALL", "C.UTF-8"),
        ];
        command.env = fixed.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into();
        command.env.insert("LANGUAGE".into(), None);
        command.env.extend(self.env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        let output = match self.git.processes.run(command).await {
            Err(Failure::Start { errno: libc::ENOENT, .. }) if self.cwd.is_dir() => return Err(missing()),
            output => output?,
        };
        let told = [output.stderr.as_slice(), &output.stdout].map(|bytes| String::from_utf8_lossy(tail(bytes)).trim().to_owned());
        let secrets: Vec<&str> = self.env.iter().filter(|(name, _)| Login::is_secret(name)).map(|(_, value)| &**value).collect();
        Ok(Said {
            success: output.status.success(),
            code: output.status.code(),
            truncated: output.truncated,
            complaint: login::redacted(told.join("\n").trim(), words, &secrets),
            stdout: String::from_utf8(output.stdout).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        })
    }
}

fn tail(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(COMPLAINT)..]
}

fn missing() -> Error {
    Error::Unsupported {
        what: "git".into(),
        reason: "there is no such program on this desk".into(),
        hint: "take a template that has it (`base`, `code`, `desktop`), or add the package `git` to yours".into(),
    }
}

/// What must not be empty.
fn given<'a>(what: &str, text: &'a str) -> Result<&'a str> {
    if text.is_empty() { Err(Error::Invalid(format!("`{what}` is empty"))) } else { Ok(text) }
}

/// What stands where git also takes options.
fn name<'a>(what: &str, text: &'a str) -> Result<&'a str> {
    match given(what, text)?.starts_with('-') {
        true => Err(Error::Invalid(format!("`{what}`: `{}` begins with a dash", text.escape_default()))),
        false => Ok(text),
    }
}

fn scope(scope: GitScope) -> &'static str {
    match scope {
        GitScope::Local => "--local",
        GitScope::Global => "--global",
        GitScope::System => "--system",
    }
}

/// What went wrong, by what git said.
fn complaint(words: &[&str], said: Said) -> Error {
    let lower = said.complaint.to_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let verb = words.iter().find(|word| word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.contains('.'));
    let text = format!("git {}: {}", verb.unwrap_or(&""), said.complaint);
    if says(&["authentication failed", "could not read username", "could not read password", "terminal prompts disabled"]) {
        Error::CredentialsRefused(text)
    } else if says(&["returned error: 403", "permission denied"]) {
        Error::Denied(text)
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
        Error::Conflict(text)
    } else if says(&[
        "not a git repository",
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
        Error::NotFound(text)
    } else {
        Error::Invalid(text)
    }
}
