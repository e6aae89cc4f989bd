//! Sandboxes that rest: paused (a stopped desk), connected to again.

use super::control::{find, life, unknown};
use super::create::ready;
use super::fault::{done, plain};
use super::sandbox::{opened, state};
use crate::app::App;
use crate::refusal::{Refusal, Result};
use crate::v1::{arrived, refuse_failed, to_its_end};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::{Desk, State};
use hotdesk_fleet::Who;
use serde::Deserialize;
use std::time::Duration;

/// Clients give up after 60 s.
const LIMIT: Duration = Duration::from_secs(50);
/// The life of a sandbox that is connected to, if the client does not say; of the oldest clients, another.
const LIFE: i64 = 300;
const LIFE_BEFORE: i64 = 15;

/// Whether memory is kept is for the fleet to say: it keeps files.
#[derive(Deserialize)]
pub(super) struct Pause {}

pub(super) async fn pause(app: App, who: Who, id: String, _: Pause) -> Result<Response> {
    to_its_end(async move {
        let desk = find(&app, &who, &id).await?;
        let desk = arrived(&app, &who, desk, LIMIT).await?;
        if state(&desk) == "paused" {
            return Ok(plain(StatusCode::CONFLICT, &format!("sandbox {id} is already paused")));
        }
        // A paused sandbox has no end.
        app.fleet.set_end(&who, &desk.id, None).await?;
        let desk = app.fleet.stop(&who, &desk.id).await?;
        let desk = arrived(&app, &who, desk, LIMIT).await?;
        refuse_failed(&desk)?;
        Ok(done())
    })
    .await
}

#[derive(Deserialize)]
pub(super) struct Connect {
    timeout: Option<i64>,
}

pub(super) async fn connect(app: App, who: Who, id: String, old: bool, wish: Connect) -> Result<Response> {
    let life = life(wish.timeout.unwrap_or(if old { LIFE_BEFORE } else { LIFE }))?;
    to_its_end(async move {
        let desk = find(&app, &who, &id).await?;
        // Whatever is under way comes to its end first.
        let desk = arrived(&app, &who, desk, LIMIT).await?;
        match desk.state {
            State::Running => {
                let desk = later(&app, &who, desk, life).await?;
                Ok((StatusCode::OK, Json(opened(&app, &who, &desk).await?)).into_response())
            }
            State::Stopped | State::Archived => {
                // Before it runs: one whose end is past would be stopped again.
                app.fleet.set_end(&who, &desk.id, Some(life + LIMIT)).await?;
                let desk = app.fleet.start(&who, &desk.id).await?;
                let desk = ready(&app, &who, desk, life).await?;
                Ok((StatusCode::CREATED, Json(opened(&app, &who, &desk).await?)).into_response())
            }
            State::Deleting | State::Deleted => Err(unknown(&id)),
            _ => Err(Refusal::unavailable(format!("the sandbox {id} is not ready yet"))),
        }
    })
    .await
}

#[derive(Deserialize)]
pub(super) struct Refresh {
    duration: Option<i64>,
}

/// The oldest clients' way to stay alive.
pub(super) async fn refresh(app: &App, who: &Who, id: &str, wish: Refresh) -> Result<Response> {
    let life = life(wish.duration.unwrap_or(LIFE_BEFORE))?;
    let desk = find(app, who, id).await?;
    later(app, who, desk, life).await?;
    Ok(done())
}

/// Never to an earlier end.
async fn later(app: &App, who: &Who, desk: Desk, life: Duration) -> Result<Desk> {
    match desk.expires_at {
        Some(_) => Ok(app.fleet.extend(who, &desk.id, life).await?),
        None => Ok(desk),
    }
}
