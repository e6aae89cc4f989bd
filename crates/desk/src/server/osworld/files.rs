//! Files: `/file` and `/list_directory`.

use super::Engines;
use super::answer::{Answer, Refusal, json_text};
use super::body::{Fields, form_field};
use super::{python, serve};
use crate::error::Error;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) async fn file(State(desk): State<Engines>, request: Request) -> Answer {
    let headers = request.headers().clone();
    let Some(given) = form_field(request, "file_path").await else {
        return Err(Refusal::error(StatusCode::BAD_REQUEST, "file_path is required"));
    };
    let expanded = python::expand(&desk.place, &given);
    if expanded.is_empty() || tokio::fs::metadata(desk.place.home.join(&expanded)).await.is_err() {
        return Err(Refusal::error(StatusCode::NOT_FOUND, "File not found"));
    }
    let name = base_name(&expanded);
    let served = serve::file(&desk.place.home.join(&expanded), serve::kind_of(name), serve::attachment(name), &headers).await;
    served.map_err(|e| {
        let why = python::io_error(&e, &expanded);
        Refusal::error(StatusCode::INTERNAL_SERVER_ERROR, format!("Failed to serve file: {why}"))
    })
}

/// `os.path.basename`: what follows the last slash.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Bounds of a listing, all far above any folder that a task looks at. `/` with its `/proc` would
/// otherwise be listed for ever. Python's JSON reader gives up below some 1000 levels.
const MOST_ENTRIES: usize = 1_000_000;
const MOST_BYTES: usize = 128 << 20;
const DEEPEST: usize = 256;
const LONGEST: Duration = Duration::from_secs(60);

pub(super) async fn list_directory(State(desk): State<Engines>, fields: Fields) -> Answer {
    let path = match fields.get("path") {
        Value::String(path) => path.clone(),
        _ if !fields.has("path") => return Err(Refusal::error(StatusCode::BAD_REQUEST, "Missing 'path' parameter")),
        _ => return Err(Refusal::error(StatusCode::BAD_REQUEST, "The provided path is not a directory")),
    };
    let place = desk.place.clone();
    let listed = tokio::task::spawn_blocking(move || {
        let real = place.home.join(&path);
        if path.is_empty() || !real.is_dir() {
            return None;
        }
        let mut listing =
            Listing { json: "{\"directory_tree\":".to_owned(), entries: 0, begin: Instant::now(), above: Vec::new() };
        listing.directory(&real, &path);
        listing.json.push_str("}\n");
        Some(listing.json)
    });
    match listed.await.map_err(Error::internal)? {
        Some(json) => Ok(json_text(StatusCode::OK, json)),
        None => Err(Refusal::error(StatusCode::BAD_REQUEST, "The provided path is not a directory")),
    }
}

/// A tree of directories, written as it is walked.
struct Listing {
    json: String,
    entries: usize,
    begin: Instant,
    /// Device and number of the directories that the current one lies in: links that lead back to
    /// them would go round for ever.
    above: Vec<(u64, u64)>,
}

impl Listing {
    fn directory(&mut self, real: &Path, shown: &str) {
        let identity = real.metadata().map(|m| (m.dev(), m.ino()));
        let read = || {
            let identity = identity?;
            if self.above.contains(&identity) || self.above.len() >= DEEPEST {
                return Ok((identity, None));
            }
            Ok((identity, Some(std::fs::read_dir(real)?)))
        };
        let (identity, entries) = match read() {
            Ok(read) => read,
            Err(e) => return self.error(&python::io_error(&e, shown)),
        };
        self.json.push_str("{\"type\":\"directory\",\"name\":");
        self.string(base_name(shown));
        self.json.push_str(",\"children\":[");
        self.above.push(identity);
        let mut first = true;
        for entry in entries.into_iter().flatten() {
            if !std::mem::take(&mut first) {
                self.json.push(',');
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES || self.json.len() > MOST_BYTES || self.begin.elapsed() > LONGEST {
                self.error("hotdesk: there is more here than one answer can hold");
                break;
            }
            match entry {
                Ok(entry) => self.entry(&entry, shown),
                Err(e) => self.error(&python::io_error(&e, shown)),
            }
        }
        self.above.pop();
        self.json.push_str("]}");
    }

    fn entry(&mut self, entry: &std::fs::DirEntry, parent: &str) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = entry.path();
        // Only links need a second look.
        let is_directory = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => path.is_dir(),
        };
        if is_directory {
            let slash = if parent.ends_with('/') { "" } else { "/" };
            self.directory(&path, &format!("{parent}{slash}{name}"));
        } else {
            self.json.push_str("{\"type\":\"file\",\"name\":");
            self.string(&name);
            self.json.push('}');
        }
    }

    fn error(&mut self, why: &str) {
        self.json.push_str("{\"error\":");
        self.string(why);
        self.json.push('}');
    }

    fn string(&mut self, text: &str) {
        self.json.push_str(&Value::from(text).to_string());
    }
}
