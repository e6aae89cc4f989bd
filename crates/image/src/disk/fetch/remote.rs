//! Where a disk comes from: a web server, or a file of this machine.

use crate::disk::{at, invalid};
use crate::{Error, Result};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Response, StatusCode, Url};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Of the beginning, to see what it is.
const HEAD: u64 = 64 << 10;
const CONNECT: Duration = Duration::from_secs(15);
/// A server that sends nothing for so long is dead.
const SILENCE: Duration = Duration::from_secs(30);

pub(super) struct Remote {
    pub(super) url: Url,
    /// Where the server sent us on to.
    final_url: Url,
    /// Not known of servers that send in chunks.
    pub(super) size: Option<u64>,
    pub(super) head: Vec<u8>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    File {
        file: Arc<File>,
        path: PathBuf,
    },
    /// Any part can be asked for.
    Ranges(Http),
    /// Only the whole, and it is on its way already.
    Stream(Box<Response>),
}

#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    url: Url,
    /// What tells one version of the file from another.
    pub(super) validator: Option<String>,
}

/// Why a part did not come.
pub(super) enum Trouble {
    /// It may come if it is asked for again.
    Passing(String),
    /// The file is another one now.
    Changed,
    Final(String),
}

impl Remote {
    pub(super) async fn open(address: &str) -> Result<Self> {
        let url = Url::parse(address).map_err(|e| Error::Invalid(format!("{address} is no address: {e}")))?;
        match url.scheme() {
            "file" => Self::file(url),
            "http" | "https" => Self::http(url).await,
            other => Err(Error::Invalid(format!("{other} is not known: http, https and file are"))),
        }
    }

    fn file(url: Url) -> Result<Self> {
        let path = url.to_file_path().map_err(|()| Error::Invalid(format!("{url} names no file of this machine")))?;
        if !path.metadata().map_err(|e| at(&path, &e))?.is_file() {
            return Err(invalid(&path, "it is no plain file"));
        }
        let file = File::open(&path).map_err(|e| at(&path, &e))?;
        let size = file.metadata().map_err(|e| at(&path, &e))?.len();
        let mut head = vec![0; HEAD.min(size) as usize];
        file.read_exact_at(&mut head, 0).map_err(|e| at(&path, &e))?;
        Ok(Self { final_url: url.clone(), url, size: Some(size), head, kind: Kind::File { file: Arc::new(file), path } })
    }

    async fn http(url: Url) -> Result<Self> {
        let client = client(&url)?;
        let first = Http { client, url: url.clone(), validator: None };
        let mut response = first.ask(0, HEAD).await.map_err(|e| cant(&url, &e))?;
        let final_url = response.url().clone();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => {
                let size = response.content_length();
                return Ok(Self { url, final_url, size, head: Vec::new(), kind: Kind::Stream(Box::new(response)) });
            }
            StatusCode::RANGE_NOT_SATISFIABLE => return Err(Error::Invalid(format!("{url}: it is empty"))),
            status => return Err(Error::Invalid(format!("{url}: the server answered {status}"))),
        }
        let size = range(response.headers()).and_then(|(_, size)| size);
        let Some(size) = size else {
            return Err(Error::Failed(format!("{url}: the server does not tell how large it is")));
        };
        let validator = validator(response.headers());
        let mut head = Vec::new();
        while let Some(more) = response.chunk().await.map_err(|e| cant(&url, &e))? {
            head.extend_from_slice(&more);
            if head.len() as u64 > HEAD {
                return Err(Error::Failed(format!("{url}: the server sends more than was asked for")));
            }
        }
        Ok(Self { url, final_url, size: Some(size), head, kind: Kind::Ranges(Http { validator, ..first }) })
    }

    /// Refuses a disk that somebody on the way could have changed.
    pub(super) fn check_trust(&self, sha256: Option<&str>) -> Result<()> {
        let why = match sha256 {
            None => "without its SHA-256",
            Some("beside") => "with the SHA-256 that lies beside it",
            Some(_) => return Ok(()),
        };
        // Where a server sends us on to counts as much as where we began.
        match [&self.url, &self.final_url].into_iter().find(|url| is_open_to_others(url)) {
            Some(url) => Err(Error::Invalid(format!(
                "{url} comes over plain HTTP, where anybody on the way can change it, {why}: use https, or give the SHA-256 in hex"
            ))),
            None => Ok(()),
        }
    }

    /// A small part, for looking into an archive. Nothing where only the whole can be had.
    pub(super) async fn part(&self, from: u64, length: u64) -> Option<Result<Vec<u8>>> {
        match &self.kind {
            Kind::File { file, path } => {
                let mut part = vec![0; length as usize];
                Some(file.read_exact_at(&mut part, from).map(|()| part).map_err(|e| at(path, &e)))
            }
            Kind::Ranges(http) => Some(http.part(from, length).await),
            Kind::Stream(_) => None,
        }
    }

    /// The digest that lies beside it, as `sha256sum` writes it.
    pub(super) async fn digest_beside(&self) -> Result<String> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}.sha256", self.url.path()));
        let text = match &self.kind {
            Kind::File { path, .. } => {
                let mut name = path.clone().into_os_string();
                name.push(".sha256");
                let path = PathBuf::from(name);
                std::fs::read(&path).map_err(|e| at(&path, &e))?
            }
            _ => {
                let http = Http { client: client(&url)?, url: url.clone(), validator: None };
                let mut response = http.ask(0, 4096).await.map_err(|e| cant(&url, &e))?;
                if !response.status().is_success() {
                    return Err(Error::Invalid(format!("{url}: the server answered {}", response.status())));
                }
                let mut text = Vec::new();
                while let (Some(more), true) = (response.chunk().await.map_err(|e| cant(&url, &e))?, text.len() < 4096) {
                    text.extend_from_slice(&more);
                }
                text
            }
        };
        let text = String::from_utf8_lossy(&text);
        text.split_whitespace()
            .find(|word| is_digest(word))
            .map(str::to_ascii_lowercase)
            .ok_or_else(|| Error::Invalid(format!("{url}: there is no SHA-256 in it")))
    }
}

