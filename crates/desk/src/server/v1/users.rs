//! Other users: whatever is asked of them is passed on to the hand that the desk has there.

use crate::Desk;
use crate::error::{Error, Result};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use hotdesk_api::user::{User, UserList};
use hotdesk_serve::Json;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::path::Path as FilePath;
use tokio::net::UnixStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What can be asked as another user.
const PARTS: [&str; 5] = ["files", "git", "kernels", "processes", "terminals"];

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list_users))
        .routes(routes!(get_user))
        .route("/v1/users/{name}/{*rest}", axum::routing::any(pass_on))
}

/// List the users that something was asked of
///
/// The desk's own is not among them. `/v1/users/{name}/files…`, and `…/git…`, `…/kernels…`, `…/processes…`, `…/terminals…` are
/// the same calls as those without `/users/{name}`, done by that user.
#[utoipa::path(get, path = "/v1/users", tag = "users", responses((status = 200, body = UserList)))]
async fn list_users(State(desk): State<Desk>) -> Json<UserList> {
    Json(UserList { users: desk.users.list().await })
}

/// A user of the desk, ready to be asked for something
#[utoipa::path(get, path = "/v1/users/{name}", tag = "users", params(("name" = String, Path)), responses(
    (status = 200, body = User),
    (status = 403, description = "Programs of this desk can't become that user."),
    (status = 404, description = "There is no such user."),
))]
async fn get_user(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Json<User>> {
    desk.users.socket(&name).await?;
    Ok(Json(User { name }))
}

async fn pass_on(State(desk): State<Desk>, Path((name, rest)): Path<(String, String)>, mut request: Request) -> Result<Response> {
    if !PARTS.contains(&rest.split('/').next().unwrap_or_default()) {
        return Err(Error::NotFound(format!("as another user there are {}", PARTS.join(", "))));
    }
    let socket = desk.users.socket(&name).await?;
    // The rest as the client wrote it, so that nothing changes its meaning.
    let whole = request.uri().path_and_query().map_or("", |path| path.as_str());
    let rest = whole.splitn(5, '/').nth(4).unwrap_or_default();
    *request.uri_mut() = format!("/v1/{rest}").parse().map_err(|_| Error::Invalid("the address can't be passed on".into()))?;
    for name in ["connection", "upgrade", "transfer-encoding", "authorization"] {
        request.headers_mut().remove(name);
    }
    Ok(send(&socket, request).await?.map(Body::new).into_response())
}

async fn send(socket: &FilePath, request: Request) -> Result<hyper::Response<hyper::body::Incoming>> {
    let lost = |reason: String| Error::Unavailable { part: "the hand of another user", reason };
    let stream = UnixStream::connect(socket).await.map_err(|e| lost(e.to_string()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| lost(e.to_string()))?;
    tokio::spawn(async move {
        // Ends when either side has enough; whoever has a request on it is told.
        let _ = connection.await;
    });
    sender.send_request(request).await.map_err(|e| lost(e.to_string()))
}

/// Waits until a hand answers.
pub(crate) async fn answers(socket: &FilePath) -> Result<()> {
    let request = Request::get("/v1/processes").body(Body::empty()).map_err(Error::internal)?;
    send(socket, request).await.map(drop)
}
