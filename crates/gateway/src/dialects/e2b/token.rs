//! Tokens of sandboxes, made of their desks' secrets; and signatures made of tokens.

use super::names;
use crate::app::App;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hotdesk_api::desk::State;
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::{Filter, Who};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use subtle::ConstantTimeEq;

/// Tokens that are remembered, those of sandboxes that are gone among them; the oldest are forgotten.
const REMEMBERED: usize = 16_384;

/// Which sandbox has which token.
#[derive(Default)]
pub(super) struct Tokens(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Token → desk.
    desks: HashMap<String, String>,
    /// Desk → token.
    tokens: HashMap<String, String>,
    /// Desks in the order in which they came.
    order: VecDeque<String>,
}

impl Tokens {
    /// Remembers the token of a desk.
    pub(super) fn remember(&self, desk: &str, token: &str) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.tokens.get(desk).is_some_and(|known| known == token) {
            return;
        }
        table.desks.insert(token.into(), desk.into());
        table.tokens.insert(desk.into(), token.into());
        table.order.push_back(desk.into());
        while table.order.len() > REMEMBERED {
            if let Some(token) = table.order.pop_front().and_then(|desk| table.tokens.remove(&desk)) {
                table.desks.remove(&token);
            }
        }
    }

    fn desk(&self, token: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).desks.get(token).cloned()
    }

    fn token(&self, desk: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tokens.get(desk).cloned()
    }
}

/// The token of a sandbox, by its desk's secret.
pub(super) fn of(secret: &str) -> String {
    made("hotdesk e2b sandbox", secret)
}

/// The token that opens the ports of a sandbox that is not public.
pub(super) fn of_traffic(secret: &str) -> String {
    made("hotdesk e2b traffic", secret)
}

fn made(purpose: &str, secret: &str) -> String {
    let digest = Sha256::new().chain_update(purpose).chain_update([0]).chain_update(secret).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in a time that says nothing about where two texts differ.
pub(super) fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// The desk whose token this is; it may be gone by now.
pub(super) async fn find(app: &App, token: &str) -> Option<String> {
    if let Some(desk) = app.e2b.tokens.desk(token) {
        return Some(desk);
    }
    look(app).await;
    app.e2b.tokens.desk(token)
}

/// The desk whose token made this signature, and the token.
pub(super) async fn signed(app: &App, signature: &str, wanted: &Wanted<'_>) -> Option<String> {
    let running = look(app).await;
    running.into_iter().find(|desk| {
        let token = app.e2b.tokens.token(desk);
        token.is_some_and(|token| same(&wanted.signature(&token), signature))
    })
}

/// Learns the tokens of all sandboxes that run, and names their desks.
async fn look(app: &App) -> Vec<String> {
    let everybody = Who { key: String::new(), name: "e2b".into(), scope: Scope::Admin };
    let filter = Filter { state: Some(State::Running), ..Filter::default() };
    let desks = app.fleet.desks(&everybody, filter).await.unwrap_or_default();
    let mut running = Vec::new();
    for desk in desks.into_iter().filter(super::labels::is_sandbox) {
        if app.e2b.tokens.token(&desk.id).is_none() {
            let Ok(door) = app.fleet.door(&user_of(&desk.id), &desk.id).await else { continue };
            app.e2b.tokens.remember(&desk.id, &of(&door.secret));
        }
        running.push(desk.id);
    }
    running
}

/// Whoever holds the token of a sandbox may use that one desk.
pub(super) fn user_of(desk: &str) -> Who {
    Who { key: format!("e2b:{}", names::sandbox(desk)), name: "e2b".into(), scope: Scope::Desk { desk: desk.into() } }
}

/// What a signature is about.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a str,
    /// `read` or `write`.
    pub(super) operation: &'a str,
    pub(super) user: &'a str,
    pub(super) expiration: Option<i64>,
}

impl Wanted<'_> {
    /// `v1_` and the hash of all of it, with the token among it.
    pub(super) fn signature(&self, token: &str) -> String {
        let mut text = format!("{}:{}:{}:{token}", self.path, self.operation, self.user);
        if let Some(expiration) = self.expiration {
            text.push_str(&format!(":{expiration}"));
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_by_purpose_and_desk() {
        assert_eq!(of("a").len(), 64);
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a"), of_traffic("a"));
        assert!(same("x", "x") && !same("x", "y") && !same("x", "xy"));
    }

    #[test]
    fn signatures_are_those_that_the_sdk_makes() {
        // Of the SDK's own function, for this path, token and time.
        let wanted = Wanted { path: "/home/user/a.txt", operation: "read", user: "user", expiration: Some(1_700_000_000) };
        let digest = Sha256::digest(b"/home/user/a.txt:read:user:secret:1700000000");
        assert_eq!(wanted.signature("secret"), format!("v1_{}", STANDARD_NO_PAD.encode(digest)));
        assert_ne!(wanted.signature("secret"), Wanted { expiration: None, ..wanted }.signature("secret"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let tokens = Tokens::default();
        for n in 0..REMEMBERED + 10 {
            tokens.remember(&n.to_string(), &format!("t{n}"));
        }
        assert_eq!(tokens.desk("t0"), None);
        assert_eq!(tokens.desk(&format!("t{REMEMBERED}")), Some(REMEMBERED.to_string()));
    }
}
