//! Guests: those who come without a key, by a link, a token or an open port. A guest may use one desk, until its right ends.
//!
//! The right is looked at when the guest comes, and again while a connection of it stays open, as keys are.

use crate::app::App;
use crate::entrance::Caller;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// How often the right behind an open connection is looked at again.
const LOOK: Duration = Duration::from_secs(15);
/// A clock may be read a moment early.
const AFTER_END: Duration = Duration::from_millis(10);

type Holds = dyn Fn(App) -> BoxFuture<'static, bool> + Send + Sync;

/// What let somebody in without a key.
#[derive(Clone)]
pub(crate) struct Guest {
    /// The one that it may use.
    desk: String,
    /// When the right ends by itself, in milliseconds since 1970.
    until_ms: Option<i64>,
    /// Whether it still holds: it may have been taken back.
    holds: Arc<Holds>,
}

impl Guest {
    pub(crate) fn new<F>(desk: &str, until_ms: Option<i64>, holds: impl Fn(App) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Self { desk: desk.to_owned(), until_ms, holds: Arc::new(move |app| holds(app).boxed()) }
    }

    pub(crate) fn desk(&self) -> &str {
        &self.desk
    }

    fn left(&self) -> Option<Duration> {
        let left = self.until_ms?.saturating_sub(jiff::Timestamp::now().as_millisecond());
        Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
    }

    async fn is_over(&self, app: &App) -> bool {
        self.left() == Some(Duration::ZERO) || !(self.holds)(app.clone()).await
    }
}

/// Returns when the right by which a connection was opened is over: the key was revoked or has expired, the link has ended or was
/// taken back.
pub(crate) async fn right_ends(app: &App, caller: &Caller) -> String {
    loop {
        let left = caller.guest.as_ref().and_then(Guest::left);
        tokio::time::sleep(left.map_or(LOOK, |left| (left + AFTER_END).min(LOOK))).await;
        match &caller.guest {
            Some(guest) => {
                if guest.is_over(app).await {
                    return "the link or token is good no more".into();
                }
            }
            None => match app.fleet.who(caller.secret.reveal()).await {
                Ok(_) | Err(hotdesk_fleet::Error::Store(_)) => {}
                Err(e) => return e.to_string(),
            },
        }
    }
}
