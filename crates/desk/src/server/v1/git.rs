//! Git routes. Those that only look run git too, and git runs what a repository's own settings name (filters, monitors): so
//! [`super::super::guard`] treats them like those that act.

use crate::Desk;
use crate::error::Result;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use hotdesk_api::git::{
    AddFiles, AddRemote, BranchList, ChangeGitSetting, Checkout, CloneRepository, DeleteBranch, GitSetting, GitStatus, History,
    InitRepository, KeepCredentials, MadeCommit, MakeCommit, NewBranch, PullCommits, PushCommits, ReadGitSetting, ReadHistory,
    RemoteList, Repository, ResetRepository, RestoreFiles,
};
use hotdesk_serve::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(clone_repository))
        .routes(routes!(init_repository))
        .routes(routes!(status))
        .routes(routes!(history))
        .routes(routes!(add_files))
        .routes(routes!(commit))
        .routes(routes!(push))
        .routes(routes!(pull))
        .routes(routes!(list_branches, create_branch, delete_branch))
        .routes(routes!(checkout))
        .routes(routes!(reset))
        .routes(routes!(restore))
        .routes(routes!(list_remotes, add_remote))
        .routes(routes!(get_setting, change_setting))
        .routes(routes!(keep_credentials))
}

/// Clone a repository
///
/// When the client leaves before, git is killed, and what is there of the copy stays.
#[utoipa::path(post, path = "/v1/git/clone", tag = "git", request_body = CloneRepository, responses(
    (status = 204, description = "It is there."),
    (status = 403, description = "The server refuses (`denied`), or wants other credentials (`credentials_refused`)."),
    (status = 501, description = "There is no git on this desk."),
))]
async fn clone_repository(State(desk): State<Desk>, Json(request): Json<CloneRepository>) -> Result<StatusCode> {
    desk.git.clone_repository(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Make a repository
#[utoipa::path(
    post, path = "/v1/git/init", tag = "git", request_body = InitRepository, responses((status = 204, description = "It is there."))
)]
async fn init_repository(State(desk): State<Desk>, Json(request): Json<InitRepository>) -> Result<StatusCode> {
    desk.git.init(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// What differs from the last commit
#[utoipa::path(get, path = "/v1/git/status", tag = "git", params(Repository), responses((status = 200, body = GitStatus)))]
async fn status(State(desk): State<Desk>, Query(query): Query<Repository>) -> Result<Json<GitStatus>> {
    desk.git.status(&query.path).await.map(Json)
}

/// Commits that led to what is checked out
#[utoipa::path(get, path = "/v1/git/history", tag = "git", params(ReadHistory), responses((status = 200, body = History)))]
async fn history(State(desk): State<Desk>, Query(query): Query<ReadHistory>) -> Result<Json<History>> {
    desk.git.history(query).await.map(Json)
}

/// Put files into the next commit
#[utoipa::path(
    post, path = "/v1/git/add", tag = "git", request_body = AddFiles, responses((status = 204, description = "They are in it."))
)]
async fn add_files(State(desk): State<Desk>, Json(request): Json<AddFiles>) -> Result<StatusCode> {
    desk.git.add(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Commit
#[utoipa::path(post, path = "/v1/git/commit", tag = "git", request_body = MakeCommit, responses((status = 200, body = MadeCommit)))]
async fn commit(State(desk): State<Desk>, Json(request): Json<MakeCommit>) -> Result<Json<MadeCommit>> {
    desk.git.commit(request).await.map(Json)
}

/// Push a branch to a server
#[utoipa::path(
    post, path = "/v1/git/push", tag = "git", request_body = PushCommits, responses((status = 204, description = "The server has it."))
)]
async fn push(State(desk): State<Desk>, Json(request): Json<PushCommits>) -> Result<StatusCode> {
    desk.git.push(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Fetch a branch of a server and merge it
#[utoipa::path(
    post, path = "/v1/git/pull", tag = "git", request_body = PullCommits, responses((status = 204, description = "It is merged."))
)]
async fn pull(State(desk): State<Desk>, Json(request): Json<PullCommits>) -> Result<StatusCode> {
    desk.git.pull(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// List branches
#[utoipa::path(get, path = "/v1/git/branches", tag = "git", params(Repository), responses((status = 200, body = BranchList)))]
async fn list_branches(State(desk): State<Desk>, Query(query): Query<Repository>) -> Result<Json<BranchList>> {
    desk.git.branches(&query.path).await.map(Json)
}

/// Make a branch
#[utoipa::path(
    post, path = "/v1/git/branches", tag = "git", request_body = NewBranch, responses((status = 204, description = "It is there."))
)]
async fn create_branch(State(desk): State<Desk>, Json(request): Json<NewBranch>) -> Result<StatusCode> {
    desk.git.create_branch(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Delete a branch
#[utoipa::path(
    delete, path = "/v1/git/branches", tag = "git", params(DeleteBranch), responses((status = 204, description = "It is gone."))
)]
async fn delete_branch(State(desk): State<Desk>, Query(query): Query<DeleteBranch>) -> Result<StatusCode> {
    desk.git.delete_branch(query).await.map(|()| StatusCode::NO_CONTENT)
}

