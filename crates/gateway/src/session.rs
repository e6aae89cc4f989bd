//! Sessions of browsers: who signed in at the dashboard has a cookie that no script can read, in place of the key.
//!
//! The cookie is a random name of the session. The key's secret is kept in the store, encrypted with what only the cookie knows; so
//! neither the store alone nor a page gives a key away. A session ends when it is signed out, after its time, and with its key: that
//! is asked at every request as ever.
//!
//! A cookie comes with every request that a browser sends here, whatever page makes it. So it counts only where the browser says that a page
//! of our own asks: pages of desks have other origins (see `shield`), and are refused.

use crate::app::{App, Public};
use crate::credentials::Secret;
use crate::entrance::Caller;
use crate::listen::Peer;
use crate::refusal::{Refusal, Result};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const PATH: &str = "/v1/session";
/// Over TLS browsers take care by the name alone that nobody else sets it.
const COOKIE: &str = "hotdesk-session";
const SECURE_COOKIE: &str = "__Host-hotdesk-session";
/// Notes of the store.
const KIND: &str = "session";
/// How long a session lasts that ends with the browser, and one that is to be remembered.
const SHORT: Duration = Duration::from_secs(24 * 3600);
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);
/// Another orchestrator may have ended a session: the store is looked at again after so long.
const LOOK: Duration = Duration::from_secs(15);
const MOST_OPEN: usize = 10_000;

/// Whether a cookie is one of ours: desks never get to see them, and set none.
pub(crate) fn is_cookie(name: &str) -> bool {
    [COOKIE, SECURE_COOKIE].iter().any(|own| name.trim().eq_ignore_ascii_case(own))
}

/// The session that a request names. It is taken out.
pub(crate) fn take(headers: &mut HeaderMap) -> Option<Id> {
    let lines: Vec<String> =
        headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok()).map(str::to_owned).collect();
    let cookies = || lines.iter().flat_map(|line| line.split(';')).map(str::trim);
    let ours = |cookie: &&str| is_cookie(cookie.split('=').next().unwrap_or_default());
    let found = cookies().find(ours)?;
    let id = found.split_once('=').and_then(|(_, value)| Id::read(value));
    let kept: Vec<&str> = cookies().filter(|cookie| !ours(cookie)).collect();
    headers.remove(header::COOKIE);
    if !kept.is_empty()
        && let Ok(kept) = HeaderValue::try_from(kept.join("; "))
    {
        headers.insert(header::COOKIE, kept);
    }
    id
}

/// The name of a session, which is as good as its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Id([u8; 32]);

impl Id {
    fn read(text: &str) -> Option<Self> {
        BASE64_URL_SAFE_NO_PAD.decode(text.trim()).ok()?.try_into().ok().map(Self)
    }

    fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Under which it is kept; nobody finds the cookie by it.
    fn name(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::new().chain_update("session name").chain_update(self.0).finalize())
    }

    fn key(&self) -> Option<LessSafeKey> {
        let key: [u8; 32] = Sha256::new().chain_update("session key").chain_update(self.0).finalize().into();
        UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
    }

    /// Each id seals one text once, so a nonce that never changes is used once.
    fn seal(&self, text: &str) -> Option<String> {
        let mut bytes = text.as_bytes().to_vec();
        self.key()?.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut bytes).ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }

    fn open(&self, sealed: &str) -> Option<String> {
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let plain = self.key()?.open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut bytes).ok()?;
        String::from_utf8(plain.to_vec()).ok()
    }
}

#[derive(Serialize, Deserialize)]
struct Note {
    sealed: String,
    until_ms: i64,
}

/// Sessions that were used not long ago.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Open>>);

struct Open {
    secret: Secret,
    until_ms: i64,
    looked: Instant,
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn prune(&self) {
        self.open().retain(|_, open| open.looked.elapsed() < LOOK);
    }

    /// The secret of the key that a session was begun with; none if it has ended. `looks` is asked before the store is.
    pub(crate) async fn secret(&self, app: &App, id: &Id, looks: impl FnOnce() -> Result<()>) -> Result<Option<Secret>> {
        let name = id.name();
        let fresh =
            self.open().get(&name).filter(|open| open.looked.elapsed() < LOOK).map(|open| (open.secret.clone(), open.until_ms));
        let (secret, until_ms) = match fresh {
            Some(fresh) => fresh,
            None => {
                if !self.open().contains_key(&name) {
                    looks()?;
                }
                self.open().remove(&name);
                let note = app.fleet.store().note(KIND, &name).await?;
                let note = note.and_then(|note| serde_json::from_str::<Note>(&note).ok());
                let Some((secret, until_ms)) = note.and_then(|note| Some((Secret::new(id.open(&note.sealed)?), note.until_ms)))
                else {
                    return Ok(None);
                };
                self.keep(name, &secret, until_ms);
                (secret, until_ms)
            }
        };
        Ok((until_ms > jiff::Timestamp::now().as_millisecond()).then_some(secret))
    }

    fn keep(&self, name: String, secret: &Secret, until_ms: i64) {
        let mut open = self.open();
        if open.len() >= MOST_OPEN {
            open.clear();
        }
        open.insert(name, Open { secret: secret.clone(), until_ms, looked: Instant::now() });
    }

    async fn begin(&self, app: &App, secret: &Secret, life: Duration) -> Result<Id> {
        let id = Id(rand::random());
        let until_ms = jiff::Timestamp::now().as_millisecond() + i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
        let sealed = id.seal(secret.reveal()).ok_or_else(|| Refusal::internal("a session can't be sealed"))?;
        let note = serde_json::to_string(&Note { sealed, until_ms }).map_err(Refusal::internal)?;
        app.fleet.store().put_note(KIND, &id.name(), &note, Some(until_ms), true).await?;
        self.keep(id.name(), secret, until_ms);
        Ok(id)
    }

