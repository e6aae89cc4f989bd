//! Handing out bytes: pictures and files, whole or a part of them, labelled as Flask does.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use std::fmt::Write;
use std::io::SeekFrom;
use std::path::Path;
use std::time::SystemTime;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

/// What is read from disk at a time. Each piece costs a hop to another thread; larger ones gain
/// nothing more and are held once per client.
const PIECE: usize = 256 << 10;

/// Files of `/proc` say that they are empty; so much of them is read.
const PROC_LIMIT: u64 = 16 << 20;

/// How an answer is labelled.
pub(super) struct Label {
    pub(super) kind: String,
    pub(super) disposition: String,
    pub(super) etag: String,
    pub(super) modified: SystemTime,
}

/// Bytes in memory, for GET: a client that has them already gets 304.
pub(super) fn bytes(bytes: Bytes, label: &Label, headers: &HeaderMap) -> Response {
    if client_has(headers, &label.etag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        stamp(response.headers_mut(), label);
        response.headers_mut().remove(header::CONTENT_TYPE);
        return response;
    }
    let length = bytes.len() as u64;
    match part(headers, label, length) {
        Part::Whole => answer(StatusCode::OK, length, None, bytes.into(), label),
        Part::Range { first, last } => {
            // Both lie inside of the bytes.
            let range = bytes.slice(first as usize..=last as usize);
            answer(
                StatusCode::PARTIAL_CONTENT,
                last - first + 1,
                Some(format!("bytes {first}-{last}/{length}")),
                range.into(),
                label,
            )
        }
        Part::Outside => outside(length, label),
    }
}

/// A file from disk, as it comes, whatever its size.
pub(super) async fn file(path: &Path, kind: String, disposition: String, headers: &HeaderMap) -> std::io::Result<Response> {
    // Opening a pipe would wait for somebody to write into it.
    let meta = tokio::fs::metadata(path).await?;
    if meta.is_dir() {
        return Err(std::io::Error::from_raw_os_error(nix::libc::EISDIR));
    }
    if !meta.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut file = File::open(path).await?;
    let meta = file.metadata().await?;
    let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let age = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let label = Label { kind, disposition, etag: format!("\"{:x}-{:x}\"", age.as_nanos(), meta.len()), modified };
    let length = meta.len();
    if length == 0 {
        let mut content = Vec::new();
        file.take(PROC_LIMIT).read_to_end(&mut content).await?;
        return Ok(answer(StatusCode::OK, content.len() as u64, None, content.into(), &label));
    }
    Ok(match part(headers, &label, length) {
        Part::Whole => answer(StatusCode::OK, length, None, stream(file, length), &label),
        Part::Range { first, last } => {
            file.seek(SeekFrom::Start(first)).await?;
            let count = last - first + 1;
            let range = Some(format!("bytes {first}-{last}/{length}"));
            answer(StatusCode::PARTIAL_CONTENT, count, range, stream(file, count), &label)
        }
        Part::Outside => outside(length, &label),
    })
}

fn stream(file: File, length: u64) -> Body {
    Body::from_stream(ReaderStream::with_capacity(file.take(length), PIECE))
}

fn answer(status: StatusCode, length: u64, range: Option<String>, body: Body, label: &Label) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    stamp(headers, label);
    headers.insert(header::CONTENT_LENGTH, length.into());
    if let Some(range) = range.and_then(|range| HeaderValue::try_from(range).ok()) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    response
}

fn outside(length: u64, label: &Label) -> Response {
    let mut response = answer(StatusCode::RANGE_NOT_SATISFIABLE, 0, Some(format!("bytes */{length}")), Body::empty(), label);
    response.headers_mut().remove(header::CONTENT_DISPOSITION);
    response
}

fn stamp(headers: &mut HeaderMap, label: &Label) {
    let fields = [
        (header::CONTENT_TYPE, label.kind.clone()),
        (header::CONTENT_DISPOSITION, label.disposition.clone()),
        (header::ETAG, label.etag.clone()),
        (header::LAST_MODIFIED, httpdate::fmt_http_date(label.modified)),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ];
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::try_from(value)
            && !value.is_empty()
        {
            headers.insert(name, value);
        }
    }
}

/// `If-None-Match`, compared weakly.
fn client_has(headers: &HeaderMap, etag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == "*" || opaque(tag) == opaque(etag))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// From and to, both included, inside of the content.
    Range {
        first: u64,
        last: u64,
    },
    /// The wanted range begins after the end.
    Outside,
}

/// What `Range` asks for. Several ranges, other units and nonsense get the whole, as RFC 9110 allows.
fn part(headers: &HeaderMap, label: &Label, length: u64) -> Part {
    let Some(wanted) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else { return Part::Whole };
    if let Some(condition) = headers.get(header::IF_RANGE).and_then(|value| value.to_str().ok())
        && condition != label.etag
        && condition != httpdate::fmt_http_date(label.modified)
    {
        return Part::Whole;
    }
    range(wanted, length).unwrap_or(Part::Whole)
}

