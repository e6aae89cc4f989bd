//! Files out of a sandbox, streamed.

use super::super::Call;
use super::super::desk::{Desk, encoded};
use super::super::reply::Reply;
use super::files::of_file;
use axum::body::{Body, Bytes};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    paths: Vec<String>,
}

pub(crate) async fn one(call: &Call, desk: &Desk) -> Reply {
    file(desk, call.query().need("path")?).await
}

/// A file as it is.
pub(crate) async fn file(desk: &Desk, path: &str) -> Reply {
    let file = open(desk, path).await?;
    let length = file.headers().get(header::CONTENT_LENGTH).cloned();
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], file.into_body()).into_response();
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
    }
    Ok(response)
}

async fn open(desk: &Desk, path: &str) -> Reply<Response> {
    let address = format!("/v1/files/content?path={}", encoded(path));
    desk.call(Method::GET, &address, Body::empty()).await.map_err(of_file)
}

/// A form with one part for each path, in their order: the file, or what is wrong with it.
pub(crate) async fn many(mut call: Call, desk: Desk) -> Reply {
    let Wanted { paths } = call.json().await?;
    let boundary = format!("hotdesk-{:032x}", rand::random::<u128>());
    let place = call.parts.uri.path().to_owned();
    let kind = format!("multipart/form-data; boundary={boundary}");
    let body = async_stream::stream! {
        let mut first = true;
        for path in paths {
            let line = if first { "" } else { "\r\n" };
            first = false;
            match open(&desk, &path).await {
                Ok(file) => {
                    let length = file.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).map(str::to_owned);
                    let length = length.map(|length| format!("Content-Length: {length}\r\n")).unwrap_or_default();
                    let name = file_name(&path);
                    yield Ok(Bytes::from(format!(
                        "{line}--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; {name}\r\n\
                         Content-Type: application/octet-stream\r\n{length}\r\n"
                    )));
                    let mut pieces = file.into_body().into_data_stream();
                    while let Some(piece) = pieces.next().await {
                        match piece {
                            Ok(piece) => yield Ok(piece),
                            // The client sees that the last boundary is missing.
                            Err(e) => {
                                yield Err(e);
                                return;
                            }
                        }
                    }
                }
                Err(failure) => {
                    let name = file_name(&path);
                    let error = failure.body(&place).to_string();
                    yield Ok(Bytes::from(format!(
                        "{line}--{boundary}\r\nContent-Disposition: form-data; name=\"error\"; {name}\r\n\
                         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{error}",
                        error.len()
                    )));
                }
            }
        }
        yield Ok(Bytes::from(format!("{}--{boundary}--\r\n", if first { "" } else { "\r\n" })));
    };
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

/// The path as it was asked for, by which the client knows which file it is.
fn file_name(path: &str) -> String {
    let quoted: String = path
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            // Would end the header.
            '\r' | '\n' | '\0' => vec!['_'],
            c => vec![c],
        })
        .collect();
    match path.is_ascii() {
        true => format!("filename=\"{quoted}\""),
        false => format!("filename=\"{quoted}\"; filename*=UTF-8''{}", encoded(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(file_name(r#"/a/"b".txt"#), r#"filename="/a/\"b\".txt""#);
        assert_eq!(file_name("a\r\nb"), "filename=\"a__b\"");
        assert_eq!(file_name("ü"), "filename=\"ü\"; filename*=UTF-8''%C3%BC");
    }
}