/// Check a branch out
#[utoipa::path(
    post, path = "/v1/git/checkout", tag = "git", request_body = Checkout,
    responses((status = 204, description = "The working tree shows it."))
)]
async fn checkout(State(desk): State<Desk>, Json(request): Json<Checkout>) -> Result<StatusCode> {
    desk.git.checkout(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Go back to an earlier commit
#[utoipa::path(
    post, path = "/v1/git/reset", tag = "git", request_body = ResetRepository, responses((status = 204, description = "It is done."))
)]
async fn reset(State(desk): State<Desk>, Json(request): Json<ResetRepository>) -> Result<StatusCode> {
    desk.git.reset(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Take files back to what they were
#[utoipa::path(
    post, path = "/v1/git/restore", tag = "git", request_body = RestoreFiles,
    responses((status = 204, description = "They are what they were."))
)]
async fn restore(State(desk): State<Desk>, Json(request): Json<RestoreFiles>) -> Result<StatusCode> {
    desk.git.restore(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// List the servers that a repository knows
#[utoipa::path(get, path = "/v1/git/remotes", tag = "git", params(Repository), responses((status = 200, body = RemoteList)))]
async fn list_remotes(State(desk): State<Desk>, Query(query): Query<Repository>) -> Result<Json<RemoteList>> {
    desk.git.remotes(&query.path).await.map(Json)
}

/// Make a server known to a repository
#[utoipa::path(
    post, path = "/v1/git/remotes", tag = "git", request_body = AddRemote, responses((status = 204, description = "It is known."))
)]
async fn add_remote(State(desk): State<Desk>, Json(request): Json<AddRemote>) -> Result<StatusCode> {
    desk.git.add_remote(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Read a setting of git
#[utoipa::path(get, path = "/v1/git/config", tag = "git", params(ReadGitSetting), responses((status = 200, body = GitSetting)))]
async fn get_setting(State(desk): State<Desk>, Query(query): Query<ReadGitSetting>) -> Result<Json<GitSetting>> {
    desk.git.setting(query).await.map(Json)
}

/// Change a setting of git
#[utoipa::path(
    put, path = "/v1/git/config", tag = "git", request_body = ChangeGitSetting, responses((status = 204, description = "It is set."))
)]
async fn change_setting(State(desk): State<Desk>, Json(request): Json<ChangeGitSetting>) -> Result<StatusCode> {
    desk.git.change_setting(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Keep credentials for a server
///
/// For git alone and for as long as the desk lives, in a file that every program of the desk's user can read.
#[utoipa::path(
    post, path = "/v1/git/credentials", tag = "git", request_body = KeepCredentials,
    responses((status = 204, description = "They are kept."))
)]
async fn keep_credentials(State(desk): State<Desk>, Json(request): Json<KeepCredentials>) -> Result<StatusCode> {
    desk.git.keep_credentials(request).await.map(|()| StatusCode::NO_CONTENT)
}
