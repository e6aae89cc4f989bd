//! Uploads: one file as the body, or any number as parts of a form; streamed to the desk, never held.

use super::decode::{STEP, Unzip};
use super::desk::{DEFAULT_USER, Sandbox, User, encoded};
use super::fault::{Code, Fault, Result};
use super::files::Asked;
use super::filesystem::info;
use axum::Json;
use axum::body::Body;
use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hotdesk_api::file::{FileInfo, NoteFile, Written};
use hotdesk_api::process::RunProcess;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How the headers of notes about a file begin.
const NOTE: &str = "x-metadata-";
/// Pieces that wait for the desk.
const WAITING: usize = 4;
/// Files in one form.
const MOST_FILES: usize = 10_000;
/// Where the default user makes directories.
const OWN: [&str; 2] = ["/home/user/", "/tmp/"];

pub(super) async fn write(sandbox: &Sandbox, asked: &Asked, request: Request) -> Result<Response> {
    let user = sandbox.user(Some(&asked.user)).await?;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let notes = notes(request.headers())?;
    let written = if kind.starts_with("multipart/form-data") {
        form(sandbox, &user, asked, &notes, request).await?
    } else {
        if asked.path.is_empty() {
            return Err(Fault::bad("the query has no `path`"));
        }
        let zipped = request.headers().get(header::CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        let data = request.into_body().into_data_stream().map(|piece| piece.map_err(|e| e.to_string()));
        parents(sandbox, asked, &asked.path).await;
        vec![if zipped {
            put(&user, &asked.path, &notes, unzipped(data)).await?
        } else {
            put(&user, &asked.path, &notes, data).await?
        }]
    };
    Ok(Json(written).into_response())
}

/// What is noted about the files.
fn notes(headers: &HeaderMap) -> Result<BTreeMap<String, String>> {
    let named = headers.iter().filter_map(|(name, value)| Some((name.as_str().strip_prefix(NOTE)?, value)));
    named
        .map(|(name, value)| match value.to_str() {
            Ok(text) => Ok((name.to_owned(), text.to_owned())),
            Err(_) => Err(Fault::bad(format!("the metadata `{name}` is not printable ASCII"))),
        })
        .collect()
}

/// Every part named `file` is a file. One alone may be named by the query; else each has its path as its file name.
async fn form(
    sandbox: &Sandbox,
    user: &User<'_>,
    asked: &Asked,
    notes: &BTreeMap<String, String>,
    mut request: Request,
) -> Result<Vec<Value>> {
    // Bounded by the sandbox's disk and not by us.
    DefaultBodyLimit::disable().apply(&mut request);
    let broken = |e: MultipartError| Fault::bad(format!("the form can't be read: {}", e.body_text()));
    let mut form = Multipart::from_request(request, &()).await.map_err(|e| Fault::bad(e.body_text()))?;
    let mut written = Vec::new();
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            continue;
        }
        if written.len() >= MOST_FILES || (!asked.path.is_empty() && !written.is_empty()) {
            return Err(Fault::bad(format!("a form has at most {MOST_FILES} files, and one if the query has a `path`")));
        }
        let path = match (asked.path.as_str(), field.file_name()) {
            ("", Some(name)) if !name.is_empty() => name.to_owned(),
            ("", _) => return Err(Fault::bad("a file has no name")),
            (path, _) => path.to_owned(),
        };
        parents(sandbox, asked, &path).await;
        let (sender, pieces) = mpsc::channel::<Result<Bytes, String>>(WAITING);
        let feeding = async {
            loop {
                let piece = match field.chunk().await {
                    Ok(Some(piece)) => Ok(piece),
                    Ok(None) => break,
                    Err(e) => Err(e.body_text()),
                };
                let last = piece.is_err();
                if sender.send(piece).await.is_err() || last {
                    break;
                }
            }
            drop(sender);
        };
        let (done, ()) = tokio::join!(put(user, &path, notes, ReceiverStream::new(pieces)), feeding);
        written.push(done?);
    }
    Ok(written)
}

/// Makes the directories above a file that its user can't make, such as those in `/`, for that user: in E2B's sandboxes root does it.
/// Where there is no root, the write says what is wrong.
async fn parents(sandbox: &Sandbox, asked: &Asked, path: &str) {
    let missing = ancestors(path);
    let Some(parent) = missing.last().filter(|_| asked.user.is_empty() || asked.user == DEFAULT_USER) else { return };
    if info(&sandbox.plain(), parent).await.is_ok() {
        return;
    }
    let Ok(root) = sandbox.user(Some("root")).await else { return };
    let make = format!(r#"for one; do [ -e "$one" ] || install -d -o {DEFAULT_USER} -g {DEFAULT_USER} -- "$one"; done"#);
    let words = ["sh", "-c", &make, "sh"].into_iter().map(str::to_owned).chain(missing);
    let wish = RunProcess { argv: Some(words.collect()), ..RunProcess::default() };
    let _ = root.post::<Value>("processes/run", &wish).await;
}

/// The directories above an absolute path, from the top; none where the user makes them itself.
fn ancestors(path: &str) -> Vec<String> {
    if !path.starts_with('/') || OWN.iter().any(|own| path.starts_with(own)) || path.contains("/../") {
        return Vec::new();
    }
    path.match_indices('/').map(|(at, _)| path[..at].to_owned()).filter(|part| !part.is_empty()).collect()
}

/// A body as it was before it was compressed.
fn unzipped(
    data: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, String>> + Send + 'static {
    async_stream::try_stream! {
        let mut unzip = Unzip::new();
        let mut data = std::pin::pin!(data);
        while let Some(piece) = data.next().await {
            for step in piece?.chunks(STEP) {
                let piece = unzip.feed(step).map_err(|e| format!("the body is no gzip: {e}"))?;
                if !piece.is_empty() {
                    yield piece;
                }
            }
        }
        let piece = unzip.finish().map_err(|e| format!("the gzip is not whole: {e}"))?;
        if !piece.is_empty() {
            yield piece;
        }
    }
}

/// Writes one file, and notes about it.
async fn put(
    user: &User<'_>,
    path: &str,
    notes: &BTreeMap<String, String>,
    data: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
) -> Result<Value> {
    let body = Body::from_stream(data.map(|piece| piece.map_err(std::io::Error::other)));
    let place = format!("files/content?path={}&make_parents=true", encoded(path));
    let written: Result<Written> = user.put(&place, body).await;
    let written = written.map_err(|fault| fault.when(Code::AlreadyExists, Code::InvalidArgument))?;
    let name = written.path.rsplit('/').next().unwrap_or_default();
    let mut told = json!({ "path": written.path, "name": name, "type": "file" });
    if !notes.is_empty() {
        let wish = NoteFile { path: written.path.clone(), notes: notes.clone() };
        let noted: FileInfo = user.post("files/notes", &wish).await?;
        told["metadata"] = json!(noted.notes);
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_root_makes() {
        assert_eq!(ancestors("/a/b c/d.txt"), ["/a", "/a/b c"]);
        for own in
            ["a/b.txt", "~/a/b.txt", "/top.txt", "/home/user/a/b.txt", "/tmp/a/b.txt", "/home/user/../../a/b.txt", "/a/../b/c"]
        {
            assert_eq!(ancestors(own), [""; 0], "{own}");
        }
    }
}
