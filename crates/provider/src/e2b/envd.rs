//! E2B's own daemon in a sandbox (port 49983), by which files get in.

use super::sandbox::Access;
use super::{NAME, Team};
use crate::cloud::{Fault, Kind, Patience, escaped};
use crate::door::{Address, Hidden, Stream, Web};
use crate::{Error, Result};
use hotdesk_desk_client::Connect;
use http::{HeaderMap, Request};
use std::io;
use std::time::Duration;

const PORT: u16 = 49983;
const ANSWER: Duration = Duration::from_secs(20);

impl Team {
    /// Writes a small file into a sandbox, as its user.
    pub(super) async fn put(&self, access: &Access, path: &str, text: &str) -> Result<()> {
        let web = self.web(access, PORT)?;
        let daemon = Daemon { web: &web, token: access.envd_access_token.as_deref() };
        let mut tries = Patience::default().begin();
        let sent = loop {
            let late = || Fault::new(NAME, Kind::Fault, "the sandbox's daemon did not answer in 20 s");
            let sent = tokio::time::timeout(ANSWER, upload(&daemon, path, text)).await;
            match sent.unwrap_or_else(|_| Err(late())) {
                Err(fault) if fault.passes() => match tries.pause(fault).await {
                    Ok(()) => {}
                    Err(fault) => break Err(fault),
                },
                other => break other,
            }
        };
        sent.map_err(|fault| match fault.kind {
            Kind::Fault => Error::NotReady(format!("its settings could not be sent in: {fault}")),
            _ => fault.into(),
        })
    }
}

/// The daemon of one sandbox, and what opens it.
struct Daemon<'a> {
    web: &'a Web,
    token: Option<&'a str>,
}

impl Connect for Daemon<'_> {
    type Stream = Stream;

    async fn connect(&self) -> io::Result<Stream> {
        Address::Web(self.web.clone()).connect().await
    }

    fn open(&self, headers: &mut HeaderMap) {
        let edge = self.web.headers.iter().map(|(name, Hidden(value))| (name.as_str(), value.as_str()));
        let own = self.token.map(|token| ("x-access-token", token));
        hotdesk_desk_client::headers::put(headers, [("host", &*self.web.authority())].into_iter().chain(own).chain(edge));
    }
}

async fn upload(daemon: &Daemon<'_>, path: &str, text: &str) -> Result<(), Fault> {
    let failed = |e: &dyn std::fmt::Display| Fault::new(NAME, Kind::Fault, format!("the sandbox's daemon can't be reached: {e}"));
    // Not in what is sent: it is random.
    let boundary = format!("hotdesk-{}", crate::cloud::fresh_token());
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\nContent-Type: application/octet-stream\r\n\r\n{text}\r\n--{boundary}--\r\n"
    );
    let request = Request::post(format!("/files?path={}&username=user", escaped(path)))
        .header("content-type", format!("multipart/form-data; boundary={boundary}"))
        .body(body.into())
        .map_err(|e| failed(&e))?;
    let client = daemon.client();
    let answer = client.exchange(request).await.map_err(|e| failed(&e))?;
    let status = answer.status().as_u16();
    let body = client.read(answer).await.map_err(|e| failed(&e))?.bytes;
    if (200..300).contains(&status) {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&body).chars().take(300).collect::<String>();
    Err(Fault { status: Some(status), ..Fault::new(NAME, Fault::kind_of(status), format!("the sandbox's daemon: {message}")) })
}
