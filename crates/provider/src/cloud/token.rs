//! Names of requests, by which a vendor recognises one that it has seen (client tokens, idempotency keys).
//!
//! They have the form of a UUID, because that is what the strictest vendor takes.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The same token for the same parts, also after a restart.
pub fn token(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    shaped(bytes)
}

/// A token that nobody had before: for something that may be made, removed and made again.
pub fn fresh_token() -> String {
    shaped(rand::random())
}

/// Version 8, the one whose bits mean nothing else.
fn shaped(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_stable_apart_and_well_formed() {
        let one = token(&["fleet", "d-1"]);
        assert_eq!(one, token(&["fleet", "d-1"]));
        assert_ne!(one, token(&["fleetd", "-1"]), "parts do not run together");
        assert_ne!(fresh_token(), fresh_token());
        for text in [one, fresh_token()] {
            assert_eq!((text.len(), &text[14..15]), (36, "8"));
            assert!(text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{text}");
        }
    }
}
