//! Files that come in: `/setup/upload` and `/setup/download_file`.

use super::Engines;
use super::answer::{Answer, Refusal, text};
use super::body::Fields;
use super::{python, scripts};
use axum::extract::multipart::Field;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::StatusCode;
use futures_util::StreamExt;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

/// A path is at most 4096 bytes long; this allows for variables in it.
const PATH_LIMIT: usize = 64 << 10;
/// What is collected before it is written.
const PIECE: usize = 256 << 10;
/// How often a download is tried.
const TRIES: usize = 3;
/// How long a server of a download may be silent.
const SILENCE: Duration = Duration::from_secs(300);

pub(super) async fn upload(State(desk): State<Engines>, request: Request) -> Answer {
    let required = || Refusal::error(StatusCode::BAD_REQUEST, "file_path and file_data are required");
    let broken = |why: &dyn std::fmt::Display| Refusal::error(StatusCode::BAD_REQUEST, format!("The form can't be read: {why}"));
    let mut form = Multipart::from_request(request, &()).await.map_err(|_| required())?;
    let mut target: Option<String> = None;
    let mut data: Option<Result<Landing, String>> = None;
    let mut aside = false;
    // Everything is read, also after an error: a client that is still sending would not see the answer.
    while let Some(mut field) = form.next_field().await.map_err(|e| broken(&e))? {
        match (field.name(), field.file_name()) {
            (Some("file_path"), None) if target.is_none() => {
                let path = short_text(&mut field).await.map_err(|e| broken(&e))?;
                target = Some(python::expand(&desk.place, &path));
            }
            (Some("file_data"), Some(_)) if data.is_none() => {
                aside = target.is_none();
                let path = match &target {
                    Some(path) => desk.place.home.join(path),
                    None => {
                        scripts::temporary_directory(&desk.place).join(format!("hotdesk-upload-{:016x}", rand::random::<u64>()))
                    }
                };
                let shown = target.clone().unwrap_or_else(|| path.to_string_lossy().into_owned());
                data = Some(land(&path, &shown, &mut field).await.map_err(|e| broken(&e))?);
            }
            _ => {}
        }
    }
    let (Some(target), Some(data)) = (target, data) else {
        return Err(required());
    };
    let failed = |why: String| Refusal::error(StatusCode::INTERNAL_SERVER_ERROR, format!("Failed to upload file: {why}"));
    let landing = data.map_err(failed)?;
    let path = desk.place.home.join(&target);
    let size = if aside { landing.move_to(&path).await } else { landing.finish().await };
    size.map(|size| text(format!("File Uploaded: {size} bytes"))).map_err(|e| failed(e.text(&target)))
}

