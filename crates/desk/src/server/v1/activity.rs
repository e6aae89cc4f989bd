//! Signs of work, for whoever decides whether the desk is idle.

use crate::Desk;
use crate::screen::Seen;
use axum::extract::State;
use hotdesk_api::activity::Activity;
use hotdesk_api::recording::RecordingState;
use hotdesk_serve::Json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// A changed screen answers at once; one that did not change, never.
const LOOK: Duration = Duration::from_millis(100);

/// What was seen of the screen when activity was asked for the last time.
#[derive(Clone, Default)]
pub struct LastLook(Arc<Mutex<Seen>>);

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(activity))
}

/// Signs of work
///
/// `screen_changed` counts from the last time that anybody asked.
#[utoipa::path(get, path = "/v1/activity", tag = "health", responses((status = 200, body = Activity)))]
async fn activity(State(desk): State<Desk>) -> Json<Activity> {
    let running = desk.processes.jobs().list().iter().filter(|job| job.exit().is_none()).count();
    // A kernel is a program that waits for work most of the time.
    let commands = running.saturating_sub(desk.kernels.idle());
    Json(Activity {
        screen_changed: screen_changed(&desk).await,
        viewers: u32::try_from(desk.view.viewers().count()).unwrap_or(u32::MAX),
        commands: u32::try_from(commands).unwrap_or(u32::MAX),
        recording: desk.recorder.state().await.state == RecordingState::Recording,
        driver: desk.lease.look().driver,
    })
}

/// The first look sees everything for the first time, which is no change.
async fn screen_changed(desk: &Desk) -> f32 {
    let last = desk.last_look.0.lock().unwrap_or_else(PoisonError::into_inner).to_owned();
    let Ok(Ok(update)) = tokio::time::timeout(LOOK, desk.screen.next_frame(last)).await else { return 0.0 };
    *desk.last_look.0.lock().unwrap_or_else(PoisonError::into_inner) = update.seen;
    let size = update.frame.size();
    let whole = f64::from(size.width) * f64::from(size.height);
    if last == Seen::default() || whole == 0.0 {
        return 0.0;
    }
    let changed: f64 = update.rects.iter().map(|rect| f64::from(rect.width) * f64::from(rect.height)).sum();
    (changed / whole).min(1.0) as f32
}
