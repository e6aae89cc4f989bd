//! Files of a sandbox.

use super::super::desk::{Desk, encoded};
use super::super::reply::{Failure, Reply, empty, ok};
use super::super::{Call, api};
use super::{download, upload};
use axum::http::{Method, StatusCode};
use hotdesk_api::file::{
    FileInfo, FileKind, FileList, FoundLines, FoundNames, MakeDirectory, MoveFile, ReplaceText, Replaced, SetMode,
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) async fn answer(call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::GET, []) => list(&call, &desk).await,
        (&Method::DELETE, []) => delete(&call, &desk).await,
        (&Method::GET, ["info"]) => ok(describe(&stat(&desk, call.query().need("path")?).await?)),
        (&Method::POST, ["folder"]) => make_folder(&call, &desk).await,
        (&Method::POST, ["move"]) => rename(&call, &desk).await,
        (&Method::POST, ["permissions"]) => permissions(&call, &desk).await,
        (&Method::GET, ["find"]) => find(&call, &desk).await,
        (&Method::GET, ["search"]) => search(&call, &desk).await,
        (&Method::POST, ["replace"]) => replace(call, &desk).await,
        (&Method::POST, ["bulk-upload"]) => upload::many(call, desk).await,
        (&Method::POST, ["upload" | "upload-v2"]) => upload::one(call, desk).await,
        (&Method::POST, ["bulk-download"]) => download::many(call, desk).await,
        (&Method::GET, ["download"]) => download::one(&call, &desk).await,
        _ => Err(api::nothing(&call)),
    }
}

/// An error of the desk about a file, with the word by which SDKs raise a finer class.
pub(crate) fn of_file(failure: Failure) -> Failure {
    match failure.status() {
        StatusCode::NOT_FOUND => Failure::not_found(format!("not found: {}", failure.message())).daemon("FILE_NOT_FOUND"),
        StatusCode::FORBIDDEN => {
            Failure::new(StatusCode::FORBIDDEN, format!("forbidden: {}", failure.message())).daemon("FILE_ACCESS_DENIED")
        }
        _ => failure,
    }
}

/// The same, where what stands in the way is the caller's mistake.
fn of_kind(failure: Failure) -> Failure {
    match failure.status() {
        StatusCode::CONFLICT => Failure::bad_request(format!("bad request: {}", failure.message())).daemon("INVALID_FILE_PATH"),
        _ => of_file(failure),
    }
}

async fn stat(desk: &Desk, path: &str) -> Reply<FileInfo> {
    let found: Reply<FileInfo> = desk.get(&format!("/v1/files/stat?follow=true&path={}", encoded(path))).await;
    found.map_err(of_file)
}

fn describe(file: &FileInfo) -> Value {
    let modified = jiff::Timestamp::from_millisecond(file.modified_ms).unwrap_or_default();
    json!({
        "name": file.name,
        "isDir": file.kind == FileKind::Directory,
        "size": file.size,
        "modTime": modified.to_string(),
        "modifiedAt": modified.to_string(),
        "mode": letters(file),
        "permissions": file.mode,
        "owner": file.user.to_string(),
        "group": file.group.to_string(),
    })
}

/// `-rw-r--r--`
fn letters(file: &FileInfo) -> String {
    let mode = u32::from_str_radix(&file.mode, 8).unwrap_or(0);
    let kind = match file.kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'L',
        FileKind::Fifo => 'p',
        FileKind::Socket => 'S',
        FileKind::BlockDevice | FileKind::CharDevice => 'D',
        FileKind::File => '-',
    };
    let rights = (0..9).map(|n| if mode >> (8 - n) & 1 == 1 { ['r', 'w', 'x'][n % 3] } else { '-' });
    std::iter::once(kind).chain(rights).collect()
}

async fn list(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let path = query.get("path").filter(|path| !path.is_empty()).unwrap_or("~");
    let depth = query.number::<u32>("depth")?.unwrap_or(1).clamp(1, 64);
    let list: Reply<FileList> = desk.get(&format!("/v1/files?depth={depth}&path={}", encoded(path))).await;
    ok(list.map_err(of_kind)?.entries.iter().map(describe).collect::<Vec<_>>())
}

