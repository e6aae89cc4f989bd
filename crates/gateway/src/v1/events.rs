//! Events: read back, or as a stream that goes on (server-sent events).
//!
//! A stream holds nothing for its reader: what happens is kept by the fleet's log, and the reader is told from there. Who reads so
//! slowly that the fleet's short memory runs over is cut off, and comes back with `Last-Event-ID` to where it was.

use crate::app::App;
use crate::body::Params;
use crate::entrance::Caller;
use crate::metrics;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use hotdesk_api::calls::EventList;
use hotdesk_api::desk::Event;
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::{Error, Who};
use serde::Deserialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const LIMIT: u32 = 100;
const MOST: u32 = 1000;
/// Proxies and browsers take a connection that is quiet for a minute for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// When a client that was cut off should come back.
const COME_BACK: Duration = Duration::from_secs(1);
const LAST_EVENT: &str = "last-event-id";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which events.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Only those with a larger number. If left out: all, and for a stream those that come from now on.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// Only those of this desk.
    desk: Option<String>,
    /// At most so many: 100 if left out. A stream has no end.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What happened
///
/// With `Accept: text/event-stream` a stream that goes on: each event's `id` is its number, and `Last-Event-ID` is honoured.
#[utoipa::path(get, path = "/v1/events", tag = "fleet", params(Wanted), responses(
    (status = 200, description = "Events, the oldest first", content((EventList = "application/json"), (String = "text/event-stream"))),
))]
async fn list(State(app): State<App>, caller: Caller, headers: HeaderMap, Params(wanted): Params<Wanted>) -> Result<Response> {
    let limit = wanted.limit.unwrap_or(LIMIT);
    if limit == 0 || limit > MOST {
        return Err(Refusal::invalid(format!("`limit` is {limit}, but must be from 1 to {MOST}")));
    }
    if wanted.after.is_some_and(|after| after < 0) {
        return Err(Refusal::invalid("`after` is below 0"));
    }
    let desk = match wanted.desk {
        // By its id also when it is gone.
        Some(id) if id.starts_with("d-") => Some(id),
        Some(name) => Some(app.fleet.desk(&caller.who, &name).await?.id),
        None => None,
    };
    if !wants_stream(&headers) {
        let events = app.fleet.events(&caller.who, wanted.after.unwrap_or(0), desk.as_deref(), limit).await?;
        return Ok(Json(EventList { events }).into_response());
    }
    let after = last_event(&headers)?.or(wanted.after);
    Ok(Sse::new(stream(app, caller, desk, after)).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|a| a.contains("text/event-stream")))
}

fn last_event(headers: &HeaderMap) -> Result<Option<i64>> {
    let Some(value) = headers.get(LAST_EVENT) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok()).filter(|n| *n >= 0);
    number.map(Some).ok_or_else(|| Refusal::invalid("`Last-Event-ID` is not the number of an event"))
}

fn stream(
    app: App,
    caller: Caller,
    desk: Option<String>,
    after: Option<i64>,
) -> impl Stream<Item = Result<sse::Event, Infallible>> + Send {
    async_stream::stream! {
        let _open = metrics::Open::event_stream();
        // Before the first look into the log, so that nothing falls between.
        let mut news = app.fleet.watch();
        yield Ok(sse::Event::default().retry(COME_BACK).comment("events of the fleet"));
        let mut last = after.unwrap_or(0);
        while after.is_some() {
            let Ok(events) = app.fleet.events(&caller.who, last, desk.as_deref(), MOST).await else { return };
            let whole = events.len() < MOST as usize;
            for event in events {
                last = event.number;
                yield Ok(told(&event));
            }
            if whole {
                break;
            }
        }
        let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        loop {
            let event = tokio::select! {
                event = news.recv() => event,
                _ = app.closing.cancelled() => return,
                _ = beat.tick() => {
                    match app.fleet.who(caller.secret.reveal()).await {
                        Ok(_) | Err(Error::Store(_)) => {}
                        Err(_) => return,
                    }
                    yield Ok(sse::Event::default().comment("still here"));
                    continue;
                }
            };
            match event {
                // What was read from the log comes once more.
                Ok(event) if event.number <= last => {}
                Ok(event) if concerns(&event, &caller.who, desk.as_deref()) => yield Ok(told(&event)),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    tracing::info!(missed, "a reader of events is too slow and is cut off");
                    metrics::stream_dropped();
                    yield Ok(sse::Event::default().comment("too slow: come back with Last-Event-ID"));
                    return;
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}

fn told(event: &Event) -> sse::Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    // A kind is a word; what is none would break the stream's form.
    let kind: String = event.kind.chars().filter(|c| !c.is_control()).collect();
    sse::Event::default().id(event.number.to_string()).event(kind).data(data)
}

/// Whether an event may be told to this key, and was asked for.
fn concerns(event: &Event, who: &Who, desk: Option<&str>) -> bool {
    let own = match &who.scope {
        Scope::Admin => true,
        Scope::Project { project } => event.project.as_ref() == Some(project),
        Scope::Desk { desk } => event.desk.as_ref() == Some(desk),
    };
    own && desk.is_none_or(|desk| event.desk.as_deref() == Some(desk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_to_whom_they_concern() {
        let event = |desk: Option<&str>, project: Option<&str>| Event {
            number: 1,
            at: String::new(),
            desk: desk.map(Into::into),
            project: project.map(Into::into),
            kind: "state".into(),
            state: None,
            reason: String::new(),
            by: String::new(),
        };
        let who = |scope| Who { key: "k".into(), name: "n".into(), scope };
        let project = who(Scope::Project { project: "p".into() });
        let one = who(Scope::Desk { desk: "d-1".into() });
        let admin = who(Scope::Admin);
        let (mine, other, fleet) = (event(Some("d-1"), Some("p")), event(Some("d-2"), Some("q")), event(None, None));
        assert!(concerns(&mine, &admin, None) && concerns(&other, &admin, None) && concerns(&fleet, &admin, None));
        assert!(concerns(&mine, &project, None) && !concerns(&other, &project, None) && !concerns(&fleet, &project, None));
        assert!(concerns(&mine, &one, None) && !concerns(&other, &one, None) && !concerns(&fleet, &one, None));
        assert!(concerns(&mine, &admin, Some("d-1")) && !concerns(&other, &admin, Some("d-1")));
    }
}
