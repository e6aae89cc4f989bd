//! Files of a desk, read in parts and written as a whole.

use super::Server;
use super::text::LONGEST_TEXT;
use super::tools::{Outcome, says};
use crate::dialects::native::{Ask, problem};
use axum::http::{HeaderValue, Method, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hotdesk_api::file::{FileInfo, FileKind, Written};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;

/// Bytes that are read at once if nothing is said.
const USUAL_LENGTH: u64 = LONGEST_TEXT as u64;
const LONGEST_LENGTH: u64 = 100_000;
/// A picture that is shown: in base64, results stay below what clients take.
const LARGEST_PICTURE: u64 = 500_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// Absolute, or from the home directory on.
    path: String,
    /// The byte to begin at; 0 if left out.
    #[serde(default)]
    offset: u64,
    /// Bytes to read; 30000 if left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000))]
    length: Option<u64>,
}

pub(super) async fn read(server: Server, what: Read) -> Outcome {
    let length = what.length.unwrap_or(USUAL_LENGTH);
    if length == 0 || length > LONGEST_LENGTH {
        return Err(problem(400, "invalid", format!("`length` is {length}, but must be from 1 to {LONGEST_LENGTH}")));
    }
    let desk = server.meant(what.desk).await?;
    let stat = Ask::get(&["v1", "desks", &desk, "files", "stat"]).query("path", &what.path).query("follow", true);
    let info: FileInfo = server.native.value(stat).await?;
    if info.kind == FileKind::Directory {
        return Err(problem(400, "invalid", format!("`{}` is a directory; run `ls -l` to see what is in it", info.path)));
    }
    let kind = picture(&info.path).filter(|_| what.offset == 0 && what.length.is_none() && info.size <= LARGEST_PICTURE);
    let end = if kind.is_some() { info.size } else { info.size.min(what.offset.saturating_add(length)) };
    if what.offset >= end {
        return match info.size {
            0 => says("the file is empty"),
            size => {
                Err(problem(400, "invalid", format!("the file has {size} bytes, so there is nothing from {} on", what.offset)))
            }
        };
    }
    let range = HeaderValue::try_from(format!("bytes={}-{}", what.offset, end - 1));
    let range = range.map_err(|e| problem(500, "internal", e.to_string()))?;
    let ask = Ask::get(&["v1", "desks", &desk, "files", "content"]).query("path", &what.path).header(header::RANGE, range);
    let body = server.native.answer(ask).await?.body;
    match kind {
        Some(kind) => Ok(vec![ContentBlock::image(BASE64_STANDARD.encode(&body), kind)]),
        None => says(text(&body, what.offset, info.size)?),
    }
}

/// The kind of a picture that models see, by the file's name.
fn picture(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "webp" => Some("image/webp"),
        "gif" => Some("image/gif"),
        _ => None,
    }
}

/// A part as text, with a note of what is left.
fn text(body: &[u8], offset: u64, size: u64) -> Result<String, hotdesk_api::Problem> {
    let refused = || {
        problem(400, "binary", format!("the file is no text; it has {size} bytes. run `file`, `xxd` or `base64` to look into it"))
    };
    // A part may begin and end within a character.
    let begin = if offset == 0 { 0 } else { body.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count() };
    let body = &body[begin..];
    let body = match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&body[..e.valid_up_to()]).map_err(|_| refused())?,
        Err(_) => return Err(refused()),
    };
    if body.contains('\0') {
        return Err(refused());
    }
    let next = offset + (begin + body.len()) as u64;
    if next < size {
        return Ok(format!("{body}\n[… bytes {offset} to {next} of {size}; read on with `offset` {next} …]"));
    }
    Ok(body.to_owned())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// Absolute, or from the home directory on. Missing directories are made.
    path: String,
    /// What is written, as text.
    #[serde(default)]
    text: Option<String>,
    /// What is written, in base64, instead of text.
    #[serde(default)]
    base64: Option<String>,
    /// Whether it can be run as a program; as it was if left out.
    #[serde(default)]
    executable: Option<bool>,
}

pub(super) async fn write(server: Server, what: Write) -> Outcome {
    let content: Bytes = match (what.text, what.base64) {
        (Some(text), None) => text.into(),
        (None, Some(data)) => match BASE64_STANDARD.decode(data.trim()) {
            Ok(bytes) => bytes.into(),
            Err(e) => return Err(problem(400, "invalid", format!("`base64` is none: {e}"))),
        },
        _ => return Err(problem(400, "invalid", "either `text` or `base64` says what is written")),
    };
    let desk = server.meant(what.desk).await?;
    let mut ask = Ask::new(Method::PUT, &["v1", "desks", &desk, "files", "content"]).query("path", &what.path);
    ask = ask.query("make_parents", true).header(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(executable) = what.executable {
        ask = ask.query("mode", if executable { "0755" } else { "0644" });
    }
    ask.body = content;
    let written: Written = server.native.value(ask).await?;
    says(format!("{} has {} bytes now", written.path, written.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_texts_are_cut_between_characters() {
        assert_eq!(text("grüße".as_bytes(), 0, 7).unwrap(), "grüße");
        let part = text(&"grüße".as_bytes()[..3], 0, 7).unwrap();
        assert_eq!(part, "gr\n[… bytes 0 to 2 of 7; read on with `offset` 2 …]");
        assert_eq!(text(&"grüße".as_bytes()[3..], 3, 7).unwrap(), "ße");
        for binary in [&b"\x89PNG\xff\xfe"[..], b"a\0b"] {
            assert!(text(binary, 0, 6).is_err());
        }
    }
}
