//! Git repositories of a desk.
//!
//! A `path` is absolute, `~/…`, or below the desk's home.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::{IntoParams, ToSchema};

/// What a server of repositories wants to know. Only a server that the request or the repository names is told, only over HTTP,
/// and nothing of it is kept.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitCredentials {
    pub username: String,
    /// A password or a token.
    pub password: String,
}

impl fmt::Debug for GitCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GitCredentials(…)")
    }
}

/// A repository to copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneRepository {
    /// A password in it stands on git's command line and in the repository's settings; `credentials` does not.
    pub url: String,
    /// Where the copy goes.
    pub path: String,
    /// A branch or tag; the server's own choice if left out.
    #[serde(default)]
    pub branch: Option<String>,
    /// The commit to check out, on no branch.
    #[serde(default)]
    pub commit: Option<String>,
    /// How many commits of the past are fetched; all if left out.
    #[serde(default)]
    pub depth: Option<u32>,
    /// Takes any certificate: whoever is on the way can read what is sent, credentials too.
    #[serde(default)]
    pub insecure: bool,
    #[serde(default)]
    pub credentials: Option<GitCredentials>,
}

/// A repository to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InitRepository {
    pub path: String,
    /// Without a working tree, to push to.
    #[serde(default)]
    pub bare: bool,
    /// The name of its first branch; git's own choice if left out.
    #[serde(default)]
    pub branch: Option<String>,
}

/// Which repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Repository {
    /// A directory of its working tree.
    pub path: String,
}

/// What differs from the last commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GitStatus {
    /// The branch that is checked out; left out when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The branch that it follows: `origin/main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// How it stands to the branch that it follows; left out if that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<GitDistance>,
    /// Without those that are as they were.
    pub files: Vec<GitFile>,
    /// There are more files than fit.
    pub truncated: bool,
}

/// Commits that only one of two branches has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GitDistance {
    pub ahead: u64,
    pub behind: u64,
}

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GitFile {
    /// Below the top of the working tree.
    pub path: String,
    /// What it was called, if it was renamed or copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What the next commit has of it.
    pub staged: GitChange,
    /// What was done to it since.
    pub unstaged: GitChange,
}

/// How a file differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GitChange {
    Unmodified,
    Modified,
    /// A link became a file, or the like.
    TypeChanged,
    Added,
    Deleted,
    Renamed,
    Copied,
    /// Two branches disagree about it.
    Unmerged,
    Untracked,
}

/// Files for the next commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddFiles {
    pub path: String,
    /// Below `path`; `.` is all of them.
    pub files: Vec<String>,
}

/// A commit to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeCommit {
    pub path: String,
    pub message: String,
    /// Whose it is; as git's settings say if left out.
    #[serde(default)]
    pub author: Option<GitAuthor>,
    /// Also if nothing has changed.
    #[serde(default)]
    pub allow_empty: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GitAuthor {
    pub name: String,
    pub email: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeCommit {
    pub hash: String,
}

/// Commits for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushCommits {
    pub path: String,
    /// `origin` if left out.
    #[serde(default)]
    pub remote: Option<String>,
    /// The branch that is checked out if left out.
    #[serde(default)]
    pub branch: Option<String>,
    /// From now on the branch follows the one of the server.
    #[serde(default)]
    pub set_upstream: bool,
    #[serde(default)]
    pub credentials: Option<GitCredentials>,
}

/// Commits of a server, to be merged into the branch that is checked out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullCommits {
    pub path: String,
    /// If it and `branch` are left out, those that the branch follows.
    #[serde(default)]
    pub remote: Option<String>,
    #[serde(default)]
    pub branch: Option<String>,
    #[serde(default)]
    pub credentials: Option<GitCredentials>,
}

/// Branches of the repository itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BranchList {
    pub branches: Vec<String>,
    /// The one that is checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
}

/// A branch to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBranch {
    pub path: String,
    pub name: String,
    /// Whether it is checked out too.
    #[serde(default)]
    pub checkout: bool,
}

/// A branch to delete, also if its commits are nowhere else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteBranch {
    /// A directory of the working tree.
    pub path: String,
    pub name: String,
}

/// What the working tree shall show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkout {
    pub path: String,
    /// A branch; a tag or a commit is checked out on no branch.
    pub branch: String,
}

/// Takes a branch, or files of the next commit, back to an earlier commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetRepository {
    pub path: String,
    /// Not with `files`.
    #[serde(default)]
    pub mode: Option<ResetMode>,
    /// `HEAD` if left out.
    #[serde(default)]
    pub target: Option<String>,
    /// Only these, in the next commit; the working tree stays as it is.
    #[serde(default)]
    pub files: Vec<String>,
}

/// What a reset leaves as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetMode {
    /// The next commit and the working tree.
    Soft,
    /// The working tree.
    #[default]
    Mixed,
    /// Nothing.
    Hard,
    /// Changes that are not in the next commit.
    Merge,
    /// Changes; refuses where it can't.
    Keep,
}

/// Takes files back to what they were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreFiles {
    pub path: String,
    pub files: Vec<String>,
    /// A commit; what the next commit has of them if left out.
    #[serde(default)]
    pub source: Option<String>,
    /// In the next commit.
    #[serde(default)]
    pub staged: bool,
    /// In the working tree; this if neither is given.
    #[serde(default)]
    pub worktree: bool,
}

/// How much of the past.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadHistory {
    /// A directory of the working tree.
    pub path: String,
    /// How many commits; all that fit if left out.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Commits that led to what is checked out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The newest first.
    pub commits: Vec<Commit>,
    /// There are more than fit.
    pub truncated: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Commit {
    pub hash: String,
    pub author: GitAuthor,
    /// When it was written: RFC 3339.
    pub time: String,
    pub message: String,
}

/// Servers that a repository knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoteList {
    pub remotes: Vec<Remote>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remote {
    pub name: String,
    /// Without a password.
    pub url: String,
}

/// A server to make known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRemote {
    pub path: String,
    pub name: String,
    pub url: String,
    /// Its branches are fetched at once.
    #[serde(default)]
    pub fetch: bool,
    /// One of this name is replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// Where a setting is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GitScope {
    /// In the repository.
    Local,
    /// In the user's home.
    Global,
    /// On the whole desk.
    System,
}

/// Which setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadGitSetting {
    /// `user.name`
    pub key: String,
    /// A directory of the working tree; settings of no repository count if left out.
    #[serde(default)]
    pub path: Option<String>,
    /// The setting that counts if left out.
    #[serde(default)]
    #[param(inline)]
    pub scope: Option<GitScope>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GitSetting {
    /// Left out if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A setting to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeGitSetting {
    pub key: String,
    pub value: String,
    #[serde(default)]
    pub path: Option<String>,
    /// `local` with a path, `global` without one, if left out.
    #[serde(default)]
    pub scope: Option<GitScope>,
}

/// Credentials that git keeps for a server, in a file that every program of the desk's user can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepCredentials {
    pub credentials: GitCredentials,
    /// `github.com`
    pub host: String,
    #[serde(default = "https")]
    pub protocol: String,
}

fn https() -> String {
    "https".into()
}
