//! A session that was there before us: nothing of it is started or healed, all of it is watched.

use super::board::PartHandle;
use super::witness::Sight;
use crate::place::Place;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often a bus that is not there is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Reports the display and its window manager as the witness sees them.
pub(crate) async fn watch_display(
    mut display: PartHandle,
    mut window_manager: PartHandle,
    mut sight: watch::Receiver<Sight>,
    stop: CancellationToken,
) {
    let mut before = Sight::default();
    loop {
        let now = *sight.borrow_and_update();
        match (before.display, now.display) {
            (false, true) => display.running(None, None, Some("attached".into())),
            (true, false) => display.waiting("the display is gone; the desk waits for it to come back"),
            _ => {}
        }
        match (before.window_manager, now.window_manager) {
            (_, Some(_)) if before.window_manager != now.window_manager => {
                window_manager.running(None, None, Some("attached".into()));
            }
            (_, None) if now.display && (before.window_manager.is_some() || !before.display) => {
                window_manager.absent("the display has none");
            }
            _ => {}
        }
        before = now;
        tokio::select! {
            () = stop.cancelled() => return,
            changed = sight.changed() => if changed.is_err() { return },
        }
    }
}

/// Reports the session bus: there while a connection to it lives.
pub(crate) async fn watch_bus(mut part: PartHandle, place: Arc<Place>, stop: CancellationToken) {
    let life = async {
        loop {
            let connected = match zbus::connection::Builder::address(place.bus.as_str()) {
                Ok(builder) => builder.build().await,
                Err(e) => Err(e),
            };
            match connected {
                Ok(connection) => {
                    part.running(None, None, Some("attached".into()));
                    let mut messages = zbus::MessageStream::from(&connection);
                    while let Some(Ok(_)) = futures_util::StreamExt::next(&mut messages).await {}
                    part.waiting("the session bus is gone; the desk waits for it to come back");
                }
                Err(e) => part.absent(&format!("{}: {e}", place.bus)),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = life => {}
    }
}
