//! Links to ports of a sandbox, and the keys that open them.

use super::reply::{Failure, Reply, empty, ok};
use super::{Call, labels, sandboxes, view};
use crate::app::App;
use crate::recent::Recent;
use crate::refusal::Result;
use crate::seal::{self, Seal};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hotdesk_api::desk::{Desk, State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

/// By which preview tokens are known among all other secrets.
pub(crate) const TOKEN_PREFIX: &str = "hdp_";
/// Notes about signed links.
const SIGNED: &str = "daytona/signed";
/// Desks whose signing key was changed, and how often.
const ROTATED: &str = "daytona/rotated";
const SIGNED_LENGTH: usize = 16;
const SIGNED_LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// How long a signed link is good, when nothing is said, and at most.
const SIGNED_S: i64 = 60;
const LONGEST_SIGNED_S: i64 = 24 * 3600;

/// What a signed link opens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Signed {
    pub(crate) desk: String,
    pub(crate) port: u16,
    pub(crate) until_ms: i64,
}

/// Links and sandboxes that were good a moment ago.
#[derive(Default)]
pub(crate) struct Links {
    signed: Recent<Signed>,
    pub(crate) sandboxes: Recent<()>,
}

impl Links {
    pub(crate) fn prune(&self) {
        self.signed.prune();
        self.sandboxes.prune();
    }
}

pub(crate) fn port(text: &str) -> Reply<u16> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Failure::bad_request(format!("{} is no port: they go from 1 to 65535", text.escape_default()))),
    }
}

/// The token of one port of a sandbox, from its last start to the next.
pub(crate) fn token(key: &Seal, desk: &Desk, port: u16) -> String {
    let id = desk.id.trim_start_matches("d-");
    let start = desk.labels.get(labels::START).map_or("", String::as_str);
    let seal = key.text(&format!("preview {id} {port} {start}"));
    format!("{TOKEN_PREFIX}{id}_{port}_{seal}")
}

/// The desk and the port that a token is for, if it looks like one.
pub(crate) fn place(token: &str) -> Option<(String, u16)> {
    let mut parts = token.strip_prefix(TOKEN_PREFIX)?.splitn(3, '_');
    let (id, port) = (parts.next()?, parts.next()?.parse().ok()?);
    parts.next()?;
    let good = !id.is_empty() && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    good.then(|| (format!("d-{id}"), port))
}

pub(crate) async fn preview_url(call: Call, id: &str, number: &str) -> Reply {
    let port = port(number)?;
    let desk = sandboxes::find(&call, id).await?;
    if matches!(desk.state, State::Deleting | State::Deleted) {
        return Err(Failure::no_sandbox(id));
    }
    let key = call.app.seal().await?;
    ok(json!({
        "sandboxId": desk.id,
        "url": format!("{}/daytona/preview/{}/{port}", view::base(&call.app, &call.caller), desk.id),
        "token": token(key, &desk, port),
        "legacyProxyUrl": "",
    }))
}

pub(crate) async fn signed_url(call: Call, id: &str, number: &str) -> Reply {
    let port = port(number)?;
    let seconds = call.query().number::<i64>("expiresInSeconds")?.unwrap_or(SIGNED_S);
    if !(1..=LONGEST_SIGNED_S).contains(&seconds) {
        return Err(Failure::bad_request(format!("expiresInSeconds is 1 to {LONGEST_SIGNED_S}")));
    }
    let desk = sandboxes::find(&call, id).await?;
    let token: String =
        rand::random::<[u8; SIGNED_LENGTH]>().iter().map(|b| char::from(SIGNED_LETTERS[usize::from(b % 32)])).collect();
    let until_ms = jiff::Timestamp::now().as_millisecond() + seconds * 1000;
    let signed = Signed { desk: desk.id.clone(), port, until_ms };
    let note = serde_json::to_string(&signed).map_err(crate::refusal::Refusal::internal)?;
    call.app.fleet.store().put_note(SIGNED, &noted(&token), &note, Some(until_ms), true).await?;
    ok(json!({
        "sandboxId": desk.id,
        "port": port,
        "token": token,
        "url": format!("{}/daytona/preview/{token}/{port}", view::base(&call.app, &call.caller)),
    }))
}

