//! Events as they happen, over a connection that may break.

use crate::error::reason;
use crate::transport::Client;
use crate::{Error, Result};
use bytes::{Buf, BytesMut};
use hotdesk_api::desk::Event;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use std::time::Duration;

/// An event is a few sentences; a line that never ends is none.
const LONGEST_LINE: usize = 1 << 20;
/// Between two tries after a connection broke without a single event.
const PAUSE: Duration = Duration::from_millis(500);

/// A stream of events that goes on where it broke off.
pub struct Events {
    client: Client,
    desk: Option<String>,
    after: Option<i64>,
    connection: Option<Connection>,
    fruitless: bool,
}

struct Connection {
    answer: Response,
    lines: Lines,
}

impl Events {
    pub(crate) fn new(client: Client, after: Option<i64>, desk: Option<String>) -> Self {
        Self { client, desk, after, connection: None, fruitless: false }
    }

    /// Connects, so that nothing is missed from here on.
    pub async fn open(&mut self) -> Result<()> {
        if self.connection.is_some() {
            return Ok(());
        }
        let mut call =
            self.client.call(Method::GET, &["v1", "events"]).header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(desk) = &self.desk {
            call = call.query("desk", desk);
        }
        if let Some(after) = self.after {
            call = call.query("after", after).header(HeaderName::from_static("last-event-id"), HeaderValue::from(after));
        }
        self.connection = Some(Connection { answer: call.send().await?, lines: Lines::default() });
        Ok(())
    }

    /// The next event. An error is final.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            self.open().await?;
            let Some(connection) = &mut self.connection else { continue };
            match connection.next().await {
                Ok(Some(data)) => {
                    let event: Event = serde_json::from_str(&data).map_err(|e| Error::Strange(e.to_string()))?;
                    self.after = Some(event.number);
                    self.fruitless = false;
                    return Ok(event);
                }
                // The fleet is restarted, or something between gave up: go on from the last number.
                Ok(None) | Err(_) => {
                    self.connection = None;
                    if self.fruitless {
                        tokio::time::sleep(PAUSE).await;
                    }
                    self.fruitless = true;
                }
            }
        }
    }
}

impl Connection {
    async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(data) = self.lines.next()? {
                return Ok(Some(data));
            }
            match self.answer.chunk().await.map_err(|e| Error::Broken(reason(&e)))? {
                Some(piece) => self.lines.buffer.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// The lines of `text/event-stream`; only `data` matters to us.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    data: Option<String>,
}

impl Lines {
    /// The data of the next event that is there as a whole.
    fn next(&mut self) -> Result<Option<String>> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Ok(Some(data));
                }
            } else if let Some(value) = line.strip_prefix(b"data:") {
                let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value)).into_owned();
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => self.data = Some(value),
                }
            }
        }
        match self.buffer.len() > LONGEST_LINE {
            true => Err(Error::Strange("an event has a line that does not end".into())),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn events_are_cut_anywhere() {
        let text = "id: 1\ndata: a\ndata: b\n\n: ping\n\nevent: x\r\ndata:c\r\n\r\ndata: unfinished";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.buffer.extend_from_slice(piece);
                while let Some(data) = lines.next().unwrap() {
                    found.push(data);
                }
            }
            assert_eq!(found, ["a\nb", "c"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::default();
        lines.buffer.resize(super::LONGEST_LINE + 1, b'x');
        assert!(lines.next().is_err());
    }
}
