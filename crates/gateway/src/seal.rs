//! Seals (HMAC-SHA256): tokens that the gateway hands out and checks again without a table of them.
//!
//! The key belongs to the fleet and never leaves the orchestrators: nothing that a desk can read helps to make a token.
//! Each text that is sealed begins with what it is for, so that a seal for one purpose is none for another.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hotdesk_fleet::{Error, Fleet};
use ring::hmac;
use subtle::ConstantTimeEq;
use tokio::sync::OnceCell;

/// Under which the key is kept in the store; named after the dialect that had it first, so that its tokens stay good.
const KIND: &str = "daytona";
const NAME: &str = "seal";

/// The fleet's key, read once.
#[derive(Default)]
pub(crate) struct Seals(OnceCell<Seal>);

impl Seals {
    /// It is made when it is first needed, and survives restarts.
    pub(crate) async fn of(&self, fleet: &Fleet) -> Result<&Seal, Error> {
        let read = || async {
            let fresh: [u8; 32] = rand::random();
            // The first of several orchestrators makes it.
            fleet.store().put_note(KIND, NAME, &BASE64_URL_SAFE_NO_PAD.encode(fresh), None, false).await?;
            let text = fleet.store().note(KIND, NAME).await?.unwrap_or_default();
            let key = BASE64_URL_SAFE_NO_PAD.decode(text).ok().filter(|key| key.len() == fresh.len());
            let broken = || Error::Store("the key of the fleet's tokens can't be read".into());
            key.map(|key| Seal::new(&key)).ok_or_else(broken)
        };
        self.0.get_or_try_init(read).await
    }
}

/// A key that seals.
pub(crate) struct Seal(hmac::Key);

impl Seal {
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The seal of a text, for addresses and headers.
    pub(crate) fn text(&self, text: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, text.as_bytes()))
    }

    /// The same in hexadecimal digits.
    pub(crate) fn hex(&self, text: &str) -> String {
        hmac::sign(&self.0, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Compares in a time that does not depend on where two texts differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_says() {
        // RFC 4231, cases 2 and 6.
        assert_eq!(
            Seal::new(b"Jefe").hex("what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            Seal::new(&[0xaa; 131]).hex("Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        assert!(same("ab", "ab") && !same("ab", "ac") && !same("ab", "abc"));
    }
}
