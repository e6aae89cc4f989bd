//! Looking at a desk: is there work in it?

use crate::engine::Engine;
use crate::view::Entry;
use async_trait::async_trait;
use hotdesk_api::activity::Activity;
use hotdesk_provider::Door;
use std::time::Duration;

/// A caret or a clock stays below; a program that draws does not.
const SCREEN_CHANGED: f32 = 0.01;
/// Of a core, between two looks. An idle desktop with a browser open stays below 2 %.
const CPU_IN_USE: f64 = 0.10;
/// A desk that does not answer is not asked for longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How a desk's own server is asked. Tests answer for it.
#[async_trait]
pub trait Look: Send + Sync + 'static {
    async fn activity(&self, door: &Door) -> hotdesk_provider::Result<Activity>;
    /// Whether it answers at all; asked before a desk of a pool is handed out.
    async fn answers(&self, door: &Door) -> bool;
}

/// Asks over the desk's door.
pub struct HttpLook;

#[async_trait]
impl Look for HttpLook {
    async fn activity(&self, door: &Door) -> hotdesk_provider::Result<Activity> {
        door.activity().await
    }

    async fn answers(&self, door: &Door) -> bool {
        let connect = door.address.connect();
        matches!(tokio::time::timeout(Duration::from_millis(200), connect).await, Ok(Ok(_)))
    }
}

/// Looks at a running desk once and notes what it saw.
pub(super) async fn look(engine: &Engine, entry: &Entry) {
    let record = entry.record();
    let Some(placed) = &record.placed else { return };
    let door = Door { address: placed.address.clone(), secret: record.spec.secret.clone() };
    let provider = engine.providers.choose(Some(&record.provider)).ok();
    let activity = async { tokio::time::timeout(ANSWER_LIMIT, engine.look.activity(&door)).await.ok()?.ok() };
    let usage = async { tokio::time::timeout(ANSWER_LIMIT, provider?.usage(&record.id)).await.ok()?.ok() };
    let (activity, usage) = tokio::join!(activity, usage);

    let now = engine.clock.now_ms();
    let mut signs = entry.live.lock();
    signs.looked_ms = now;
    if let Some(usage) = usage {
        if let Some((then, before)) = signs.cpu {
            #[expect(clippy::cast_precision_loss)]
            let seconds = (now - then).max(1) as f64 / 1000.0;
            // A desk that was started again begins at zero.
            signs.load = Some((usage.cpu_s - before).max(0.0) / seconds);
        }
        signs.cpu = Some((now, usage.cpu_s));
    }
    signs.seen = match activity {
        Some(a) if a.viewers > 0 => Some("live view"),
        Some(a) if a.commands > 0 => Some("command"),
        Some(a) if a.recording => Some("recording"),
        Some(a) if a.screen_changed >= SCREEN_CHANGED => Some("screen changes"),
        _ if signs.load.is_some_and(|l| l >= CPU_IN_USE) => Some("cpu"),
        _ => None,
    };
    let work = signs.seen.is_some();
    drop(signs);
    if work {
        entry.live.touch(now);
    }
}

/// What was seen, for the event of the stop: `no calls, no viewers, screen unchanged, CPU 0.4 %`.
pub(super) fn described(entry: &Entry) -> String {
    match entry.live.lock().load {
        Some(load) => format!("no calls, no viewers, screen unchanged, CPU {:.1} %", load * 100.0),
        None => "no calls, no viewers, screen unchanged".into(),
    }
}
