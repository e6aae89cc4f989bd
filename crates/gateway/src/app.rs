//! What every request can use.

use crate::audit::AuditLog;
use crate::buffers::Buffers;
use crate::config::Config;
use crate::dialects::Memories;
use crate::error::{Error, Result};
use crate::origin::Pages;
use crate::proxy::Pool;
use crate::rates::Limits;
use crate::seal::{Seal, Seals};
use crate::session::Sessions;
use axum::http::Uri;
use hotdesk_fleet::Fleet;
use hotdesk_image::Library;
use std::ops::Deref;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) fleet: Fleet,
    pub(crate) images: Arc<Library>,
    pub(crate) config: Config,
    /// Connections to desks.
    pub(crate) pool: Arc<Pool>,
    pub(crate) limits: Limits,
    pub(crate) pages: Pages,
    pub(crate) audit: AuditLog,
    /// Connections that were upgraded and live on without a request.
    pub(crate) tunnels: TaskTracker,
    /// The gateway is about to end.
    pub(crate) closing: CancellationToken,
    pub(crate) public: Option<Public>,
    pub(crate) usage: crate::metrics::UsageCache,
    seals: Seals,
    /// Of browsers.
    pub(crate) sessions: Sessions,
    /// Answers that are held while they are put into other words.
    pub(crate) buffers: Buffers,
    /// What dialects remember.
    pub(crate) memories: Memories,
}

/// Under which clients know us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Public {
    pub(crate) https: bool,
    /// With the port, if it is not the usual one.
    pub(crate) host: String,
    /// Without a slash at its end.
    pub(crate) path: String,
}

impl App {
    pub(crate) fn new(config: Config, fleet: Fleet, images: Arc<Library>) -> Result<Self> {
        let public = config.public_url.as_deref().map(Public::read).transpose()?;
        let mut names = config.names.clone();
        names.extend(public.iter().map(|public| public.host.clone()));
        crate::metrics::install();
        Ok(Self(Arc::new(Parts {
            pool: Arc::new(Pool::default()),
            limits: Limits::new(&config.rates),
            pages: Pages::new(names, config.origins.clone()),
            audit: AuditLog::new(fleet.clone()),
            tunnels: TaskTracker::new(),
            closing: CancellationToken::new(),
            usage: crate::metrics::UsageCache::default(),
            seals: Seals::default(),
            sessions: Sessions::default(),
            buffers: Buffers::default(),
            memories: Memories::default(),
            public,
            fleet,
            images,
            config,
        })))
    }

    /// By which tokens of this fleet are made and checked.
    pub(crate) async fn seal(&self) -> hotdesk_fleet::Result<&Seal> {
        self.seals.of(&self.fleet).await
    }
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Public {
    fn read(text: &str) -> Result<Self> {
        let wrong = || Error::Settings(format!("`{text}` is no public URL: write `https://desks.example.com`"));
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        if uri.query().is_some() {
            return Err(wrong());
        }
        let host = uri.authority().ok_or_else(wrong)?.as_str().to_owned();
        Ok(Self { https, host, path: uri.path().trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_urls_are_read() {
        let public = Public::read("https://desks.example.com:8443/fleet/").unwrap();
        assert_eq!(public, Public { https: true, host: "desks.example.com:8443".into(), path: "/fleet".into() });
        for text in ["desks.example.com", "ftp://x", "https://", "/x", "https://x/?q"] {
            assert!(Public::read(text).is_err(), "{text}");
        }
    }
}