pub(super) fn range(wanted: &str, length: u64) -> Option<Part> {
    let (unit, range) = wanted.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| match text.trim() {
        digits if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().unwrap_or(u64::MAX)),
        _ => None,
    };
    if first.trim().is_empty() {
        let count = number(last)?;
        return Some(match count.min(length) {
            0 => Part::Outside,
            count => Part::Range { first: length - count, last: length - 1 },
        });
    }
    let first = number(first)?;
    let last = if last.trim().is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some(if first >= length { Part::Outside } else { Part::Range { first, last: last.min(length - 1) } })
}

/// `attachment; filename=…`: plain where that can be, quoted where it must, and with the real
/// name beside it where it is not ASCII (RFC 6266).
pub(super) fn attachment(name: &str) -> String {
    let ascii: String = name.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).collect();
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let mut out = "attachment; filename=".to_owned();
    if !ascii.is_empty() && ascii.bytes().all(token) {
        out.push_str(&ascii);
    } else {
        let _ = write!(out, "\"{}\"", ascii.replace('\\', "\\\\").replace('"', "\\\""));
    }
    if ascii != name {
        out.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// What kind of file a name promises. Of a packed file what is inside counts, as in Python.
pub(super) fn kind_of(name: &str) -> String {
    const PACKED: [&str; 5] = [".gz", ".bz2", ".xz", ".br", ".Z"];
    let inner = PACKED.iter().find_map(|end| name.strip_suffix(end)).filter(|inner| inner.contains('.'));
    let guess = match inner {
        Some(inner) => mime_guess::from_path(inner).first_raw(),
        None => mime_guess::from_path(name).first_raw(),
    };
    match guess {
        Some(kind) if kind.starts_with("text/") => format!("{kind}; charset=utf-8"),
        Some(kind) => kind.to_owned(),
        None => "application/octet-stream".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let inside = |first, last| Some(Part::Range { first, last });
        for (wanted, part) in [
            ("bytes=0-9", inside(0, 9)),
            ("bytes=190-", inside(190, 199)),
            ("bytes=-5", inside(195, 199)),
            ("bytes=-900", inside(0, 199)),
            ("bytes=150-900", inside(150, 199)),
            ("Bytes = 1-1", inside(1, 1)),
            ("bytes=0-99999999999999999999999", inside(0, 199)),
            ("bytes=500-600", Some(Part::Outside)),
            ("bytes=200-", Some(Part::Outside)),
            ("bytes=99999999999999999999999-", Some(Part::Outside)),
            ("bytes=-0", Some(Part::Outside)),
            ("bytes=9-1", None),
            ("bytes=0-1,5-6", None),
            ("bytes=-", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("lines=1-2", None),
            ("", None),
        ] {
            assert_eq!(range(wanted, 200), part, "{wanted}");
        }
        assert_eq!(range("bytes=0-", 0), Some(Part::Outside));
        assert_eq!(range("bytes=-1", 0), Some(Part::Outside));
    }

    #[test]
    fn names() {
        for (name, header) in [
            ("a.txt", "attachment; filename=a.txt"),
            ("two words.txt", "attachment; filename=\"two words.txt\""),
            ("say \"x\\y\"", "attachment; filename=\"say \\\"x\\\\y\\\"\""),
            ("ü.txt", "attachment; filename=.txt; filename*=UTF-8''%C3%BC.txt"),
            ("日本", "attachment; filename=\"\"; filename*=UTF-8''%E6%97%A5%E6%9C%AC"),
            ("a\r\nb", "attachment; filename=ab; filename*=UTF-8''a%0D%0Ab"),
        ] {
            assert_eq!(attachment(name), header);
            HeaderValue::try_from(attachment(name)).unwrap();
        }
    }

    #[test]
    fn kinds() {
        for (name, kind) in [
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.PNG", "image/png"),
            ("a.json", "application/json"),
            ("a.mp4", "video/mp4"),
            ("a.bin", "application/octet-stream"),
            ("noextension", "application/octet-stream"),
            (".hidden", "application/octet-stream"),
            ("a.tar.gz", "application/x-tar"),
            ("a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ] {
            assert_eq!(kind_of(name), kind, "{name}");
        }
    }

    #[test]
    fn known_pictures_are_not_sent_again() {
        let label =
            Label { kind: "image/png".into(), disposition: "inline".into(), etag: "\"a\"".into(), modified: SystemTime::now() };
        let ask = |tag: &'static str| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(tag))]);
            bytes(Bytes::from_static(b"x"), &label, &headers).status()
        };
        assert_eq!(ask("\"b\", W/\"a\""), StatusCode::NOT_MODIFIED);
        assert_eq!(ask("*"), StatusCode::NOT_MODIFIED);
        assert_eq!(ask("\"b\""), StatusCode::OK);
    }
}
