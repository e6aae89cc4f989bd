//! Events as they happen, over a connection that may break.

use crate::error::reason;
use crate::transport::Client;
use crate::{Error, Result};
use hotdesk_api::desk::Event;
use hotdesk_desk_client::Parser;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use std::time::Duration;

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
    parser: Parser,
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
        self.connection = Some(Connection { answer: call.send().await?, parser: Parser::default() });
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
            let endless = |_| Error::Strange("an event does not end".into());
            if let Some(data) = self.parser.next_event().map_err(endless)? {
                return Ok(Some(data));
            }
            match self.answer.chunk().await.map_err(|e| Error::Broken(reason(&e)))? {
                Some(piece) => self.parser.push(&piece),
                None => return Ok(None),
            }
        }
    }
}
