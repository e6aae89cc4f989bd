//! Tokens of sandboxes, sealed by the fleet; and signatures made of tokens.

use super::names;
use crate::app::App;
use crate::seal::Seal;
pub(super) use crate::seal::same;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hotdesk_api::desk::{Desk, State};
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::{Filter, Who};
use sha2::{Digest, Sha256};

/// The token of a sandbox. It names the sandbox, so that nobody has to look for it.
pub(super) async fn of(app: &App, desk: &str) -> hotdesk_fleet::Result<String> {
    made(app, "e2b sandbox", desk).await
}

/// The token that opens the ports of a sandbox that is not public.
pub(super) async fn of_traffic(app: &App, desk: &str) -> hotdesk_fleet::Result<String> {
    made(app, "e2b traffic", desk).await
}

/// Made of the fleet's own key: nothing that the desk knows helps to make one.
async fn made(app: &App, purpose: &str, desk: &str) -> hotdesk_fleet::Result<String> {
    Ok(written(app.seal().await?, purpose, desk))
}

fn written(seal: &Seal, purpose: &str, desk: &str) -> String {
    format!("{}_{}", desk.strip_prefix("d-").unwrap_or(desk), seal.hex(&format!("{purpose} {desk}")))
}

/// The desk whose token this is; it may be gone by now. None if it is no token of this fleet.
pub(super) async fn desk(app: &App, token: &str) -> Option<String> {
    let (id, _) = token.split_once('_')?;
    let desk = names::desk(&format!("{}{id}", names::FIRST))?;
    same(token, &of(app, &desk).await.ok()?).then_some(desk)
}

/// The running sandbox whose token made this signature: each has to be tried, so whoever asks was counted before.
pub(super) async fn signed(app: &App, signature: &str, wanted: &Wanted<'_>) -> Option<String> {
    let everybody = Who { key: String::new(), name: "e2b".into(), scope: Scope::Admin };
    let filter = Filter { state: Some(State::Running), ..Filter::default() };
    let desks = app.fleet.desks(&everybody, filter).await.ok()?;
    let seal = app.seal().await.ok()?;
    let made = |desk: &Desk| wanted.signature(&written(seal, "e2b sandbox", &desk.id));
    desks.into_iter().filter(super::labels::is_sandbox).find(|desk| same(&made(desk), signature)).map(|desk| desk.id)
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
    fn tokens_differ_by_purpose_desk_and_fleet() {
        let (one, other) = (Seal::new(b"one"), Seal::new(b"other"));
        let token = written(&one, "e2b sandbox", "d-abcdefgh2345");
        assert!(token.starts_with("abcdefgh2345_") && token.len() == 13 + 64, "{token}");
        assert_ne!(token, written(&one, "e2b traffic", "d-abcdefgh2345"));
        assert_ne!(token, written(&one, "e2b sandbox", "d-abcdefgh2346"));
        assert_ne!(token, written(&other, "e2b sandbox", "d-abcdefgh2345"));
    }

    #[test]
    fn signatures_are_those_that_the_sdk_makes() {
        // Of the SDK's own function, for this path, token and time.
        let wanted = Wanted { path: "/home/user/a.txt", operation: "read", user: "user", expiration: Some(1_700_000_000) };
        let digest = Sha256::digest(b"/home/user/a.txt:read:user:secret:1700000000");
        assert_eq!(wanted.signature("secret"), format!("v1_{}", STANDARD_NO_PAD.encode(digest)));
        assert_ne!(wanted.signature("secret"), Wanted { expiration: None, ..wanted }.signature("secret"));
    }
}
