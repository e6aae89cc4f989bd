//! Texts of windows: decoding, matching and listing them as `wmctrl` does.

use super::ewmh::Found;

/// A name that windows are compared with.
pub(super) struct Wanted {
    text: String,
    strict: bool,
}

impl Wanted {
    pub(super) fn new(name: &str, strict: bool) -> Self {
        let text = if strict { name.to_owned() } else { caseless::default_case_fold_str(name) };
        Self { text, strict }
    }

    pub(super) fn fits(&self, text: &str) -> bool {
        if self.strict { text == self.text } else { caseless::default_case_fold_str(text).contains(&self.text) }
    }
}

/// What `wmctrl -l` prints.
pub(super) fn listing(windows: &[Found]) -> String {
    // It means to look for the longest name, but the last one that it sees wins.
    let column = windows.iter().filter_map(|found| found.machine.as_deref()).map(str::len).next_back().unwrap_or(0);
    let mut lines = String::new();
    for found in windows {
        let machine = found.machine.as_deref().unwrap_or("N/A");
        let title = found.title.as_deref().unwrap_or("N/A");
        // In bytes, as printf counts.
        let gap = " ".repeat(column.saturating_sub(machine.len()));
        let (id, desktop) = (found.window.id, found.window.desktop);
        lines += &format!("0x{id:08x} {desktop:2} {gap}{machine} {title}\n");
    }
    lines
}

/// `STRING` is Latin-1 by the book, but many programs write UTF-8 into it.
pub(super) fn decode_string(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// The parts of `COMPOUND_TEXT` that programs still write: ASCII, Latin-1 and embedded UTF-8.
/// Other character sets become replacement characters.
pub(super) fn decode_compound(bytes: &[u8]) -> String {
    const UTF8_ON: &[u8] = b"\x1b%G";
    const UTF8_OFF: &[u8] = b"\x1b%@";
    const LATIN1_RIGHT: &[u8] = b"\x1b-A";
    const ASCII_LEFT: &[u8] = b"\x1b(B";
    let mut text = String::new();
    let mut rest = bytes;
    let mut readable = true;
    while let Some((first, after)) = rest.split_first() {
        if let Some(inside) = rest.strip_prefix(UTF8_ON) {
            let end = inside.windows(UTF8_OFF.len()).position(|w| w == UTF8_OFF).unwrap_or(inside.len());
            text += &String::from_utf8_lossy(inside.get(..end).unwrap_or_default());
            rest = inside.get(end + UTF8_OFF.len()..).unwrap_or_default();
        } else if let Some(latin) = rest.strip_prefix(LATIN1_RIGHT).or_else(|| rest.strip_prefix(ASCII_LEFT)) {
            readable = true;
            rest = latin;
        } else if *first == 0x1b {
            // Any other character set: ESC, intermediate bytes, one final byte.
            let end = after.iter().position(|byte| !(0x20..=0x2f).contains(byte)).map_or(after.len(), |at| at + 1);
            readable = false;
            rest = after.get(end..).unwrap_or_default();
        } else {
            text.push(if readable { char::from(*first) } else { char::REPLACEMENT_CHARACTER });
            rest = after;
        }
    }
    text
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/titles.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case() {
        let fits = |name, strict, text| Wanted::new(name, strict).fits(text);
        assert!(fits("alpha conf", false, "Alpha Conformance - Notes"));
        assert!(fits("STRASSE", false, "Hauptstraße 5"));
        assert!(fits("ΣΊΣΥΦΟΣ", false, "σίσυφος"));
        assert!(fits("", false, "anything"));
        assert!(!fits("alpha", true, "Alpha"));
        assert!(fits("Alpha", true, "Alpha"));
        assert!(!fits("Alph", true, "Alpha"));
    }

    #[test]
    fn old_texts_are_decoded() {
        assert_eq!(decode_string(b"caf\xe9"), "café");
        assert_eq!(decode_string("café".as_bytes()), "café");
        assert_eq!(decode_compound(b"plain caf\xe9"), "plain café");
        assert_eq!(decode_compound(b"\x1b%G\xe6\x97\xa5\x1b%@ done"), "日 done");
        assert_eq!(decode_compound(b"\x1b-Acaf\xe9"), "café");
        assert_eq!(decode_compound(b"a\x1b$(B\x46\x7c\x1b(Bb"), "a\u{fffd}\u{fffd}b");
        assert_eq!(decode_compound(b"\x1b%G\xff"), "\u{fffd}");
        assert_eq!(decode_compound(b"\x1b"), "");
    }
}
