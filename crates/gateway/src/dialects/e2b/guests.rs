//! Those who come to a sandbox: with its token, with a signature, or to a public port.

use super::labels::{Kept, is_sandbox};
use super::{text, token};
use crate::app::App;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::guest::Guest;
use crate::listen::Peer;
use crate::refusal::Result;
use crate::route::Class;
use axum::http::{HeaderMap, header};
use hotdesk_fleet::Error;

/// What is known of a sandbox.
#[derive(Clone)]
pub(super) struct Known {
    /// Its ports need a token.
    pub(super) private: bool,
    pub(super) provider: String,
}

/// What is known of a desk, if it is a sandbox. `looks` is asked before the fleet is.
pub(super) async fn known(app: &App, desk: &str, looks: impl FnOnce() -> Result<()>) -> Result<Option<Known>> {
    if let Some(known) = super::memory(app).known.get(desk) {
        return Ok(Some(known));
    }
    looks()?;
    let found = match app.fleet.desk(&token::user_of(desk), desk).await {
        Ok(desk) if is_sandbox(&desk) => desk,
        Ok(_) | Err(Error::NotFound { .. } | Error::Denied(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let known = Known { private: Kept::of(&found).private, provider: found.provider };
    super::memory(app).known.put(desk, known.clone());
    Ok(Some(known))
}

/// Somebody who was let into a sandbox; `open` says that it was because its ports are public.
pub(super) fn caller(desk: &str, peer: Peer, headers: &HeaderMap, class: Class, open: bool) -> Caller {
    let who = token::user_of(desk);
    let (id, user) = (desk.to_owned(), who.clone());
    let guest = Guest::new(desk, None, move |app| {
        let (id, user) = (id.clone(), user.clone());
        async move {
            match app.fleet.desk(&user, &id).await {
                Ok(desk) => is_sandbox(&desk) && !(open && Kept::of(&desk).private),
                Err(error) => matches!(error, Error::Store(_)),
            }
        }
    });
    Caller {
        who,
        secret: Secret::none(),
        place: Place::Header,
        peer,
        host: text(headers, header::HOST.as_str()),
        class,
        guest: Some(guest),
        session: None,
    }
}
