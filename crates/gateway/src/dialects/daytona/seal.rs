//! Seals: HMAC-SHA256 (RFC 2104), for tokens that need no table to be checked.

use super::Kept;
use super::reply::Reply;
use crate::app::App;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Under which the key is written down.
const KIND: &str = "daytona";
const NAME: &str = "seal";
const BLOCK: usize = 64;

/// The key of all seals of this fleet. It is made once and survives restarts.
pub(crate) async fn key(app: &App) -> Reply<[u8; 32]> {
    let Kept { seal, .. } = &app.daytona;
    let key = seal.get_or_try_init(|| async {
        let fresh: [u8; 32] = rand::random();
        // Whoever of several orchestrators comes first has made it.
        app.fleet.store().put_note(KIND, NAME, &BASE64_URL_SAFE_NO_PAD.encode(fresh), None, false).await?;
        let text = app.fleet.store().note(KIND, NAME).await?.unwrap_or_default();
        let key = BASE64_URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        Ok::<_, hotdesk_fleet::Error>(key.unwrap_or(fresh))
    });
    Ok(*key.await?)
}

/// The seal of a text.
pub(crate) fn seal(key: &[u8], text: &str) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let padded = |byte: u8| block.map(|b| b ^ byte);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

/// The same as text.
pub(crate) fn sealed(key: &[u8], text: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(seal(key, text))
}

/// Compares without telling by its time where two texts differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_says() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        // RFC 4231, cases 2 and 6.
        assert_eq!(
            hex(seal(b"Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(seal(&[0xaa; 131], "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        assert!(same("ab", "ab") && !same("ab", "ac") && !same("ab", "abc"));
    }
}
