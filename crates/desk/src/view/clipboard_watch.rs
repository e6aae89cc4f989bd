//! Tells viewers when the desk's clipboard changes hands.
//!
//! One thread for all viewers of a desk, which lives only while somebody listens.

use crate::error::Result;
use crate::place::Display;
use crate::x11::{Client, next_event};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use x11rb::protocol::Event;
use x11rb::protocol::xfixes::{ConnectionExt as _, SelectionEventMask};
use x11rb::protocol::xproto::ConnectionExt as _;

/// How often the thread looks whether anybody still listens.
const CHECK: Duration = Duration::from_secs(5);

/// While the display is down, how often it is looked for.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(super) struct ClipboardWatch(Arc<Mutex<Option<watch::Sender<u64>>>>);

impl ClipboardWatch {
    /// A number that changes whenever the clipboard gets another owner or content.
    pub(super) fn subscribe(&self, display: &Display) -> watch::Receiver<u64> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(changes) = &*slot {
            return changes.subscribe();
        }
        let (changes, receiver) = watch::channel(0);
        let (this, display, sender) = (self.clone(), display.clone(), changes.clone());
        let started = std::thread::Builder::new().name("clipboard-watch".into()).spawn(move || this.run(&display, &sender));
        match started {
            Ok(_) => *slot = Some(changes),
            Err(e) => tracing::warn!("viewers will not hear of the clipboard: {e}"),
        }
        receiver
    }

    fn run(&self, display: &Display, changes: &watch::Sender<u64>) {
        loop {
            if let Err(reason) = follow(display, changes) {
                tracing::debug!(%reason, "the clipboard is not watched");
                std::thread::sleep(RETRY);
            }
            // Nobody can subscribe between the look and the end.
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if changes.receiver_count() == 0 {
                *slot = None;
                return;
            }
        }
    }
}

/// Passes changes on until nobody listens.
fn follow(display: &Display, changes: &watch::Sender<u64>) -> Result<()> {
    let Client { connection, root } = Client::connect(display)?;
    connection.xfixes_query_version(5, 0)?.reply()?;
    let clipboard = connection.intern_atom(false, b"CLIPBOARD")?.reply()?.atom;
    connection.xfixes_select_selection_input(root, clipboard, SelectionEventMask::SET_SELECTION_OWNER)?;
    while changes.receiver_count() > 0 {
        if let Some(Event::XfixesSelectionNotify(_)) = next_event(&connection, Instant::now() + CHECK)? {
            changes.send_modify(|n| *n = n.wrapping_add(1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clipboard::{Clipboard, Selection};
    use crate::x11::tests::TestDisplay;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn changes_are_heard_also_of_a_display_that_came_back() {
        let mut display = TestDisplay::bare();
        let watch = ClipboardWatch::default();
        let mut changes = watch.subscribe(&display.place.display);
        for _ in 0..2 {
            // It may not listen yet, so say it until it is heard.
            let heard = async {
                loop {
                    let clipboard = Clipboard::new(display.place.clone());
                    clipboard.set_text(Selection::Clipboard, "text".into()).await.unwrap();
                    if tokio::time::timeout(Duration::from_millis(300), changes.changed()).await.is_ok() {
                        return;
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(30), heard).await.expect("the change was heard");
            display.restart();
        }
    }
}
