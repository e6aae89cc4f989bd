//! What a desk tells of itself: health, windows, clipboard, signs of work.

use super::Desk;
use crate::Result;
use hotdesk_api::access::{Act, ActReply, FindReply, FindRequest};
use hotdesk_api::activity::Activity;
use hotdesk_api::health::{Health, Info, Logs};
use hotdesk_api::window::{NewArea, WaitForWindow, Waited, Window, WindowChange, WindowList};
use reqwest::Method;
use std::time::Duration;

impl Desk {
    pub async fn health(&self) -> Result<Health> {
        self.call(Method::GET, &["health"]).answer().await
    }

    pub async fn info(&self) -> Result<Info> {
        self.call(Method::GET, &["info"]).answer().await
    }

    pub async fn activity(&self) -> Result<Activity> {
        self.call(Method::GET, &["activity"]).answer().await
    }

    /// What the parts of its session wrote.
    pub async fn logs(&self) -> Result<Logs> {
        self.call(Method::GET, &["logs"]).answer().await
    }

    pub async fn windows(&self) -> Result<Vec<Window>> {
        self.call(Method::GET, &["windows"]).answer::<WindowList>().await.map(|list| list.windows)
    }

    pub async fn wait_for_window(&self, what: &WaitForWindow) -> Result<Waited> {
        let limit = Duration::from_millis(what.limit_ms.unwrap_or(10_000).into()) + Duration::from_secs(30);
        self.call(Method::POST, &["windows", "wait"]).json(what)?.idempotent().within(Some(limit)).answer().await
    }

    pub async fn change_window(&self, window: u32, change: WindowChange) -> Result<()> {
        let change = serde_json::to_value(change).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
        self.call(Method::POST, &["windows", &window.to_string(), &change]).done().await
    }

    pub async fn place_window(&self, window: u32, area: &NewArea) -> Result<()> {
        self.call(Method::PUT, &["windows", &window.to_string(), "area"]).json(area)?.done().await
    }

    pub async fn find_elements(&self, what: &FindRequest) -> Result<FindReply> {
        self.call(Method::POST, &["accessibility", "find"]).json(what)?.idempotent().answer().await
    }

    pub async fn act_on(&self, act: &Act) -> Result<ActReply> {
        self.call(Method::POST, &["accessibility", "act"]).json(act)?.answer().await
    }

    pub async fn clipboard(&self) -> Result<String> {
        self.call(Method::GET, &["clipboard"]).text().await
    }

    pub async fn set_clipboard(&self, text: &str) -> Result<()> {
        self.call(Method::PUT, &["clipboard"]).bytes("text/plain; charset=utf-8", text.to_owned().into()).done().await
    }
}
