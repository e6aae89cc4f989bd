//! `filesystem.Filesystem`: directories and what is known of files.

use super::connect;
use super::desk::{Sandbox, User, encoded};
use super::envd;
use super::fault::{Code, Fault, Result};
use super::watch;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use hotdesk_api::file::{FileInfo, FileKind, FileList, MakeDirectory, MoveFile};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) async fn answer(sandbox: Sandbox, method: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    match method {
        "Stat" => connect::reply(stat(&sandbox, headers, body).await),
        "ListDir" => connect::reply(list(&sandbox, headers, body).await),
        "MakeDir" => connect::reply(make_directory(&sandbox, headers, body).await),
        "Move" => connect::reply(rename(&sandbox, headers, body).await),
        "Remove" => connect::reply(remove(&sandbox, headers, body).await),
        "WatchDir" => watch::stream(sandbox, headers, body).await.unwrap_or_else(connect::refused_stream),
        "CreateWatcher" => connect::reply(watch::create(sandbox, headers, body).await),
        "GetWatcherEvents" => connect::reply(watch::events(&sandbox, headers, body).await),
        "RemoveWatcher" => connect::reply(watch::remove(&sandbox, headers, body).await),
        _ => envd::unknown(method),
    }
}

#[derive(Deserialize)]
struct Place {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

/// An empty path is the home directory.
pub(super) fn path_or_home(path: &str) -> &str {
    if path.is_empty() { "~" } else { path }
}

async fn stat(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Place { path, .. } = connect::message(headers, body).await?;
    let name = connect::user(headers)?;
    let user = sandbox.user(name.as_deref()).await?;
    Ok(json!({ "entry": entry(&info(&user, &path).await?) }))
}

/// A file as it is, not what a link leads to.
pub(super) async fn info(user: &User<'_>, path: &str) -> Result<FileInfo> {
    let found = user.get(&format!("files/stat?path={}", encoded(path_or_home(path)))).await;
    // A file where a directory should be on the way: there is no such path.
    found.map_err(|fault| fault.when(Code::AlreadyExists, Code::NotFound))
}

async fn list(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Place { path, depth } = connect::message(headers, body).await?;
    let name = connect::user(headers)?;
    let user = sandbox.user(name.as_deref()).await?;
    let place = format!("files?path={}&depth={}", encoded(path_or_home(&path)), depth.clamp(1, 64));
    let list: FileList = user.get(&place).await.map_err(|fault| fault.when(Code::AlreadyExists, Code::InvalidArgument))?;
    let known = |info: &&FileInfo| matches!(info.kind, FileKind::File | FileKind::Directory | FileKind::Symlink);
    Ok(json!({ "entries": list.entries.iter().filter(known).map(entry).collect::<Vec<_>>() }))
}

async fn make_directory(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Place { path, .. } = connect::message(headers, body).await?;
    let name = connect::user(headers)?;
    let user = sandbox.user(name.as_deref()).await?;
    match info(&user, &path).await {
        Ok(found) if is_directory(&found) => {
            return Err(Fault::new(Code::AlreadyExists, format!("directory already exists: {}", found.path)));
        }
        Ok(found) => return Err(Fault::bad(format!("path already exists but it is not a directory: {}", found.path))),
        Err(fault) if fault.code == Code::NotFound => {}
        Err(fault) => return Err(fault),
    }
    let wish = MakeDirectory { path, make_parents: true, mode: None };
    let made: FileInfo = user.post("files/mkdir", &wish).await.map_err(|f| f.when(Code::AlreadyExists, Code::InvalidArgument))?;
    Ok(json!({ "entry": entry(&made) }))
}

pub(super) fn is_directory(info: &FileInfo) -> bool {
    info.end.as_ref().map_or(info.kind, |end| end.kind) == FileKind::Directory
}

#[derive(Deserialize)]
struct Move {
    source: String,
    destination: String,
}

async fn rename(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Move { source, destination } = connect::message(headers, body).await?;
    let name = connect::user(headers)?;
    let user = sandbox.user(name.as_deref()).await?;
    let wish = MoveFile { from: source, to: destination, overwrite: true, make_parents: true };
    let moved: FileInfo = user.post("files/move", &wish).await.map_err(|f| f.when(Code::AlreadyExists, Code::InvalidArgument))?;
    Ok(json!({ "entry": entry(&moved) }))
}

async fn remove(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Place { path, .. } = connect::message(headers, body).await?;
    let name = connect::user(headers)?;
    let user = sandbox.user(name.as_deref()).await?;
    let place = format!("files?path={}&recursive=true", encoded(path_or_home(&path)));
    match user.tell(Method::DELETE, &place, &()).await {
        // Nothing is left of it, as was wished.
        Err(fault) if fault.code == Code::NotFound => Ok(json!({})),
        Err(fault) => Err(fault.when(Code::AlreadyExists, Code::Internal)),
        Ok(()) => Ok(json!({})),
    }
}

/// A file in E2B's words.
pub(super) fn entry(info: &FileInfo) -> Value {
    let link = info.kind == FileKind::Symlink;
    // Of a link that leads somewhere, what is there counts.
    let kind = match info.end.as_ref().map_or(info.kind, |end| end.kind) {
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::Symlink => "FILE_TYPE_SYMLINK",
        FileKind::File => "FILE_TYPE_FILE",
        _ => "FILE_TYPE_UNSPECIFIED",
    };
    let mode = u32::from_str_radix(&info.mode, 8).unwrap_or(0);
    let mut entry = json!({
        "name": info.name,
        "type": kind,
        "path": info.path,
        "size": info.size,
        "mode": mode & 0o777,
        "permissions": permissions(info.kind, mode),
        "owner": info.user_name.clone().unwrap_or_else(|| info.user.to_string()),
        "group": info.group_name.clone().unwrap_or_else(|| info.group.to_string()),
        "modifiedTime": jiff::Timestamp::from_millisecond(info.modified_ms).unwrap_or_default().to_string(),
        "isSymlink": link,
    });
    if link {
        let target = info.end.as_ref().map(|end| end.path.clone()).or_else(|| info.target.clone());
        entry["symlinkTarget"] = json!(target.unwrap_or_default());
    }
    if !info.notes.is_empty() {
        entry["metadata"] = json!(info.notes);
    }
    entry
}

/// `-rw-r--r--`
fn permissions(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'L',
        _ => '-',
    };
    let bits = (0..9).rev().map(|bit| if mode & (1 << bit) == 0 { '-' } else { ['x', 'w', 'r'][bit % 3] });
    std::iter::once(first).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_spelled_out() {
        assert_eq!(permissions(FileKind::File, 0o640), "-rw-r-----");
        assert_eq!(permissions(FileKind::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(permissions(FileKind::Symlink, 0o777), "Lrwxrwxrwx");
    }
}
