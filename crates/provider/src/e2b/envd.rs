//! E2B's own daemon in a sandbox (port 49983), by which files get in.

use super::sandbox::Access;
use super::{NAME, Team};
use crate::cloud::{Fault, Kind, Patience, escaped};
use crate::{Address, Error, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use std::time::Duration;

const PORT: u16 = 49983;
const ANSWER: Duration = Duration::from_secs(20);
const LARGEST_ANSWER: usize = 1 << 20;

impl Team {
    /// Writes a small file into a sandbox, as its user.
    pub(super) async fn put(&self, access: &Access, path: &str, text: &str) -> Result<()> {
        let web = self.web(access, PORT)?;
        let address = Address::Web(web.clone());
        let mut tries = Patience::default().begin();
        let sent = loop {
            let late = || Fault::new(NAME, Kind::Fault, "the sandbox's daemon did not answer in 20 s");
            let sent = tokio::time::timeout(ANSWER, self.upload(access, &web.authority(), &address, path, text)).await;
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

    async fn upload(&self, access: &Access, host: &str, address: &Address, path: &str, text: &str) -> Result<(), Fault> {
        let failed =
            |e: &dyn std::fmt::Display| Fault::new(NAME, Kind::Fault, format!("the sandbox's daemon can't be reached: {e}"));
        // Not in what is sent: it is random.
        let boundary = format!("hotdesk-{}", crate::cloud::fresh_token());
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\nContent-Type: application/octet-stream\r\n\r\n{text}\r\n--{boundary}--\r\n"
        );
        let mut request = Request::post(format!("/files?path={}&username=user", escaped(path)))
            .header("host", host)
            .header("content-type", format!("multipart/form-data; boundary={boundary}"))
            .header("content-length", body.len());
        if let Some(token) = &access.envd_access_token {
            request = request.header("x-access-token", token);
        }
        if let Address::Web(web) = address {
            for (name, value) in &web.headers {
                request = request.header(name, &value.0);
            }
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| failed(&e))?;
        let stream = address.connect().await.map_err(|e| failed(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
        let connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
        let answer = sender.send_request(request).await.map_err(|e| failed(&e))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.map_err(|e| failed(&e))?.to_bytes();
        drop(connection);
        if (200..300).contains(&status) {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&body).chars().take(300).collect::<String>();
        Err(Fault {
            status: Some(status),
            ..Fault::new(NAME, Fault::kind_of(status), format!("the sandbox's daemon: {message}"))
        })
    }
}
