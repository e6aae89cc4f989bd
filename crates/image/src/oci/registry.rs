//! Images into a registry, over its HTTP API (OCI distribution specification).
//!
//! What the registry has is not sent again; what it has in another repository is taken from there if it allows that. The rest goes up in pieces, so
//! a connection that breaks, or a registry that is started anew, costs what was on its way: the push asks how far the registry got and goes on
//! from there. A registry that has forgotten an upload gets that layer from its beginning.

pub(crate) mod challenge;
mod credentials;
mod session;
mod upload;

use super::Image;
use crate::{Error, Result};
use futures_util::StreamExt;
use session::Session;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use upload::Upload;

pub use credentials::Credentials;

/// Uploads at a time: several hide the time that a registry takes to check what it got; more only divide the line.
const AT_ONCE: usize = 3;
/// How often is told how far it is.
const TELL: Duration = Duration::from_millis(200);
/// A name longer than this is taken by no registry.
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// Where an image goes: `HOST[:PORT]/REPOSITORY[:TAG]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// With its port.
    pub host: String,
    pub repository: String,
    pub tag: String,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.host, self.repository, self.tag)
    }
}

impl std::str::FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::Invalid(format!(
                "`{text}` does not name an image in a registry: {why}; write HOST/NAME:TAG, such as 127.0.0.1:5000/desks/base:1"
            ))
        };
        let (host, rest) = text.split_once('/').ok_or_else(|| wrong("there is no host"))?;
        // As everybody does: without a dot, a port or this name, the first word is part of the repository.
        if !(host.contains(['.', ':']) || host == "localhost") {
            return Err(wrong("the first part is no host"));
        }
        if rest.contains('@') {
            return Err(wrong("a digest can't be chosen, it is what comes out"));
        }
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, tag),
            None => (rest, "latest"),
        };
        let word = |part: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|c| inner(c) || "._-".contains(c))
        };
        if repository.len() > LONGEST_NAME || !repository.split('/').all(word) {
            return Err(wrong("names have small letters, digits and `._-` inside"));
        }
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if tag.len() > LONGEST_TAG || !tag.starts_with(letter) || !tag.chars().all(|c| letter(c) || ".-".contains(c)) {
            return Err(wrong("the tag has other letters than it may"));
        }
        let good = |host: &str| {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
            port.parse::<u16>().is_ok()
                && !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-[]:".contains(c))
        };
        if !good(host) {
            return Err(wrong("the host can't be one"));
        }
        Ok(Self { host: host.into(), repository: repository.into(), tag: tag.into() })
    }
}

impl Reference {
    /// Whether it is on this machine, where nobody listens in.
    fn is_loopback(&self) -> bool {
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        name == "localhost"
            || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// How an image is pushed.
#[derive(Debug, Clone)]
pub struct Push {
    /// Plain HTTP also to other machines.
    pub insecure: bool,
    /// Repositories of the same registry that may have layers already.
    pub mount_from: Vec<String>,
    /// None: what `docker login` wrote down.
    pub credentials: Option<Credentials>,
    /// So long it may take without any byte getting through before the push is given up.
    pub patience: Duration,
}

impl Default for Push {
    fn default() -> Self {
        // A registry that is restarted, or a line that comes back: minutes, not seconds.
        Self { insecure: false, mount_from: Vec::new(), credentials: None, patience: Duration::from_secs(180) }
    }
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Pushed {
    /// Names the image wherever it is.
    pub digest: String,
    pub sent_bytes: u64,
    /// Blobs that the registry had.
    pub present: usize,
    /// Blobs that it took from another repository.
    pub mounted: usize,
    /// Broken connections after which it went on.
    pub resumed: usize,
}

impl Image {
    /// Pushes it. Dropping the future ends the push; the next one goes on with what has arrived.
    pub async fn push(&self, to: &Reference, how: &Push, stage: impl Fn(&str) + Send + Sync) -> Result<Pushed> {
        let session = Session::open(to, how).await?;
        let sent = AtomicU64::new(0);
        let blobs = self.layers.iter().chain([&self.config]);
        let all: u64 = blobs.clone().map(|blob| blob.size).sum();
        let uploads = futures_util::stream::iter(blobs.map(|blob| Upload::new(&session, blob, how, &sent, &stage).run()))
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>();
        let tell = async {
            loop {
                let done = sent.load(Ordering::Relaxed).min(all);
                stage(&format!("pushing {} of {} MiB", done >> 20, all.div_ceil(1 << 20)));
                tokio::time::sleep(TELL).await;
            }
        };
        let outcomes = tokio::select! {
            outcomes = uploads => outcomes,
            () = tell => Vec::new(),
        };
        let mut pushed = Pushed { digest: self.digest().into(), sent_bytes: 0, present: 0, mounted: 0, resumed: 0 };
        for outcome in outcomes {
            let done = outcome?;
            pushed.sent_bytes += done.sent;
            pushed.present += usize::from(done.present);
            pushed.mounted += usize::from(done.mounted);
            pushed.resumed += done.resumed;
        }
        stage("writing the manifest");
        session.put_manifest(&self.manifest, &to.tag, how).await?;
        Ok(pushed)
    }
}

#[cfg(test)]
mod tests;
