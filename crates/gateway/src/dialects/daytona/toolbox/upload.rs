//! Files into a sandbox, streamed: no size is too large.

use super::super::Call;
use super::super::desk::{Desk, encoded};
use super::super::reply::{Failure, Reply, ok};
use super::files::of_file;
use axum::body::{Body, Bytes};
use axum::extract::multipart::Field;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Pieces that wait for the desk.
const PIECES: usize = 8;
/// Of a path in a form.
const LONGEST_PATH: usize = 4096;

/// Parts `files[0].path`, … first, then `files[0].file`, …
pub(crate) async fn many(call: Call, desk: Desk) -> Reply {
    let mut form = form(call).await?;
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(e) => {
                errors.push(format!("the form did not come whole: {}", e.body_text()));
                break;
            }
        };
        let name = field.name().unwrap_or_default().to_owned();
        if let Some(file) = name.strip_suffix(".path") {
            let path = text(field).await?;
            paths.insert(file.to_owned(), path);
        } else if let Some(file) = name.strip_suffix(".file") {
            let Some(path) = paths.get(file) else {
                errors.push(format!("{file}: its path does not come before it"));
                continue;
            };
            match write(&desk, path, field).await {
                Ok(()) => done.push(path.clone()),
                Err(failure) => errors.push(format!("{path}: {}", failure.message())),
            }
        }
    }
    match errors.is_empty() {
        true => ok(json!({"files": done})),
        false => {
            Ok((StatusCode::BAD_REQUEST, axum::Json(json!({"errors": errors, "message": errors.join("; ")}))).into_response())
        }
    }
}

/// One file, as a form or as it is.
pub(crate) async fn one(mut call: Call, desk: Desk) -> Reply {
    let path = call.query().need("path")?.to_owned();
    let is_form = |kind: &header::HeaderValue| kind.as_bytes().starts_with(b"multipart/form-data");
    if !call.parts.headers.get(header::CONTENT_TYPE).is_some_and(is_form) {
        put(&desk, &path, call.take_body()).await?;
        return ok(uploaded(&path));
    }
    let mut form = form(call).await?;
    let broken = |e: axum::extract::multipart::MultipartError| Failure::bad_request(format!("bad request: {}", e.body_text()));
    while let Some(field) = form.next_field().await.map_err(broken)? {
        if field.file_name().is_some() || field.name() == Some("file") {
            write(&desk, &path, field).await?;
            return ok(uploaded(&path));
        }
    }
    Err(Failure::bad_request("bad request: the form holds no file"))
}

fn uploaded(path: &str) -> Value {
    json!({"name": path.rsplit('/').next().unwrap_or(path), "path": path, "type": "file"})
}

async fn form(mut call: Call) -> Reply<Multipart> {
    let body = call.take_body();
    let mut request = Request::from_parts(call.parts, body);
    // What is streamed is as large as the desk's disk allows.
    axum::extract::DefaultBodyLimit::disable().apply(&mut request);
    Multipart::from_request(request, &()).await.map_err(|e| Failure::bad_request(format!("bad request: {}", e.body_text())))
}

async fn text(mut field: Field<'_>) -> Reply<String> {
    let broken = |e: axum::extract::multipart::MultipartError| Failure::bad_request(format!("bad request: {}", e.body_text()));
    let mut bytes = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LONGEST_PATH {
            return Err(Failure::bad_request(format!("bad request: a path is at most {LONGEST_PATH} bytes long")));
        }
    }
    String::from_utf8(bytes).map_err(|_| Failure::bad_request("bad request: a path is not UTF-8"))
}

/// Hands a part of a form to the desk while it comes. What the desk does not take is read and dropped, for the parts behind it.
async fn write(desk: &Desk, path: &str, mut field: Field<'_>) -> Reply<()> {
    let (pieces, taken) = mpsc::channel::<Result<Bytes, std::io::Error>>(PIECES);
    let reading = async move {
        let mut wanted = true;
        loop {
            match field.chunk().await {
                Ok(Some(piece)) => wanted = wanted && pieces.send(Ok(piece)).await.is_ok(),
                Ok(None) => return,
                Err(e) => {
                    // The desk must not take a part for the whole.
                    let _ = pieces.send(Err(std::io::Error::other(e.body_text()))).await;
                    return;
                }
            }
        }
    };
    let taken = futures_util::stream::unfold(taken, |mut taken| async move { taken.recv().await.map(|piece| (piece, taken)) });
    let (written, ()) = tokio::join!(put(desk, path, Body::from_stream(taken)), reading);
    written
}

async fn put(desk: &Desk, path: &str, body: Body) -> Reply<()> {
    let address = format!("/v1/files/content?make_parents=true&path={}", encoded(path));
    desk.call(Method::PUT, &address, body).await.map(drop).map_err(of_file)
}