/// What a signed link opens, if it is still good. `looks` is asked before the store is.
pub(crate) async fn signed(app: &App, token: &str, looks: impl FnOnce() -> Result<()>) -> Result<Option<Signed>> {
    if token.len() != SIGNED_LENGTH || !token.bytes().all(|b| SIGNED_LETTERS.contains(&b)) {
        return Ok(None);
    }
    let links = &super::kept(app).links.signed;
    let found = match links.get(token) {
        Some(signed) => Some(signed),
        None => {
            looks()?;
            read(app, token).await?.inspect(|signed| links.put(token, signed.clone()))
        }
    };
    Ok(found.filter(|signed| signed.until_ms > jiff::Timestamp::now().as_millisecond()))
}

/// The name of its note: whoever reads the store must not have the link.
fn noted(token: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(token.as_bytes()))
}

async fn read(app: &App, token: &str) -> Result<Option<Signed>> {
    let note = app.fleet.store().note(SIGNED, &noted(token)).await?;
    Ok(note.and_then(|note| serde_json::from_str(&note).ok()))
}

/// Whether a link was not taken back meanwhile. A store that does not answer takes nothing back.
pub(crate) async fn stands(app: &App, token: &str) -> bool {
    read(app, token).await.map_or(true, |signed| signed.is_some())
}

pub(crate) async fn expire(call: Call, id: &str, token: &str) -> Reply {
    let desk = sandboxes::find(&call, id).await?;
    if read(&call.app, token).await?.is_some_and(|signed| signed.desk == desk.id) {
        call.app.fleet.store().remove_note(SIGNED, &noted(token)).await?;
        super::kept(&call.app).links.signed.remove(token);
    }
    empty(StatusCode::OK)
}

/// The key with which clients sign addresses of files by themselves.
pub(crate) async fn signing_key(call: Call, id: &str, rotate: bool) -> Reply {
    let desk = sandboxes::find(&call, id).await?;
    if rotate {
        let fresh = labels::fresh_start();
        call.app.fleet.store().put_note(ROTATED, &desk.id, &fresh, None, true).await?;
    }
    ok(file_key(&call.app, &desk.id).await?)
}

/// The same, for checking what they signed.
pub(crate) async fn file_key(app: &App, desk: &str) -> Reply<String> {
    let rotated = app.fleet.store().note(ROTATED, desk).await?.unwrap_or_default();
    Ok(app.seal().await?.text(&format!("files {desk} {rotated}")))
}

/// Whether an address of a file was signed by somebody who has the key, and is not too old.
pub(crate) fn file_signature(key: &str, method: &str, path: &str, expires: &str, signature: &str) -> bool {
    let fresh = match expires.parse::<i64>() {
        Ok(0) => true,
        Ok(until) => until >= jiff::Timestamp::now().as_second(),
        Err(_) => false,
    };
    let right = format!("v1_{}", Seal::new(key.as_bytes()).text(&format!("v1:files:{method}:{path}:{expires}")));
    fresh && seal::same(&right, signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_they_open() {
        assert_eq!(place("hdp_abc234_3000_x_y"), Some(("d-abc234".into(), 3000)));
        for text in ["", "hdp_", "hdp_a_b_c", "hdp_a_1", "hdp_A_1_x", "hdp_../x_1_y", "hdp_a_99999_x"] {
            assert_eq!(place(text), None, "{text}");
        }
    }

    #[test]
    fn signatures_are_checked() {
        let signature = format!("v1_{}", Seal::new(b"key").text("v1:files:GET:/a:0"));
        assert!(file_signature("key", "GET", "/a", "0", &signature));
        assert!(!file_signature("key", "POST", "/a", "0", &signature));
        assert!(!file_signature("other", "GET", "/a", "0", &signature));
        let old = format!("v1_{}", Seal::new(b"key").text("v1:files:GET:/a:1000"));
        assert!(!file_signature("key", "GET", "/a", "1000", &old));
    }
}
