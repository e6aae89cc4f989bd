//! One desk: its life here, what is inside of it in the modules below.

pub(crate) mod files;
mod inside;
mod lease;
pub(crate) mod process;
pub(crate) mod screen;
pub(crate) mod terminal;
mod trace;

use crate::fleet::{AFTER_WAIT, asked, idempotency_key};
use crate::socket::Tunnel;
use crate::transport::{Call, Client};
use crate::wire::Done;
use crate::{Error, Result};
use hotdesk_api::calls::{DeskUsage, ExtendDesk, ForkDesk, NewSnapshot};
use hotdesk_api::desk::{DeskChange, Snapshot};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use std::time::Duration;

/// The longest wait that the fleet grants.
const WAIT: Duration = Duration::from_secs(60);
/// A desk's whole memory and disk are written down.
const SNAPSHOT: Duration = Duration::from_secs(600);

/// One desk of a fleet, by id or name. Cheap to clone; nothing is sent until something is asked of it.
#[derive(Debug, Clone)]
pub struct Desk {
    client: Client,
    id: String,
}

impl Desk {
    pub(crate) fn new(client: Client, id: &str) -> Self {
        Self { client, id: id.to_owned() }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub async fn get(&self) -> Result<hotdesk_api::desk::Desk> {
        self.call(Method::GET, &[]).answer().await
    }

    pub async fn change(&self, change: &DeskChange) -> Result<hotdesk_api::desk::Desk> {
        self.call(Method::PATCH, &[]).json(change)?.idempotent().answer().await
    }

    /// Deletes it and waits until nothing is left of it.
    pub async fn delete(&self) -> Result<hotdesk_api::desk::Desk> {
        self.delete_within(WAIT).await.map(|done| done.desk)
    }

    pub async fn delete_within(&self, wait: Duration) -> Result<Done> {
        step(self.call(Method::DELETE, &[]), wait).await
    }

    pub async fn start(&self) -> Result<hotdesk_api::desk::Desk> {
        over(self.start_within(WAIT).await)
    }

    pub async fn start_within(&self, wait: Duration) -> Result<Done> {
        step(self.call(Method::POST, &["start"]).idempotent(), wait).await
    }

    pub async fn stop(&self) -> Result<hotdesk_api::desk::Desk> {
        over(self.stop_within(WAIT).await)
    }

    pub async fn stop_within(&self, wait: Duration) -> Result<Done> {
        step(self.call(Method::POST, &["stop"]).idempotent(), wait).await
    }

    /// Back to the template. Never sent twice: the second would throw away what was done after the first.
    pub async fn reset(&self) -> Result<hotdesk_api::desk::Desk> {
        over(self.reset_within(WAIT).await)
    }

    pub async fn reset_within(&self, wait: Duration) -> Result<Done> {
        step(self.call(Method::POST, &["reset"]), wait).await
    }

    pub async fn archive(&self) -> Result<hotdesk_api::desk::Desk> {
        over(self.archive_within(WAIT).await)
    }

    pub async fn archive_within(&self, wait: Duration) -> Result<Done> {
        step(self.call(Method::POST, &["archive"]).idempotent(), wait).await
    }

    /// Moves the end of its life.
    pub async fn extend(&self, by: Duration) -> Result<hotdesk_api::desk::Desk> {
        self.call(Method::POST, &["extend"]).json(&ExtendDesk { by_s: by.as_secs() })?.answer().await
    }

    pub async fn snapshot(&self, how: &NewSnapshot) -> Result<Snapshot> {
        self.call(Method::POST, &["snapshot"]).json(how)?.within(Some(SNAPSHOT)).answer().await
    }

    pub async fn fork(&self, how: &ForkDesk) -> Result<hotdesk_api::desk::Desk> {
        over(self.fork_within(how, WAIT).await)
    }

    pub async fn fork_within(&self, how: &ForkDesk, wait: Duration) -> Result<Done> {
        let key = HeaderValue::from_str(&idempotency_key()).map_err(|e| Error::Strange(e.to_string()))?;
        // The key is sent for the log's sake; a fork is not repeated, because the desk has gone on meanwhile.
        let mut body = asked(&how.desk)?;
        if let (Some(memory), Some(fields)) = (how.memory, body.as_object_mut()) {
            fields.insert("memory".into(), memory.into());
        }
        step(self.call(Method::POST, &["fork"]).json(&body)?.header(HeaderName::from_static("idempotency-key"), key), wait).await
    }

    pub async fn usage(&self) -> Result<DeskUsage> {
        self.call(Method::GET, &["usage"]).answer().await
    }

    /// The last lines that the desk's server printed.
    pub async fn console(&self, lines: usize) -> Result<String> {
        self.call(Method::GET, &["console"]).query("lines", lines).text().await
    }

    /// A TCP connection to a port of the desk.
    pub async fn port(&self, port: u16) -> Result<Tunnel> {
        self.client.tunnel(&self.path(&["ports", &port.to_string()])).await
    }

    /// Any request to the desk that has no name here: `["screenshot"]` is its `/v1/screenshot`.
    pub fn call(&self, method: Method, path: &[&str]) -> Call {
        self.client.call(method, &self.path(path))
    }

    pub(crate) fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        ["v1", "desks", &self.id].iter().chain(rest).copied().collect()
    }
}

async fn step(call: Call, wait: Duration) -> Result<Done> {
    let call = call.query("wait", wait.as_secs()).within(Some(wait + AFTER_WAIT));
    let (status, desk) = call.answer_with_status().await?;
    Ok(Done { desk, over: status != StatusCode::ACCEPTED })
}

fn over(done: Result<Done>) -> Result<hotdesk_api::desk::Desk> {
    match done? {
        Done { desk, over: true } => Ok(desk),
        Done { .. } => Err(Error::Late(WAIT)),
    }
}
