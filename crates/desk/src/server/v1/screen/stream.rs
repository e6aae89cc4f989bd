//! What changes on the screen, over a WebSocket.
//!
//! Nothing queues up: the next look at the screen happens after the last message was sent, and it shows all that changed meanwhile.

use super::checked;
use crate::error::{Error, Result};
use crate::screen::{Format, Screen, Seen};
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::Response;
use hotdesk_api::Problem;
use hotdesk_api::screen::{ScreenEvent, StreamPixels, StreamQuery};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Streams at once. Each may hold a copy of the screen for a moment.
const MOST: usize = 32;
static FREE: Semaphore = Semaphore::const_new(MOST);

/// Pause before looking again for a display that is down.
const AGAIN: Duration = Duration::from_millis(250);

/// A reader that takes no message for so long is gone.
const STUCK: Duration = Duration::from_secs(30);

const FPS: f32 = 10.0;
const QUALITY: u8 = 70;

/// What changes on the screen, as it changes.
///
/// A WebSocket. Each text message is a `ScreenEvent`; with `pixels=png` or `pixels=jpeg`, every `change` is followed by one binary message for
/// each of its regions, in their order: the picture of that region, without the pointer.
#[utoipa::path(get, path = "/v1/screen/stream", tag = "screen", params(StreamQuery), responses(
    (status = 101, description = "The stream begins.", body = ScreenEvent),
    (status = 400, body = Problem),
    (status = 503, description = "Too many streams are open.", body = Problem),
))]
pub(super) async fn stream(
    State(screen): State<Screen>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let query = checked(query)?;
    let settings = Settings::new(&query)?;
    let upgrade = upgrade.map_err(|e| Error::Invalid(format!("this is a WebSocket: {}", e.body_text())))?;
    let permit = FREE.try_acquire().map_err(|_| Error::Unavailable {
        part: "the stream of changes",
        reason: format!("{MOST} streams are open, which is the most"),
    })?;
    Ok(upgrade.on_upgrade(move |socket| run(socket, screen, settings, permit)))
}

struct Settings {
    pause: Duration,
    pixels: Option<Format>,
    quality: u8,
}

impl Settings {
    fn new(query: &StreamQuery) -> Result<Self> {
        let fps = query.max_fps.unwrap_or(FPS);
        if !(0.1..=60.0).contains(&fps) {
            return Err(Error::Invalid(format!("max_fps is {fps}, but must be between 0.1 and 60")));
        }
        let quality = query.quality.unwrap_or(QUALITY);
        if !(1..=100).contains(&quality) {
            return Err(Error::Invalid(format!("quality is {quality}, but must be between 1 and 100")));
        }
        let pixels = match query.pixels {
            StreamPixels::None => None,
            StreamPixels::Png => Some(Format::Png),
            StreamPixels::Jpeg => Some(Format::Jpeg),
        };
        Ok(Self { pause: Duration::from_secs_f32(1.0 / fps), pixels, quality })
    }
}

async fn run(mut socket: WebSocket, screen: Screen, settings: Settings, _permit: SemaphorePermit<'static>) {
    let mut seen = Seen::default();
    let mut down = false;
    loop {
        let looked = Instant::now();
        let update = tokio::select! {
            update = screen.next_frame(seen) => update,
            () = closed(&mut socket) => return,
        };
        let messages = match update {
            Ok(update) => {
                seen = update.seen;
                down = false;
                let event = ScreenEvent::Change {
                    version: seen.frame,
                    size: update.frame.size(),
                    regions: update.rects.clone(),
                    pointer: update.cursor.position(),
                };
                let pictures = match settings.pixels {
                    Some(format) => screen.tiles(update.frame, update.rects, format, settings.quality).await,
                    None => Ok(Vec::new()),
                };
                match pictures {
                    Ok(pictures) => std::iter::once(text(&event)).chain(pictures.into_iter().map(Message::Binary)).collect(),
                    Err(e) => {
                        tracing::warn!("a stream of the screen ends: {e}");
                        return;
                    }
                }
            }
            Err(_) if down => Vec::new(),
            Err(e) => {
                down = true;
                vec![text(&ScreenEvent::Down { reason: e.to_string() })]
            }
        };
        for message in messages {
            if !matches!(timeout(STUCK, socket.send(message)).await, Ok(Ok(()))) {
                return;
            }
        }
        tokio::select! {
            () = async { if down { sleep(AGAIN).await } else { sleep_until(looked + settings.pause).await } } => {}
            () = closed(&mut socket) => return,
        }
    }
}

/// Ends when the client does. What it says is not listened to.
async fn closed(socket: &mut WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Close(_)) {
            return;
        }
    }
}

fn text(event: &ScreenEvent) -> Message {
    Message::Text(serde_json::to_string(event).unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_limits() {
        let query = |max_fps, quality| StreamQuery { max_fps, quality, ..Default::default() };
        assert_eq!(Settings::new(&query(None, None)).expect("the defaults").pause.as_millis(), 100);
        for (fps, quality) in [(Some(0.0), None), (Some(f32::NAN), None), (Some(61.0), None), (None, Some(0)), (None, Some(101))]
        {
            assert!(Settings::new(&query(fps, quality)).is_err(), "{fps:?} {quality:?}");
        }
    }
}
