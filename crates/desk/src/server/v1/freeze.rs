//! Letting go of everybody outside, so that the whole desk can be saved with its memory; and becoming another desk, as a copy.
//!
//! ```text
//!   POST /v1/freeze   requests under way end, every other connection is cut, then the answer, then this one ends too
//!                     ── whoever keeps the desk saves it ──
//!   POST /v1/thaw     asked of a copy, by its first caller: another token, other variables
//! ```
//!
//! Programs, the display, files and jobs notice nothing. The desk's own address stays open: whoever keeps the desk has to see
//! to it that nobody comes in between.

use crate::Desk;
use crate::error::{Error, Result};
use crate::place::{self, Place, xauthority};
use crate::server::cut::{Connection, Crowd};
use crate::server::token::Token;
use crate::view::Password;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use hotdesk_api::freeze::{Frozen, Thaw};
use hotdesk_api::shell::{ENTRYPOINT, ENTRYPOINT_VARIABLE};
use hotdesk_serve::Json;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long requests under way may take to end. Whoever waits for a copy of the desk waits that long.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a desk needs to be saved, and to be a copy. Cheap to clone.
#[derive(Clone, Default)]
pub struct Freeze(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The token of a copy, which takes the place of the one in the settings.
    token: RwLock<Option<Token>>,
    crowd: Crowd,
}

impl Freeze {
    /// The token of a copy.
    pub(crate) fn token(&self) -> Option<Token> {
        self.0.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everybody who is connected with the desk's server.
    pub(crate) fn crowd(&self) -> &Crowd {
        &self.0.crowd
    }
}

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(freeze)).routes(routes!(thaw))
}

/// End all connections
///
/// For whoever keeps the desk, before it is saved with its memory. Requests under way get 0.5 s to end.
#[utoipa::path(post, path = "/v1/freeze", tag = "freeze", responses((status = 200, body = Frozen)))]
async fn freeze(State(desk): State<Desk>, own: Option<Extension<Connection>>) -> Json<Frozen> {
    let cut = desk.freeze.0.crowd.send_away(own.map(|Extension(own)| own), PATIENCE).await;
    tracing::info!(cut, "nobody is connected any more: the desk can be saved");
    Json(Frozen { cut })
}

/// Become another desk
///
/// For whoever keeps the desk, after a copy of it was made.
#[utoipa::path(post, path = "/v1/thaw", tag = "freeze", request_body = Thaw, responses(
    (status = 204, description = "From now on requests need the new token, if there is one."),
    (status = 400, description = "The token is none."),
))]
async fn thaw(State(desk): State<Desk>, Json(mut thaw): Json<Thaw>) -> Result<StatusCode> {
    let token = thaw.token.map(Token::new).transpose()?;
    let password = thaw
        .vnc_password
        .map(|password| Password::new(&password).ok_or_else(|| Error::Invalid("the password of the live view is empty".into())));
    if let Some(password) = password.transpose()? {
        desk.view.set_password(password);
    }
    let entrypoint = thaw.env.remove(ENTRYPOINT_VARIABLE);
    place::change_variables(thaw.env.into_iter().map(|(name, value)| (name, Some(value))));
    renew_cookie(&desk.place);
    if let Some(token) = token {
        *desk.freeze.0.token.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }
    // A copy of a desk that runs its entrypoint has it running too; one of a desk that had none begins it now.
    if let Some(command) = entrypoint.filter(|_| desk.shells.get(ENTRYPOINT).is_err()) {
        desk.run_entrypoint(command).await?;
    }
    tracing::info!("the desk goes on as a copy");
    Ok(StatusCode::NO_CONTENT)
}

/// A copy may have another host name, by which some programs look for the display's cookie.
fn renew_cookie(place: &Place) {
    if let (Some(file), Some(cookie)) = (place.env.get("XAUTHORITY"), &place.display.cookie)
        && let Err(reason) = xauthority::put(Path::new(file), place.display.number, cookie)
    {
        tracing::warn!(%reason, file, "the cookie of the display can't be written");
    }
}
