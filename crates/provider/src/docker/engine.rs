//! The connection to the Engine: found when it is there, bounded in time, its errors told in our words.

use super::NAME;
use crate::{Error, Result};
use bollard::errors::Error as EngineError;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Questions that the Engine answers from memory, unless it is writing the layers of an image: then they wait for its database.
pub(super) const ORDINARY: Duration = Duration::from_secs(60);
/// Making, starting and ending containers: a fraction of a second, but more than a minute was seen on a machine whose disk
/// was busy with the layers of others.
pub(super) const STARTING: Duration = Duration::from_secs(180);
/// Moving gigabytes.
pub(super) const MOVING: Duration = Duration::from_secs(3600);
/// How long a first word may take, before the Engine counts as away.
const GREETING: Duration = Duration::from_secs(5);
/// Where an Engine usually listens.
const USUAL: &str = "unix:///var/run/docker.sock";

pub(super) struct Engine {
    pub(super) host: String,
    client: OnceCell<bollard::Docker>,
}

impl Engine {
    pub(super) fn new(host: Option<String>) -> Result<Self> {
        let host = host.or_else(|| std::env::var("DOCKER_HOST").ok().filter(|h| !h.is_empty())).unwrap_or_else(|| USUAL.into());
        let host = if host.starts_with('/') { format!("unix://{host}") } else { host };
        let near = host.starts_with("unix://")
            || ["tcp://127.", "tcp://localhost", "http://127.", "http://localhost"].iter().any(|h| host.starts_with(h));
        if !near {
            return Err(Error::Unsupported {
                provider: NAME,
                what: format!("the Engine at {host}"),
                reason: "desks are reached on the Engine's own bridges or loopback, so it must run on this machine".into(),
            });
        }
        Ok(Self { host, client: OnceCell::new() })
    }

    /// The Engine, with the version of its API agreed upon.
    async fn client(&self) -> Result<bollard::Docker> {
        let connect = async || {
            let docker = bollard::Docker::connect_with_host(&self.host).map_err(|e| self.error(e))?.with_timeout(MOVING);
            match tokio::time::timeout(GREETING, docker.negotiate_version()).await {
                Ok(answer) => answer.map_err(|e| self.error(e)),
                Err(_) => Err(self.away(&format!("no answer in {} s", GREETING.as_secs()))),
            }
        };
        self.client.get_or_try_init(connect).await.cloned()
    }

    /// Asks, and waits so long at most.
    pub(super) async fn ask<T>(
        &self,
        limit: Duration,
        question: impl AsyncFnOnce(bollard::Docker) -> Result<T, EngineError>,
    ) -> Result<T> {
        let docker = self.client().await?;
        match tokio::time::timeout(limit, question(docker)).await {
            Ok(answer) => answer.map_err(|e| self.error(e)),
            Err(_) => Err(self.away(&format!("no answer in {} s", limit.as_secs()))),
        }
    }

    fn away(&self, reason: &str) -> Error {
        Error::Unavailable { provider: NAME, reason: format!("the Engine at {}: {reason}", self.host) }
    }

    fn error(&self, error: EngineError) -> Error {
        match error {
            EngineError::DockerResponseServerError { status_code, message } => of_answer(status_code, message),
            EngineError::DockerStreamError { error } => of_answer(500, error),
            EngineError::DockerContainerWaitError { error, .. } => Error::Failed(error),
            EngineError::SocketNotFoundError(path) => self.away(&format!("there is no socket at {path}; does dockerd run?")),
            EngineError::HyperLegacyError { err } => self.away(&chain(&err)),
            EngineError::HyperResponseError { err } => self.away(&chain(&err)),
            EngineError::IOError { err } if err.kind() == std::io::ErrorKind::StorageFull => Error::Full(err.to_string()),
            EngineError::IOError { err } => self.away(&err.to_string()),
            EngineError::RequestTimeoutError => self.away("it does not answer"),
            other => Error::Failed(other.to_string()),
        }
    }
}

fn of_answer(status: u16, message: String) -> Error {
    let lower = message.to_lowercase();
    if lower.contains("no space left") || lower.contains("disk quota exceeded") {
        return Error::Full(message);
    }
    if status == 404 { Error::NotFound(message) } else { Error::Failed(message) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// What does not exist is already as it should be.
pub(super) fn gone_is_good(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::NotFound(_)) => Ok(()),
        other => other,
    }
}

/// Likewise for a look: what does not exist is no error, but nothing.
pub(super) fn gone_is_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(e) => Err(e),
    }
}
