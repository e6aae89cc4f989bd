//! Eyes and hands.

use super::Desk;
use crate::error::reason;
use crate::{Error, Result};
use bytes::Bytes;
use hotdesk_api::Action;
use hotdesk_api::action::{Batch, Performed};
use hotdesk_api::screen::{ScreenInfo, ScreenshotQuery};
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use std::time::Duration;

/// A batch may take two minutes, and then waits for a quiet screen.
const BATCH: Duration = Duration::from_secs(180);

/// A picture of the screen.
#[derive(Debug, Clone)]
pub struct Shot {
    /// `image/png`, …
    pub content_type: String,
    pub bytes: Bytes,
}

impl Desk {
    pub async fn screen(&self) -> Result<ScreenInfo> {
        self.call(Method::GET, &["screen"]).answer().await
    }

    pub async fn screenshot(&self, query: &ScreenshotQuery) -> Result<Shot> {
        let answer = self.call(Method::GET, &["screenshot"]).queries(query).send().await?;
        let content_type =
            answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("image/png").to_owned();
        let bytes = answer.bytes().await.map_err(|e| Error::Broken(reason(&e)))?;
        Ok(Shot { content_type, bytes })
    }

    /// Does a list of actions. Never sent twice, whatever happens to the connection.
    pub async fn input(&self, batch: &Batch) -> Result<Performed> {
        let call = self.call(Method::POST, &["input"]).json(batch)?.header(ACCEPT, HeaderValue::from_static("application/json"));
        call.once().within(Some(BATCH)).answer().await
    }

    /// The same without waiting or looking.
    pub async fn act(&self, actions: Vec<Action>) -> Result<Performed> {
        self.input(&Batch { actions, settle: None, screenshot: None }).await
    }
}
