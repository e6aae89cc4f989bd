//! File routes.

use crate::Desk;
use crate::error::Result;
use crate::files::{self, change, list, notes, read, search, tar, watch, write};
use crate::server::ranges;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hotdesk_api::file::{
    DeleteFile, FileInfo, FileList, FilePath, FindNames, FindText, FoundLines, FoundNames, ListFiles, MakeDirectory, MoveFile,
    NoteFile, ReplaceText, Replaced, SetMode, StatFile, Unpacked, WatchEvent, WatchFiles, WriteFile, Written,
};
use hotdesk_serve::Json;
use std::convert::Infallible;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list_files, delete_file))
        .routes(routes!(stat_file))
        .routes(routes!(read_file, write_file))
        .routes(routes!(make_directory))
        .routes(routes!(move_file))
        .routes(routes!(copy_file))
        .routes(routes!(note_on_file))
        .routes(routes!(pack_files, unpack_files))
        .routes(routes!(watch_files))
        .routes(routes!(set_mode))
        .routes(routes!(find_text))
        .routes(routes!(find_names))
        .routes(routes!(replace_text))
}

/// List a directory
#[utoipa::path(get, path = "/v1/files", tag = "files", params(ListFiles), responses((status = 200, body = FileList)))]
async fn list_files(State(desk): State<Desk>, Query(query): Query<ListFiles>) -> Result<Json<FileList>> {
    let path = files::resolve(&desk.place, &query.path)?;
    list::list(path, query.depth, query.hidden).await.map(Json)
}

/// Delete a file or a directory
///
/// The desk's home, and what holds it, is never deleted.
#[utoipa::path(delete, path = "/v1/files", tag = "files", params(DeleteFile), responses((status = 204, description = "It is gone.")))]
async fn delete_file(State(desk): State<Desk>, Query(query): Query<DeleteFile>) -> Result<StatusCode> {
    let path = files::resolve(&desk.place, &query.path)?;
    change::delete(path, query.recursive, desk.place.home.clone()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Describe a file
#[utoipa::path(get, path = "/v1/files/stat", tag = "files", params(StatFile), responses((status = 200, body = FileInfo)))]
async fn stat_file(State(desk): State<Desk>, Query(query): Query<StatFile>) -> Result<Json<FileInfo>> {
    files::stat(files::resolve(&desk.place, &query.path)?, query.follow).await.map(Json)
}

/// Read a file
///
/// Streamed. `Range`, `If-Range`, `If-None-Match` and `If-Modified-Since` are minded.
#[utoipa::path(
    get, path = "/v1/files/content", tag = "files", params(FilePath),
    responses(
        (status = 200, description = "The whole file.", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The wanted part.", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 304, description = "The client has it already."),
        (status = 416, description = "The file has no such bytes.", content_type = "application/problem+json", body = hotdesk_api::Problem),
    )
)]
async fn read_file(State(desk): State<Desk>, Query(query): Query<FilePath>, headers: HeaderMap) -> Result<Response> {
    let path = files::resolve(&desk.place, &query.path)?;
    let kind = mime_guess::from_path(&path).first_or_octet_stream();
    ranges::respond(read::open(path).await?, &headers, kind.as_ref()).await
}

/// Write a file
///
/// The body is the content, of any length. The file appears at once and whole; if anything fails, the old one stays.
#[utoipa::path(
    put, path = "/v1/files/content", tag = "files", params(WriteFile),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Written))
)]
async fn write_file(State(desk): State<Desk>, Query(query): Query<WriteFile>, body: Body) -> Result<Json<Written>> {
    let path = files::resolve(&desk.place, &query.path)?;
    let mode = query.mode.as_deref().map(files::parse_mode).transpose()?;
    write::write(path, mode, query.make_parents, body.into_data_stream()).await.map(Json)
}

/// Make a directory
#[utoipa::path(post, path = "/v1/files/mkdir", tag = "files", request_body = MakeDirectory, responses((status = 200, body = FileInfo)))]
async fn make_directory(State(desk): State<Desk>, Json(request): Json<MakeDirectory>) -> Result<Json<FileInfo>> {
    let path = files::resolve(&desk.place, &request.path)?;
    let mode = request.mode.as_deref().map(files::parse_mode).transpose()?;
    change::make_directory(path, request.make_parents, mode).await.map(Json)
}

/// Move or rename a file or a directory
#[utoipa::path(post, path = "/v1/files/move", tag = "files", request_body = MoveFile, responses((status = 200, body = FileInfo)))]
async fn move_file(State(desk): State<Desk>, Json(request): Json<MoveFile>) -> Result<Json<FileInfo>> {
    let (from, to) = (files::resolve(&desk.place, &request.from)?, files::resolve(&desk.place, &request.to)?);
    change::rename(from, to, request.overwrite, request.make_parents).await.map(Json)
}

