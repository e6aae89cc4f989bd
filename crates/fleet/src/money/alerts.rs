//! Calls the webhooks of alerts, in the background, until they answer.
//!
//! One orchestrator at a time does it. An alert is delivered at least once: a receiver that wants to be sure looks at its `id`.

use super::{Inner, Money};
use crate::error::{Error, Result};
use crate::store::Alert;
use futures_util::StreamExt;
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A webhook answers in this time or is called again.
const ANSWER: Duration = Duration::from_secs(10);
/// First pause after a call that failed; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// After that nobody cares any more.
const GIVE_UP: Duration = Duration::from_secs(24 * 3600);
/// Alerts of other orchestrators are looked for so often.
const LOOK: Duration = Duration::from_secs(5);
/// The right to deliver; longer than a round of calls takes.
const LEAD_MS: i64 = 60_000;
/// Calls at the same time.
const CALLS: usize = 16;

impl Money {
    /// Starts delivering; ends when the last clone is dropped. `owner` names this orchestrator among others.
    pub fn deliver(&self, owner: &str) -> Result<()> {
        // An error says that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(ANSWER)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("hotdesk/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::Invalid(format!("no client for webhooks: {e}")))?;
        tokio::spawn(deliver(Arc::downgrade(&self.inner), self.inner.news.clone(), client, owner.to_owned()));
        Ok(())
    }
}

/// When an alert may be tried again, and the pause after that.
type Tries = HashMap<String, (Instant, Duration)>;

async fn deliver(inner: Weak<Inner>, news: Arc<Notify>, client: reqwest::Client, owner: String) {
    let mut tries = Tries::new();
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if let Err(error) = round(&strong, &client, &owner, &mut tries).await {
            tracing::debug!(%error, "alerts could not be read");
        }
        // While it waits, it keeps nobody alive.
        drop(strong);
        let next = tries.values().map(|(at, _)| *at).min().unwrap_or_else(|| Instant::now() + LOOK).min(Instant::now() + LOOK);
        tokio::select! {
            () = news.notified() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

async fn round(inner: &Inner, client: &reqwest::Client, owner: &str, tries: &mut Tries) -> Result<()> {
    let alerts = inner.store.alerts().await?;
    tries.retain(|id, _| alerts.iter().any(|alert| alert.id == *id));
    if alerts.is_empty() || !inner.store.lead("alerts", owner, LEAD_MS).await? {
        return Ok(());
    }
    let now = Instant::now();
    let mut due = alerts;
    due.retain(|alert| tries.get(&alert.id).is_none_or(|(at, _)| *at <= now));
    let calls = futures_util::stream::iter(due.into_iter().map(|alert| async { (call(client, &alert).await, alert) }));
    let mut answers = calls.buffer_unordered(CALLS);
    while let Some((answer, alert)) = answers.next().await {
        let old = Timestamp::now().as_millisecond() - alert.at_ms > i64::try_from(GIVE_UP.as_millis()).unwrap_or(i64::MAX);
        match answer {
            Ok(()) => inner.store.alert_done(&alert.id).await?,
            Err(why) if old => {
                tracing::error!(alert = alert.id, why, "the webhook of a budget did not take an alert for a day; given up");
                inner.store.alert_done(&alert.id).await?;
            }
            Err(why) => {
                let pause = tries.get(&alert.id).map_or(PAUSE, |(_, pause)| (*pause * 2).min(LONGEST_PAUSE));
                tracing::warn!(alert = alert.id, why, retry_s = pause.as_secs(), "the webhook of a budget did not take an alert");
                tries.insert(alert.id, (Instant::now() + pause, pause));
            }
        }
    }
    Ok(())
}

/// The address may hold a secret, so the error does not.
async fn call(client: &reqwest::Client, alert: &Alert) -> std::result::Result<(), String> {
    let answer = client.post(&alert.webhook).json(&alert.message).send().await.map_err(|e| e.without_url().to_string())?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status())) }
}
