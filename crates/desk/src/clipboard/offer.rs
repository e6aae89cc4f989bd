//! Types of contents: what counts as text, and the names under which text goes.

use crate::error::{Error, Result};
use x11rb::protocol::xproto::Atom;

/// The type of a text that a client puts on the clipboard.
pub(super) const TEXT: &str = "text/plain;charset=utf-8";

/// Names for text, the best first.
pub(super) const TEXT_TARGETS: [&str; 5] = ["UTF8_STRING", TEXT, "text/plain", "TEXT", "STRING"];

/// Targets that say something about a content instead of being one.
pub(super) const META_TARGETS: [&str; 8] =
    ["TARGETS", "MULTIPLE", "TIMESTAMP", "SAVE_TARGETS", "DELETE", "INSERT_SELECTION", "INSERT_PROPERTY", "INCR"];

x11rb::atom_manager! {
    pub(super) Atoms: AtomsCookie {
        ATOM_PAIR,
        CLIPBOARD,
        HOTDESK_SELECTION,
        HOTDESK_TIME,
        INCR,
        MULTIPLE,
        STRING,
        TARGETS,
        TEXT,
        TIMESTAMP,
        UTF8_STRING,
    }
}

/// Whether a type is plain text, whatever way it is written.
pub(super) fn is_text(kind: &str) -> bool {
    let bare: String = kind.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect();
    matches!(bare.as_str(), "text/plain" | "text/plain;charset=utf-8" | "text/plain;charset=\"utf-8\"")
        || ["UTF8_STRING", "TEXT", "STRING"].contains(&kind)
}

/// Types become atoms, which the X server never forgets: only plausible ones may.
pub(super) fn check_kind(kind: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if kind.is_empty() || kind.len() > 128 || !kind.bytes().all(plain) {
        return Err(Error::Invalid("a type is a MIME type or the name of an X target, of at most 128 characters".into()));
    }
    if META_TARGETS.contains(&kind) {
        return Err(Error::Invalid(format!("{kind} is not a type of content")));
    }
    Ok(())
}

/// `STRING` is Latin-1.
pub(super) fn from_latin1(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes()
}

/// As much of a text as Latin-1 has.
pub(super) fn to_latin1(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect()
}

/// The atom of a selection.
pub(super) fn selection_atom(atoms: &Atoms, selection: super::Selection) -> Atom {
    match selection {
        super::Selection::Clipboard => atoms.CLIPBOARD,
        super::Selection::Primary => x11rb::protocol::xproto::AtomEnum::PRIMARY.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_apart() {
        for text in ["text/plain", "Text/Plain; charset=UTF-8", "text/plain;charset=utf-8", "UTF8_STRING", "STRING"] {
            assert!(is_text(text), "{text}");
        }
        for other in ["text/html", "image/png", "text/plain;charset=utf-16", "utf8_string"] {
            assert!(!is_text(other), "{other}");
        }
        for bad in ["", "TARGETS", "MULTIPLE", "a\0b", "ü", &"x".repeat(129)] {
            assert!(check_kind(bad).is_err(), "{bad:?}");
        }
        assert!(check_kind("image/png").is_ok());
    }

    #[test]
    fn latin1_is_converted() {
        assert_eq!(from_latin1(b"caf\xe9"), "café".as_bytes());
        assert_eq!(to_latin1("café 日".as_bytes()), b"caf\xe9 ?");
    }
}
