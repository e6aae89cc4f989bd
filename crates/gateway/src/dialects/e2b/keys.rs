//! Keys of the fleet as E2B's SDKs want them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How every secret of a key begins, and how it does there.
const SECRET_PREFIX: &str = "hd_";
const E2B_PREFIX: &str = "e2b_";
/// Of a key, without its prefix.
const SECRET_BYTES: usize = 32;

/// A key in the form that some releases of E2B's SDK insist on: `e2b_` and hexadecimal digits. None if it is no key of ours.
pub fn e2b_key(key: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(key.strip_prefix(SECRET_PREFIX)?).ok()?;
    Some(bytes.iter().fold(E2B_PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}")))
}

/// The key that such a form stands for.
pub(super) fn from_e2b(key: &str) -> Option<String> {
    let digits = key.strip_prefix(E2B_PREFIX)?.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let good = digits.len() == 2 * SECRET_BYTES && digits.iter().all(u8::is_ascii_hexdigit);
    let bytes: Vec<u8> = digits.chunks(2).map(pair).collect::<Option<_>>().filter(|_| good)?;
    Some(format!("{SECRET_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_there_and_back() {
        let key = format!("hd_{}", "A".repeat(43));
        let theirs = e2b_key(&key).unwrap();
        assert!(theirs.starts_with("e2b_") && theirs.len() == 4 + 64, "{theirs}");
        assert_eq!(from_e2b(&theirs), Some(key));
        for wrong in ["", "e2b_", "e2b_zz", "hd_x"] {
            assert_eq!(from_e2b(wrong), None, "{wrong}");
        }
    }
}