    async fn end(&self, app: &App, id: &Id) -> Result<()> {
        self.open().remove(&id.name());
        app.fleet.store().remove_note(KIND, &id.name()).await?;
        Ok(())
    }
}

/// Whether a request with a cookie comes from a page of our own, or from no page at all.
pub(crate) fn is_own_page(headers: &HeaderMap, method: &Method, public: Option<&Public>) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(origin) = text(header::ORIGIN.as_str()) {
        let site = origin.split_once("://").map(|(_, site)| site);
        let ours = [text(header::HOST.as_str()), public.map(|public| public.host.as_str())];
        return site.is_some_and(|site| ours.into_iter().flatten().any(|own| own.eq_ignore_ascii_case(site)));
    }
    // What browsers send no origin with: navigation, and reading by our own page.
    let harmless = method.is_safe() && !headers.contains_key(header::UPGRADE);
    match text("sec-fetch-site") {
        Some("same-origin") => harmless,
        // Typed, or from a bookmark.
        Some("none") => harmless && text("sec-fetch-mode") == Some("navigate"),
        Some(_) => false,
        None => harmless,
    }
}

pub(crate) fn router() -> Router<App> {
    Router::new().route(PATH, post(sign_in).get(show).delete(sign_out))
}

/// Whether a request is to sign in, which needs no key but the one in its body.
pub(crate) fn is_sign_in(method: &Method, path: &str) -> bool {
    path == PATH && method == Method::POST
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    key: String,
    #[serde(default)]
    remember: bool,
}

async fn sign_in(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    crate::body::Input(wanted): crate::body::Input<SignIn>,
) -> Result<Response> {
    // Another site must not sign somebody in as somebody else.
    if !is_own_page(&headers, &Method::POST, app.public.as_ref()) && headers.contains_key(header::ORIGIN) {
        return Err(Refusal::denied("a web page of another site can't sign in here"));
    }
    let secret = Secret::new(wanted.key.trim().to_owned());
    let who = match app.fleet.who(secret.reveal()).await {
        Ok(who) => who,
        Err(error @ hotdesk_fleet::Error::Store(_)) => return Err(error.into()),
        Err(error) => {
            app.limits.failure(peer.network())?;
            return Err(Refusal::unauthorized(error.to_string()));
        }
    };
    app.limits.control(&who.key)?;
    app.audit.write(&who.key, "POST", PATH, StatusCode::OK, peer)?;
    let id = app.sessions.begin(&app, &secret, if wanted.remember { LONG } else { SHORT }).await?;
    let https = peer.tls || app.public.as_ref().is_some_and(|public| public.https);
    let age = if wanted.remember { format!("; Max-Age={}", LONG.as_secs()) } else { String::new() };
    let mut response = Json(json!({ "name": who.name, "scope": who.scope })).into_response();
    set_cookie(&mut response, https, &id.text(), &age);
    Ok(response)
}

/// Who is signed in.
async fn show(caller: Caller) -> Response {
    Json(json!({ "name": caller.who.name, "scope": caller.who.scope })).into_response()
}

async fn sign_out(State(app): State<App>, caller: Caller) -> Result<Response> {
    if let Some(id) = &caller.session {
        app.sessions.end(&app, id).await?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&mut response, caller.is_https(&app), "", "; Max-Age=0");
    Ok(response)
}

fn set_cookie(response: &mut Response, https: bool, value: &str, age: &str) {
    let (name, secure) = if https { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse::<header::HeaderName>().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn only_pages_of_our_own_use_a_session() {
        for (method, pairs, own) in [
            ("GET", vec![], true),
            ("POST", vec![], false),
            ("GET", vec![("upgrade", "websocket")], false),
            ("POST", vec![("origin", "http://h:1"), ("host", "h:1")], true),
            ("GET", vec![("origin", "http://h:1"), ("host", "h:1"), ("upgrade", "websocket")], true),
            ("POST", vec![("origin", "http://h:2"), ("host", "h:1")], false),
            ("GET", vec![("origin", "null"), ("host", "h:1")], false),
            ("GET", vec![("origin", "null"), ("host", "null")], false),
            ("POST", vec![("origin", "https://8080-iabc.h"), ("host", "h")], false),
            ("GET", vec![("sec-fetch-site", "same-origin")], true),
            ("POST", vec![("sec-fetch-site", "same-origin")], false),
            ("GET", vec![("sec-fetch-site", "same-site")], false),
            ("GET", vec![("sec-fetch-site", "cross-site")], false),
            ("GET", vec![("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")], true),
        ] {
            assert_eq!(is_own_page(&headers(&pairs), &method.parse().unwrap(), None), own, "{method} {pairs:?}");
        }
        let public = Public { https: true, host: "desks.example".into(), path: String::new() };
        let behind = headers(&[("origin", "https://desks.example"), ("host", "10.0.0.1:7700")]);
        assert!(is_own_page(&behind, &Method::POST, Some(&public)));
    }

    #[test]
    fn a_cookie_is_taken_out_and_opens_what_it_sealed() {
        let id = Id([7; 32]);
        let text = format!("a=1; {COOKIE}={}; b=2", id.text());
        let mut map = headers(&[("cookie", &text)]);
        assert!(take(&mut map) == Some(id.clone()));
        assert_eq!(map["cookie"], "a=1; b=2");
        assert!(take(&mut map).is_none());
        let sealed = id.seal("hd_secret").unwrap();
        assert!(!sealed.contains("hd_") && !id.name().contains(&id.text()));
        assert_eq!(id.open(&sealed).as_deref(), Some("hd_secret"));
        assert_eq!(Id([8; 32]).open(&sealed), None);
    }
}
