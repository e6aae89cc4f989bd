//! Names of keys, as PyAutoGUI knows them on X11.

/// The keysym of a name. Names that have none are ignored without a word.
pub(super) fn keysym(name: &str) -> Option<u32> {
    let mut characters = name.chars();
    if let (Some(c), None) = (characters.next(), characters.next()) {
        return match c {
            '\u{8}' => Some(BACKSPACE),
            '\t' => Some(TAB),
            '\n' | '\r' => Some(RETURN),
            ' '..='~' => Some(u32::from(c)),
            _ => None,
        };
    }
    if let Some(number) = name.strip_prefix('f').and_then(plain_number)
        && (1..=24).contains(&number)
    {
        return Some(F1 + number - 1);
    }
    if let Some(number) = name.strip_prefix("num").and_then(plain_number)
        && number <= 9
    {
        return Some(KEYPAD_0 + number);
    }
    NAMES.iter().find(|(names, _)| names.contains(&name)).map(|(_, keysym)| *keysym)
}

/// Whether PyAutoGUI holds shift while it presses this key.
pub(super) fn is_shifted(name: &str) -> bool {
    let mut characters = name.chars();
    match (characters.next(), characters.next()) {
        (Some(c), None) => c.is_ascii_uppercase() || "~!@#$%^&*()_+{}|:\"<>?".contains(c),
        _ => false,
    }
}

/// Names of more than one character don't mind their case.
pub(super) fn normal(name: &str) -> String {
    if name.chars().nth(1).is_some() { name.to_lowercase() } else { name.to_owned() }
}

pub(super) const SHIFT: u32 = 0xffe1;
const BACKSPACE: u32 = 0xff08;
const TAB: u32 = 0xff09;
const RETURN: u32 = 0xff0d;
const ESCAPE: u32 = 0xff1b;
const KEYPAD_0: u32 = 0xffb0;
const F1: u32 = 0xffbe;

const NAMES: &[(&[&str], u32)] = &[
    (&["backspace"], BACKSPACE),
    (&["tab"], TAB),
    (&["enter", "return"], RETURN),
    // The last one is a slip of the original: a backslash and the letter e.
    (&["esc", "escape", "\\e"], ESCAPE),
    (&["space"], 0x20),
    (&["shift", "shiftleft"], SHIFT),
    (&["shiftright"], 0xffe2),
    (&["ctrl", "ctrlleft"], 0xffe3),
    (&["ctrlright"], 0xffe4),
    (&["alt", "altleft"], 0xffe9),
    (&["altright"], 0xffea),
    (&["win", "winleft"], 0xffeb),
    (&["winright"], 0xffec),
    (&["apps"], 0xff67),
    (&["home"], 0xff50),
    (&["left"], 0xff51),
    (&["up"], 0xff52),
    (&["right"], 0xff53),
    (&["down"], 0xff54),
    (&["pgup", "pageup"], 0xff55),
    (&["pgdn", "pagedown"], 0xff56),
    (&["end"], 0xff57),
    (&["select"], 0xff60),
    (&["print", "prtsc", "prtscr", "prntscrn", "printscreen"], 0xff61),
    (&["execute"], 0xff62),
    (&["insert"], 0xff63),
    (&["help"], 0xff6a),
    (&["del", "delete"], 0xffff),
    (&["pause"], 0xff13),
    (&["scrolllock"], 0xff14),
    (&["numlock"], 0xff7f),
    (&["capslock"], 0xffe5),
    (&["multiply"], 0xffaa),
    (&["add"], 0xffab),
    (&["separator"], 0xffac),
    (&["subtract"], 0xffad),
    (&["decimal"], 0xffae),
    (&["divide"], 0xffaf),
];

/// `12`, but not `+1` or `01`.
fn plain_number(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

/// The keycode of a keysym in the core map: the lowest column that has it, then the lowest code;
/// 0 if no key has it. `keysyms` has `columns` of them for each code from `first` on.
///
/// On the usual map of 105 keys this finds `<` on the extra key of European keyboards, where it
/// needs no shift. PyAutoGUI holds shift for it nevertheless and so types `>`. We do what it does.
pub(super) fn keycode(keysyms: &[u32], columns: u8, first: u8, keysym: u32) -> u8 {
    let columns = usize::from(columns).max(1);
    (0..columns)
        .find_map(|column| keysyms.chunks(columns).position(|row| row.get(column) == Some(&keysym)))
        .and_then(|row| u8::try_from(usize::from(first) + row).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_characters() {
        assert_eq!(keysym("a"), Some(0x61));
        assert_eq!(keysym("A"), Some(0x41));
        assert_eq!(keysym("~"), Some(0x7e));
        assert_eq!(keysym("f24"), Some(0xffd5));
        assert_eq!(keysym("num9"), Some(0xffb9));
        assert_eq!(keysym("prtscr"), keysym("print"));
        for ignored in ["", "é", "command", "f25", "f0", "f01", "num10", "volumeup", "Enter", "fn", "\u{7f}"] {
            assert_eq!(keysym(ignored), None, "{ignored:?}");
        }
    }

    #[test]
    fn case_matters_for_single_characters_only() {
        assert_eq!(normal("PageDown"), "pagedown");
        assert_eq!(normal("B"), "B");
        assert!(is_shifted("B") && is_shifted("<") && !is_shifted("b") && !is_shifted("shift") && !is_shifted(""));
    }

    #[test]
    fn the_lowest_column_wins_before_the_lowest_code() {
        // codes 8, 9, 10 with two columns: `<` is in column 1 of 8 and in column 0 of 10
        let map = [0x2c, 0x3c, 0x2e, 0x3e, 0x3c, 0x3e];
        assert_eq!(keycode(&map, 2, 8, 0x3c), 10);
        assert_eq!(keycode(&map, 2, 8, 0x3e), 9);
        assert_eq!(keycode(&map, 2, 8, 0x41), 0);
    }
}
