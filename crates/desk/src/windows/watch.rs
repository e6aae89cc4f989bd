//! Waiting for windows: looks again whenever the window manager or a window changed something.

use super::ewmh::{Ewmh, WINDOW_MANAGER};
use crate::error::{Error, Result};
use crate::place::Display;
use crate::x11::{ANSWER_LIMIT, Client, next_event};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;

/// How soon a wait that nobody waits for any more ends.
const NOTICES_LEAVING: Duration = Duration::from_millis(500);

/// Looks until there is an answer; nothing if the limit comes first. Has its own thread and connection.
pub(super) async fn watch<R: Send + 'static>(
    display: Display,
    limit: Duration,
    mut look: impl FnMut(&Ewmh) -> Result<Option<R>> + Send + 'static,
) -> Result<Option<R>> {
    let here = Arc::new(AtomicBool::new(true));
    let _leave = Leave(here.clone());
    let deadline = Instant::now() + limit;
    let work = move || {
        let ewmh = Ewmh::open(Client::connect(&display)?)?;
        ewmh.listen_to_root()?;
        while here.load(Ordering::Relaxed) {
            // Listen first, then look: what happens between the two is seen.
            match ewmh.listen_to_windows().and_then(|()| look(&ewmh)) {
                Ok(Some(answer)) => return Ok(Some(answer)),
                Ok(None) => {}
                // It is being healed; its return is an event.
                Err(Error::Unavailable { part: WINDOW_MANAGER, .. }) => {}
                Err(other) => return Err(other),
            }
            while here.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now >= deadline {
                    return Ok(None);
                }
                let connection = &ewmh.as_ref().connection;
                if next_event(connection, deadline.min(now + NOTICES_LEAVING))?.is_some() {
                    // One look for a whole burst.
                    while connection.poll_for_event()?.is_some() {}
                    break;
                }
            }
        }
        Ok(None)
    };
    match tokio::time::timeout(limit + ANSWER_LIMIT, tokio::task::spawn_blocking(work)).await {
        Ok(answer) => answer.map_err(Error::internal)?,
        Err(_) => Err(Error::display_down("it does not answer")),
    }
}

/// Says to the thread that its client has left.
struct Leave(Arc<AtomicBool>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
