//! Addresses of files that clients have signed by themselves, for others who have no key.

use super::super::{Query, TOOLBOX, access, preview};
use crate::app::App;
use crate::class::Class;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::listen::Peer;
use axum::http::header;
use axum::http::request::Parts;

/// Who asks, if the address is signed; none otherwise.
pub(crate) async fn admit(app: &App, peer: Peer, class: Class, request: &Parts) -> Option<Caller> {
    let (desk, rest) = request.uri.path().strip_prefix(TOOLBOX)?.split_once('/')?;
    if !matches!((request.method.as_str(), rest), ("GET", "files/download") | ("POST", "files/upload-v2")) {
        return None;
    }
    let query = Query::of(&request.uri);
    let (path, expires, signature) = (query.get("path")?, query.get("expires")?, query.get("signature")?);
    let who = preview::guest(desk);
    let desk = app.fleet.desk(&who, desk).await.ok()?;
    let key = access::file_key(app, &desk.id).await.ok()?;
    if !access::file_signature(&key, request.method.as_str(), path, expires, signature) {
        return None;
    }
    app.limits.desks(&who.key).ok()?;
    let host = request.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    Some(Caller { who, secret: Secret::none(), place: Place::Header, peer, host, class, guest: true })
}