pub(super) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Http {
    async fn ask(&self, from: u64, length: u64) -> reqwest::Result<Response> {
        let mut request = self.client.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
        request = request.header(RANGE, format!("bytes={from}-{}", from + length - 1));
        if let Some(validator) = &self.validator {
            request = request.header(IF_RANGE, validator);
        }
        request.send().await
    }

    /// The bytes from `from` on, as they come. `size` is that of the whole file.
    pub(super) async fn stream(&self, from: u64, length: u64, size: u64) -> Result<Response, Trouble> {
        let response = self.ask(from, length).await.map_err(|e| Trouble::Passing(text(&e)))?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => match range(response.headers()) {
                Some((start, _)) if start != from => {
                    Err(Trouble::Final("the server sent another part than was asked for".into()))
                }
                Some((_, Some(now))) if now != size => Err(Trouble::Changed),
                Some(_) => Ok(response),
                None => Err(Trouble::Final("the server does not say which part it sends".into())),
            },
            StatusCode::OK if self.validator.is_some() => Err(Trouble::Changed),
            StatusCode::OK => Err(Trouble::Final("the server stopped to send parts".into())),
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PRECONDITION_FAILED => Err(Trouble::Changed),
            status
                if status.is_server_error()
                    || status == StatusCode::TOO_MANY_REQUESTS
                    || status == StatusCode::REQUEST_TIMEOUT =>
            {
                Err(Trouble::Passing(format!("the server answered {status}")))
            }
            status => Err(Trouble::Final(format!("the server answered {status}"))),
        }
    }

    async fn part(&self, from: u64, length: u64) -> Result<Vec<u8>> {
        let failed = |why: &str| Error::Failed(format!("{}: {why}", self.url));
        let mut response = self.ask(from, length).await.map_err(|e| cant(&self.url, &e))?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return Err(failed(&format!("the server answered {} to a request for a part", response.status())));
        }
        let mut part = Vec::new();
        while let Some(more) = response.chunk().await.map_err(|e| cant(&self.url, &e))? {
            part.extend_from_slice(&more);
            if part.len() as u64 > length {
                return Err(failed("the server sends more than was asked for"));
            }
        }
        if part.len() as u64 == length { Ok(part) } else { Err(failed("the server sent less than was asked for")) }
    }
}

/// Whether what comes from there passes others, who could read and write it.
fn is_open_to_others(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && !here
}

/// Who began with https is not sent on to anything else.
fn client(url: &Url) -> Result<reqwest::Client> {
    // Somebody may have chosen one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE).https_only(url.scheme() == "https");
    builder.build().map_err(|e| Error::Failed(format!("no way into the network: {e}")))
}

/// `bytes 0-99/1000`: where it starts, and the size of the whole.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (part, size) = text.split_once('/')?;
    Some((part.split_once('-')?.0.trim().parse().ok()?, size.trim().parse().ok()))
}

/// Weak tags do not promise the same bytes.
fn validator(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| headers.get(LAST_MODIFIED)?.to_str().ok()).map(str::to_owned)
}

fn cant(url: &Url, e: &reqwest::Error) -> Error {
    Error::Failed(format!("{url}: {}", text(e)))
}

/// The cause at the end of the chain: the rest says only that there was one.
pub(super) fn text(e: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = e;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(url: &str, final_url: &str, sha256: Option<&str>) -> bool {
        let kind = Kind::File { file: Arc::new(File::open("/dev/null").unwrap()), path: PathBuf::new() };
        let remote = Remote {
            url: Url::parse(url).unwrap(),
            final_url: Url::parse(final_url).unwrap(),
            size: None,
            head: Vec::new(),
            kind,
        };
        remote.check_trust(sha256).is_ok()
    }

    #[test]
    fn what_others_could_have_changed_is_not_taken_unseen() {
        let digest = "a".repeat(64);
        let (plain, tls, here) = ("http://example.com/a.qcow2", "https://example.com/a.qcow2", "http://127.0.0.1:8000/a.qcow2");
        for sha256 in [None, Some("beside")] {
            assert!(!trusted(plain, plain, sha256), "{sha256:?}");
            assert!(!trusted(here, plain, sha256), "sent on to plain HTTP, {sha256:?}");
            assert!(trusted(tls, tls, sha256) && trusted(here, here, sha256) && trusted("file:///a", "file:///a", sha256));
            assert!(trusted("http://[::1]/a", "http://localhost/a", sha256));
            assert!(!trusted("http://127.0.0.1.example.com/a", plain, sha256));
        }
        assert!(trusted(plain, plain, Some(&digest)));
    }
}
