//! Addresses of files that clients have signed by themselves, for others who have no key.

use super::super::{Query, TOOLBOX, access, preview};
use crate::app::App;
use crate::credentials::{Place, Secret};
use crate::entrance::Caller;
use crate::guest::Guest;
use crate::listen::Peer;
use crate::route::Class;
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
    app.limits.keyless(peer.network()).ok()?;
    let who = preview::guest(desk);
    let desk = app.fleet.desk(&who, desk).await.ok()?;
    let key = access::file_key(app, &desk.id).await.ok()?;
    if !access::file_signature(&key, request.method.as_str(), path, expires, signature) {
        return None;
    }
    app.limits.desks(&who.key).ok()?;
    let end = expires.parse::<i64>().ok().filter(|end| *end > 0).map(|end| end.saturating_mul(1000));
    let (id, path, expires) = (desk.id.clone(), path.to_owned(), expires.to_owned());
    let (method, signature) = (request.method.to_string(), signature.to_owned());
    // The key that signs is changed to take all such addresses back.
    let guest = Guest::new(&desk.id, end, move |app| {
        let (id, path, expires, method, signature) =
            (id.clone(), path.clone(), expires.clone(), method.clone(), signature.clone());
        async move {
            let key = access::file_key(&app, &id).await;
            key.map_or(true, |key| access::file_signature(&key, &method, &path, &expires, &signature))
        }
    });
    let host = request.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    Some(Caller { who, secret: Secret::none(), place: Place::Header, peer, host, class, guest: Some(guest), session: None })
}