async fn short_text(field: &mut Field<'_>) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(|e| e.to_string())? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > PATH_LIMIT {
            return Err(format!("file_path is longer than {PATH_LIMIT} bytes"));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a field to disk. The outer error is the form's, the inner one the disk's.
async fn land(path: &Path, shown: &str, field: &mut Field<'_>) -> Result<Result<Landing, String>, String> {
    let mut landing = Landing::open(path).await;
    while let Some(chunk) = field.chunk().await.map_err(|e| e.to_string())? {
        if let Ok(open) = &mut landing
            && let Err(e) = open.write(&chunk).await
        {
            landing = Err(e);
        }
    }
    Ok(landing.map_err(|e| e.text(shown)))
}

/// An error of the disk and where it happened, if that is another place than the file itself.
#[derive(Debug)]
struct LandingError {
    error: std::io::Error,
    at: Option<PathBuf>,
}

impl LandingError {
    fn text(&self, shown: &str) -> String {
        match &self.at {
            Some(path) => python::io_error(&self.error, &path.to_string_lossy()),
            None => python::io_error(&self.error, shown),
        }
    }
}

impl From<std::io::Error> for LandingError {
    fn from(error: std::io::Error) -> Self {
        Self { error, at: None }
    }
}

/// A file that is being written. It takes its place when it is whole; until then what was there
/// stays, and nothing is left behind if it never is.
struct Landing {
    file: BufWriter<File>,
    /// Where it will be, links followed.
    target: PathBuf,
    /// Where it is until then; `None` if it is written in place.
    partial: Option<PathBuf>,
}

impl Landing {
    async fn open(path: &Path) -> Result<Self, LandingError> {
        // A name that ends with a slash is that of a folder.
        let folder = if path.as_os_str().as_bytes().ends_with(b"/") { Some(path) } else { path.parent() };
        if let Some(folder) = folder {
            let at = Some(folder.to_owned());
            tokio::fs::create_dir_all(folder).await.map_err(|error| LandingError { error, at })?;
        }
        // Written through links, like everybody else writes.
        let target = tokio::fs::canonicalize(path).await.unwrap_or_else(|_| path.to_owned());
        let there = tokio::fs::metadata(&target).await.ok();
        if there.as_ref().is_some_and(|meta| meta.is_dir()) {
            return Err(std::io::Error::from_raw_os_error(nix::libc::EISDIR).into());
        }
        // Devices and pipes are written to, not replaced; a link to nowhere makes what it names.
        let special = there.as_ref().is_some_and(|meta| !meta.is_file()) || there.is_none() && path.is_symlink();
        let partial = target.with_file_name(format!(".hotdesk-{:016x}.part", rand::random::<u64>()));
        let beside = if special { None } else { Some(open_beside(&partial, there.as_ref()).await) };
        let (file, partial) = match beside {
            Some(Ok(file)) => (file, Some(partial)),
            // The folder may be closed to us and the file open.
            Some(Err(e)) if there.is_none() || e.kind() != ErrorKind::PermissionDenied => return Err(e.into()),
            _ => (File::options().write(true).create(true).truncate(true).open(&target).await?, None),
        };
        Ok(Self { file: BufWriter::with_capacity(PIECE, file), target, partial })
    }

    async fn write(&mut self, data: &[u8]) -> Result<(), LandingError> {
        Ok(self.file.write_all(data).await?)
    }

    /// Puts the file in its place and returns its size.
    async fn finish(mut self) -> Result<u64, LandingError> {
        self.file.flush().await?;
        let size = self.file.get_ref().metadata().await?.len();
        if let Some(partial) = &self.partial {
            tokio::fs::rename(partial, &self.target).await?;
            self.partial = None;
        }
        Ok(size)
    }

    /// Copies the file to where it belongs, once that is known.
    async fn move_to(mut self, path: &Path) -> Result<u64, LandingError> {
        self.file.flush().await?;
        let from = self.partial.as_deref().unwrap_or(&self.target);
        let mut landing = Self::open(path).await?;
        tokio::io::copy(&mut File::open(from).await?, &mut landing.file).await?;
        landing.finish().await
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// A new file beside the one that it will replace, with the same owner and mode.
async fn open_beside(partial: &Path, replaced: Option<&std::fs::Metadata>) -> std::io::Result<File> {
    let mode = replaced.map_or(0o666, |meta| meta.mode() & 0o7777);
    let file = File::options().write(true).create_new(true).mode(mode).open(partial).await?;
    if let Some(meta) = replaced {
        // The mode above went through our umask. It is ours, so it can be set; and only root may
        // give files away, and needs to.
        let _ = file.set_permissions(meta.permissions()).await;
        let _ = std::os::unix::fs::chown(partial, Some(meta.uid()), Some(meta.gid()));
    }
    Ok(file)
}

pub(super) async fn download(State(desk): State<Engines>, fields: Fields) -> Answer {
    let (Some(url), Some(path)) = (fields.text("url")?, fields.text("path")?) else {
        return Err(Refusal::Text(StatusCode::BAD_REQUEST, "Path or URL not supplied!".into()));
    };
    let shown = python::expand(&desk.place, path);
    let path = desk.place.home.join(&shown);
    let mut last = String::new();
    for _ in 0..TRIES {
        match fetch(url, &path, &shown).await {
            Ok(size) => return Ok(text(format!("File downloaded successfully: {size} bytes"))),
            Err(e) => last = e,
        }
    }
    let why = format!("Failed to download {url}. No retries left. Error: {last}");
    Err(Refusal::Text(StatusCode::INTERNAL_SERVER_ERROR, why))
}

async fn fetch(url: &str, path: &Path, shown: &str) -> Result<u64, String> {
    let response = client()?.get(url).send().await.and_then(reqwest::Response::error_for_status).map_err(|e| chain(&e))?;
    let promised = response.content_length();
    let mut landing = Landing::open(path).await.map_err(|e| e.text(shown))?;
    let mut pieces = response.bytes_stream();
    let mut size = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|e| chain(&e))?;
        size += piece.len() as u64;
        landing.write(&piece).await.map_err(|e| e.text(shown))?;
    }
    match promised {
        Some(promised) if promised != size => Err(format!("{size} of {promised} bytes came")),
        _ => landing.finish().await.map_err(|e| e.text(shown)),
    }
}

fn client() -> Result<&'static reqwest::Client, String> {
    static CLIENT: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();
    let made = CLIENT.get_or_init(|| {
        // Fails only if the program has chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .connect_timeout(SILENCE)
            .read_timeout(SILENCE)
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|e| chain(&e))
    });
    made.as_ref().map_err(Clone::clone)
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