/// Copy a file or a directory
///
/// Symlinks are copied as symlinks.
#[utoipa::path(post, path = "/v1/files/copy", tag = "files", request_body = MoveFile, responses((status = 200, body = FileInfo)))]
async fn copy_file(State(desk): State<Desk>, Json(request): Json<MoveFile>) -> Result<Json<FileInfo>> {
    let (from, to) = (files::resolve(&desk.place, &request.from)?, files::resolve(&desk.place, &request.to)?);
    change::copy(from, to, request.overwrite, request.make_parents).await.map(Json)
}

/// Note something about a file
///
/// Replaces all notes that it has.
#[utoipa::path(post, path = "/v1/files/notes", tag = "files", request_body = NoteFile, responses((status = 200, body = FileInfo)))]
async fn note_on_file(State(desk): State<Desk>, Json(request): Json<NoteFile>) -> Result<Json<FileInfo>> {
    notes::write(files::resolve(&desk.place, &request.path)?, request.notes).await.map(Json)
}

/// Change permissions
#[utoipa::path(post, path = "/v1/files/mode", tag = "files", request_body = SetMode, responses((status = 200, body = FileInfo)))]
async fn set_mode(State(desk): State<Desk>, Json(request): Json<SetMode>) -> Result<Json<FileInfo>> {
    let mode = files::parse_mode(&request.mode)?;
    change::set_mode(files::resolve(&desk.place, &request.path)?, mode).await.map(Json)
}

/// Find lines that hold a text
///
/// Files that are not text are left out; links are not followed.
#[utoipa::path(get, path = "/v1/files/find", tag = "files", params(FindText), responses((status = 200, body = FoundLines)))]
async fn find_text(State(desk): State<Desk>, Query(query): Query<FindText>) -> Result<Json<FoundLines>> {
    search::find_text(files::resolve(&desk.place, &query.path)?, query.text).await.map(Json)
}

/// Find files by their names
#[utoipa::path(get, path = "/v1/files/search", tag = "files", params(FindNames), responses((status = 200, body = FoundNames)))]
async fn find_names(State(desk): State<Desk>, Query(query): Query<FindNames>) -> Result<Json<FoundNames>> {
    search::find_names(files::resolve(&desk.place, &query.path)?, query.pattern).await.map(Json)
}

/// Replace text in files
#[utoipa::path(post, path = "/v1/files/replace", tag = "files", request_body = ReplaceText, responses((status = 200, body = Replaced)))]
async fn replace_text(State(desk): State<Desk>, Json(request): Json<ReplaceText>) -> Result<Json<Replaced>> {
    let paths = request.paths.iter().map(|path| files::resolve(&desk.place, path)).collect::<Result<_>>()?;
    search::replace(paths, request.text, request.by).await.map(Json)
}

/// Read a directory as a tar archive
///
/// Streamed. Names are relative to the directory. Sockets, FIFOs and devices are left out; hard links become files.
#[utoipa::path(
    get, path = "/v1/files/tar", tag = "files", params(FilePath),
    responses((status = 200, description = "The archive.", content_type = "application/x-tar", body = Vec<u8>))
)]
async fn pack_files(State(desk): State<Desk>, Query(query): Query<FilePath>) -> Result<Response> {
    let archive = tar::pack(files::resolve(&desk.place, &query.path)?).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(archive)).into_response())
}

/// Unpack a tar archive into a directory
///
/// Streamed; not compressed. Names and links that lead out of the directory are refused; what came before them stays.
#[utoipa::path(
    put, path = "/v1/files/tar", tag = "files", params(FilePath),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses((status = 200, body = Unpacked))
)]
async fn unpack_files(State(desk): State<Desk>, Query(query): Query<FilePath>, body: Body) -> Result<Json<Unpacked>> {
    let path = files::resolve(&desk.place, &query.path)?;
    tar::unpack(path, body.into_data_stream()).await.map(Json)
}

/// Watch files change
///
/// A stream of server-sent events, each with a `WatchEvent` as its data and that event's name as its name.
#[utoipa::path(
    get, path = "/v1/files/watch", tag = "files", params(WatchFiles),
    responses((status = 200, description = "Events.", content_type = "text/event-stream", body = WatchEvent))
)]
async fn watch_files(State(desk): State<Desk>, Query(query): Query<WatchFiles>) -> Result<Response> {
    let watch = watch::watch(files::resolve(&desk.place, &query.path)?, query.recursive, query.every_write).await?;
    let events = stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        let event = watch.next().await;
        let last = matches!(event, WatchEvent::Failed { .. });
        Some((sse(&event), (!last).then_some(watch)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

fn sse(event: &WatchEvent) -> Result<Event, Infallible> {
    let value = serde_json::to_value(event).unwrap_or_default();
    let name = value.get("event").and_then(|name| name.as_str()).unwrap_or("message").to_owned();
    Ok(Event::default().event(name).data(value.to_string()))
}