async fn delete(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let path = query.need("path")?;
    let recursive = query.flag(["recursive", "recursive"]);
    if !recursive && stat(desk, path).await.is_ok_and(|file| file.kind == FileKind::Directory) {
        return Err(Failure::bad_request(format!("bad request: {path} is a directory: say recursive=true to delete it"))
            .daemon("INVALID_FILE_PATH"));
    }
    desk.delete(&format!("/v1/files?recursive={recursive}&path={}", encoded(path))).await.map_err(of_kind)?;
    empty(StatusCode::NO_CONTENT)
}

async fn make_folder(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let mode = query.get("mode").filter(|mode| !mode.is_empty()).map(str::to_owned);
    let request = MakeDirectory { path: query.need("path")?.to_owned(), make_parents: true, mode };
    desk.post::<FileInfo>("/v1/files/mkdir", &request).await.map_err(of_file)?;
    empty(StatusCode::CREATED)
}

async fn rename(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let (from, to) = (query.need("source")?.to_owned(), query.need("destination")?.to_owned());
    let request = MoveFile { from, to, overwrite: false, make_parents: false };
    desk.post::<FileInfo>("/v1/files/move", &request).await.map_err(of_file)?;
    empty(StatusCode::OK)
}

async fn permissions(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let path = query.need("path")?.to_owned();
    let file = stat(desk, &path).await?;
    for (what, is) in [("owner", file.user), ("group", file.group)] {
        // The one user that there is has everything already.
        let other = query.get(what).filter(|name| !name.is_empty() && *name != "user" && *name != is.to_string());
        if let Some(other) = other {
            return Err(Failure::new(StatusCode::FORBIDDEN, format!("forbidden: {path} can't be given to {what} {other} here"))
                .daemon("FILE_ACCESS_DENIED"));
        }
    }
    if let Some(mode) = query.get("mode").filter(|mode| !mode.is_empty()) {
        let request = SetMode { path, mode: mode.to_owned() };
        desk.post::<FileInfo>("/v1/files/mode", &request).await.map_err(of_file)?;
    }
    empty(StatusCode::OK)
}

async fn find(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let (path, text) = (query.need("path")?, query.need("pattern")?);
    let found: Reply<FoundLines> = desk.get(&format!("/v1/files/find?path={}&text={}", encoded(path), encoded(text))).await;
    let lines = found.map_err(of_file)?.lines;
    ok(lines.iter().map(|hit| json!({"file": hit.path, "line": hit.line, "content": hit.text})).collect::<Vec<_>>())
}

async fn search(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let (path, pattern) = (query.need("path")?, query.need("pattern")?);
    let found: Reply<FoundNames> =
        desk.get(&format!("/v1/files/search?path={}&pattern={}", encoded(path), encoded(pattern))).await;
    ok(json!({"files": found.map_err(of_file)?.paths}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Replace {
    files: Vec<String>,
    pattern: String,
    new_value: String,
}

async fn replace(mut call: Call, desk: &Desk) -> Reply {
    let wanted: Replace = call.json().await?;
    let request = ReplaceText { paths: wanted.files.clone(), text: wanted.pattern, by: wanted.new_value };
    let done: Replaced = desk.post("/v1/files/replace", &request).await.map_err(of_file)?;
    let results = wanted.files.iter().zip(&done.files).map(|(asked, file)| {
        let mut result = json!({"file": asked, "success": file.problem.is_none()});
        if let Some(problem) = &file.problem {
            result["error"] = problem.as_str().into();
        }
        result
    });
    ok(results.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_in_letters() {
        let file = |kind, mode: &str| FileInfo {
            path: String::new(),
            name: String::new(),
            kind,
            size: 0,
            mode: mode.into(),
            user: 0,
            group: 0,
            modified_ms: 0,
            target: None,
            user_name: None,
            group_name: None,
            end: None,
            notes: Default::default(),
        };
        assert_eq!(letters(&file(FileKind::File, "0600")), "-rw-------");
        assert_eq!(letters(&file(FileKind::Directory, "0755")), "drwxr-xr-x");
    }
}
