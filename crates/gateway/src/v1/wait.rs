//! Waiting for desks that are on their way.

use crate::app::App;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use futures_util::future::BoxFuture;
use hotdesk_api::desk::{Desk, State};
use hotdesk_fleet::{Error, Who};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::Instant;
use utoipa::IntoParams;

/// The longest wait that a client may ask for; proxies between cut off connections that are quiet for longer.
const LONGEST: u64 = 600;
const FOR_MOST: u64 = 60;
const FOR_DELETE: u64 = 30;

/// How long to wait.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wait {
    /// Seconds to wait until it is done: 60 if left out (30 for a delete), at most 600; 0 answers at once.
    #[param(minimum = 0, maximum = 600)]
    wait: Option<u64>,
}

impl Wait {
    pub(crate) fn limit(self) -> Result<Duration> {
        self.or(FOR_MOST)
    }

    pub(super) fn limit_of_delete(self) -> Result<Duration> {
        self.or(FOR_DELETE)
    }

    fn or(self, default: u64) -> Result<Duration> {
        match self.wait.unwrap_or(default) {
            seconds if seconds > LONGEST => {
                Err(Refusal::invalid(format!("`wait` is {seconds}, but may be at most {LONGEST} seconds")))
            }
            seconds => Ok(Duration::from_secs(seconds)),
        }
    }
}

/// A desk, where it is found, and whether what was asked for is done.
pub(super) type DeskAnswer = (StatusCode, [(HeaderName, String); 1], Json<Desk>);

/// Waits until a desk has arrived where it was sent, and says how that went.
pub(super) async fn settled(
    app: &App,
    who: &Who,
    desk: Desk,
    limit: Duration,
    goal: State,
    done: StatusCode,
) -> Result<DeskAnswer> {
    let moved = between(desk.state);
    let desk = arrived(app, who, desk, limit).await?;
    refuse_failed(&desk)?;
    if moved && desk.state != goal && !between(desk.state) {
        // An archive that did not come about leaves the desk stopped, and so on.
        return Err(failed(&desk));
    }
    let status = if between(desk.state) { StatusCode::ACCEPTED } else { done };
    Ok((status, [(header::LOCATION, format!("/v1/desks/{}", desk.id))], Json(desk)))
}

/// The desk as it is when it has left the states between, or when the time is over.
pub(crate) async fn arrived(app: &App, who: &Who, desk: Desk, limit: Duration) -> Result<Desk> {
    let end = Instant::now() + limit;
    let mut desk = desk;
    while between(desk.state) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        desk = match app.fleet.wait(who, &desk.id, left).await {
            Ok(desk) => desk,
            Err(Error::Timeout { .. }) => app.fleet.desk(who, &desk.id).await?,
            // It is gone, and so was meant.
            Err(Error::NotFound { .. }) if desk.state == State::Deleting => Desk { state: State::Deleted, ..desk },
            Err(error) => return Err(error.into()),
        };
    }
    Ok(desk)
}

/// A step that failed is an error of ours, told with the desk's reason.
pub(crate) fn refuse_failed(desk: &Desk) -> Result<()> {
    if desk.state == State::Error { Err(failed(desk)) } else { Ok(()) }
}

fn failed(desk: &Desk) -> Refusal {
    let id = &desk.id;
    let state = serde_json::to_value(desk.state).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let detail = format!("the desk {id} failed and is in the state `{state}`: {}", desk.reason);
    Refusal::new(StatusCode::BAD_GATEWAY, "desk_failed", "The desk failed", detail)
        .hint(format!(
            "`GET /v1/desks/{id}/console` shows what it printed; `POST /v1/desks/{id}/reset` tries anew, `DELETE /v1/desks/{id}` removes it"
        ))
        .location(format!("/v1/desks/{id}"))
}

/// Whether a desk is on its way.
pub(super) fn between(state: State) -> bool {
    match state {
        State::Creating
        | State::Stopping
        | State::Starting
        | State::Resetting
        | State::Archiving
        | State::Restoring
        | State::Deleting => true,
        State::Running | State::Stopped | State::Archived | State::Deleted | State::Error => false,
    }
}

/// Lets a change go on when the client leaves: what was begun is finished, and the client's next look sees it.
pub(crate) async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    // Boxed, so that the runtime is compiled for every kind of answer and not for every change.
    let work: BoxFuture<'static, Result<T>> = Box::pin(tracing::Instrument::in_current_span(work));
    tokio::spawn(work).await.unwrap_or_else(|e| Err(Refusal::internal(e)))
}
