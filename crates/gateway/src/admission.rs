//! Who may pass: a key or a session, a guest of the dialect, or everybody; how often; and from which pages.
//!
//! Closed by default: what no dialect calls open needs a key, also an address that does not exist.

use crate::app::App;
use crate::credentials::{Place, Secret};
use crate::dialects::Visit;
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::refusal::{Refusal, Result};
use crate::route::{Right, Route};
use crate::session;
use axum::http::request::Parts;
use axum::http::{Uri, header};
use axum::response::Response;

/// What a request shows of who it is from.
pub(crate) struct Shown {
    pub(crate) key: Option<(Secret, Place)>,
    pub(crate) session: Option<session::Id>,
}

/// Who asks; none where no key is needed. The refusal is in the dialect's form.
pub(crate) async fn admit(
    app: &App,
    peer: Peer,
    route: &Route,
    shown: Shown,
    request: &mut Parts,
) -> Result<Option<Caller>, Response> {
    let path = request.uri.path().to_owned();
    let refuse = |refusal| route.dialect.refuse(&path, refusal);
    let (key, session) = known(app, peer, route, shown, request).await.map_err(refuse)?;
    if matches!(route.right, Right::Guest | Right::KeyOrGuest) {
        let visit = Visit { app, peer, claim: &route.claim, key: key.as_ref(), request: &mut *request };
        if let Some(admission) = route.dialect.admit(visit).await {
            return admission;
        }
    }
    by_key(app, peer, route, key, session, request).await.map_err(refuse)
}

/// The key of a request, or of its session where a page of our own asks.
async fn known(
    app: &App,
    peer: Peer,
    route: &Route,
    shown: Shown,
    request: &Parts,
) -> Result<(Option<(Secret, Place)>, Option<session::Id>)> {
    let Shown { key: None, session: Some(id) } = shown else { return Ok((shown.key, None)) };
    // Whoever else makes a browser ask is nobody.
    let needed = !matches!(route.right, Right::Open | Right::Guest);
    if !needed || !session::is_own_page(&request.headers, &request.method, app.public.as_ref()) {
        return Ok((None, None));
    }
    let secret = app.sessions.secret(app, &id, || app.limits.keyless(peer.network())).await?;
    Ok((secret.map(|secret| (secret, Place::Header)), Some(id)))
}

async fn by_key(
    app: &App,
    peer: Peer,
    route: &Route,
    key: Option<(Secret, Place)>,
    session: Option<session::Id>,
    request: &Parts,
) -> Result<Option<Caller>> {
    fits(route, &request.uri)?;
    let for_all = route.right == Right::Open;
    let open = for_all || (route.right == Right::Machine && app.config.open_metrics && peer.is_local());
    let Some((secret, place)) = key.filter(|_| !for_all) else {
        if peer.machine {
            app.pages.check(&request.headers, &request.method)?;
        }
        if open {
            app.limits.keyless(peer.network())?;
            return Ok(None);
        }
        app.limits.failure(peer.network())?;
        return Err(Refusal::unauthorized("the request carries no key"));
    };
    let who = match app.fleet.who(secret.reveal()).await {
        Ok(who) => who,
        Err(hotdesk_fleet::Error::Store(reason)) => return Err(hotdesk_fleet::Error::Store(reason).into()),
        Err(error) => {
            app.limits.failure(peer.network())?;
            return Err(Refusal::unauthorized(error.to_string()));
        }
    };
    match route.class.is_passed_on() {
        true => app.limits.desks(&who.key)?,
        false => app.limits.control(&who.key)?,
    }
    let host = request.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    Ok(Some(Caller { who, secret, place, peer, host, class: route.class, guest: None, session }))
}

/// PostgreSQL has no zero bytes in texts, and nothing that we name has one.
pub(crate) fn fits(route: &Route, uri: &Uri) -> Result<()> {
    let address = uri.path_and_query().map_or("", |p| p.as_str());
    match !route.class.is_passed_on() && address.contains("%00") {
        true => Err(Refusal::invalid("the address holds a zero byte")),
        false => Ok(()),
    }
}
