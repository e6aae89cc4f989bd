//! What keys are called: plain names as pyautogui, xdotool and browsers use them, names of X
//! keysyms, and single characters.

use std::borrow::Cow;
use std::sync::OnceLock;
use xkeysym::{Keysym, key};

/// The longest name; longer ones are not looked up, only refused.
const LONGEST_NAME: usize = 64;

/// Plain names without case, blanks, `_` and `-`.
const PLAIN: &[(&str, u32)] = &[
    ("add", key::KP_Add),
    ("alt", key::Alt_L),
    ("altgr", key::ISO_Level3_Shift),
    ("altl", key::Alt_L),
    ("altleft", key::Alt_L),
    ("altr", key::Alt_R),
    ("altright", key::Alt_R),
    ("apps", key::Menu),
    ("arrowdown", key::Down),
    ("arrowleft", key::Left),
    ("arrowright", key::Right),
    ("arrowup", key::Up),
    ("backspace", key::BackSpace),
    ("break", key::Break),
    ("browserback", key::XF86_Back),
    ("browserfavorites", key::XF86_Favorites),
    ("browserforward", key::XF86_Forward),
    ("browserhome", key::XF86_HomePage),
    ("browserrefresh", key::XF86_Refresh),
    ("browsersearch", key::XF86_Search),
    ("browserstop", key::XF86_Stop),
    ("capslock", key::Caps_Lock),
    ("clear", key::Clear),
    ("cmd", key::Super_L),
    ("command", key::Super_L),
    ("contextmenu", key::Menu),
    ("control", key::Control_L),
    ("controll", key::Control_L),
    ("controlleft", key::Control_L),
    ("controlr", key::Control_R),
    ("controlright", key::Control_R),
    ("ctrl", key::Control_L),
    ("ctrll", key::Control_L),
    ("ctrlleft", key::Control_L),
    ("ctrlr", key::Control_R),
    ("ctrlright", key::Control_R),
    ("decimal", key::KP_Decimal),
    ("del", key::Delete),
    ("delete", key::Delete),
    ("divide", key::KP_Divide),
    ("down", key::Down),
    ("downarrow", key::Down),
    ("end", key::End),
    ("enter", key::Return),
    ("esc", key::Escape),
    ("escape", key::Escape),
    ("execute", key::Execute),
    ("help", key::Help),
    ("home", key::Home),
    ("hyper", key::Hyper_L),
    ("ins", key::Insert),
    ("insert", key::Insert),
    ("kpenter", key::KP_Enter),
    ("left", key::Left),
    ("leftarrow", key::Left),
    ("launchapp1", key::XF86_Launch1),
    ("launchapp2", key::XF86_Launch2),
    ("launchmail", key::XF86_Mail),
    ("launchmediaselect", key::XF86_AudioMedia),
    ("menu", key::Menu),
    ("meta", key::Super_L),
    ("multiply", key::KP_Multiply),
    ("next", key::Page_Down),
    ("nexttrack", key::XF86_AudioNext),
    ("num0", key::KP_0),
    ("num1", key::KP_1),
    ("num2", key::KP_2),
    ("num3", key::KP_3),
    ("num4", key::KP_4),
    ("num5", key::KP_5),
    ("num6", key::KP_6),
    ("num7", key::KP_7),
    ("num8", key::KP_8),
    ("num9", key::KP_9),
    ("numlock", key::Num_Lock),
    ("numpadenter", key::KP_Enter),
    ("option", key::Alt_L),
    ("optionleft", key::Alt_L),
    ("optionright", key::Alt_R),
    ("os", key::Super_L),
    ("pagedown", key::Page_Down),
    ("pageup", key::Page_Up),
    ("pause", key::Pause),
    ("pgdn", key::Page_Down),
    ("pgdown", key::Page_Down),
    ("pgup", key::Page_Up),
    ("playpause", key::XF86_AudioPlay),
    ("prevtrack", key::XF86_AudioPrev),
    ("print", key::Print),
    ("printscreen", key::Print),
    ("prior", key::Page_Up),
    ("prntscrn", key::Print),
    ("prtsc", key::Print),
    ("prtscr", key::Print),
    ("return", key::Return),
    ("right", key::Right),
    ("rightarrow", key::Right),
    ("scrolllock", key::Scroll_Lock),
    ("select", key::Select),
    ("separator", key::KP_Separator),
    ("shift", key::Shift_L),
    ("shiftl", key::Shift_L),
    ("shiftleft", key::Shift_L),
    ("shiftr", key::Shift_R),
    ("shiftright", key::Shift_R),
    ("sleep", key::XF86_Sleep),
    ("space", key::space),
    ("spacebar", key::space),
    ("stop", key::XF86_AudioStop),
    ("subtract", key::KP_Subtract),
    ("super", key::Super_L),
    ("superl", key::Super_L),
    ("superleft", key::Super_L),
    ("superr", key::Super_R),
    ("superright", key::Super_R),
    ("tab", key::Tab),
    ("up", key::Up),
    ("uparrow", key::Up),
    ("volumedown", key::XF86_AudioLowerVolume),
    ("volumemute", key::XF86_AudioMute),
    ("volumeup", key::XF86_AudioRaiseVolume),
    ("win", key::Super_L),
    ("windows", key::Super_L),
    ("winleft", key::Super_L),
    ("winright", key::Super_R),
];

/// The keysym of a key's name.
pub(super) fn keysym(name: &str) -> Option<u32> {
    let mut characters = name.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return character_keysym(only);
    }
    if name.len() > LONGEST_NAME {
        return None;
    }
    exact(name).or_else(|| plain(name)).or_else(|| code_point(name)).or_else(|| loose(name))
}

/// The keysym that stands for a character, the control characters of text included.
pub(super) fn character_keysym(character: char) -> Option<u32> {
    match character {
        '\n' | '\r' => Some(key::Return),
        '\t' => Some(key::Tab),
        '\u{8}' => Some(key::BackSpace),
        '\u{1b}' => Some(key::Escape),
        '\u{7f}' => Some(key::Delete),
        _ if character.is_control() => None,
        ' '..='\u{ff}' => Some(character as u32),
        // Noncharacters are no text, and some programs die of them.
        _ if (character as u32 & 0xfffe) == 0xfffe || ('\u{fdd0}'..='\u{fdef}').contains(&character) => None,
        _ => Some(0x0100_0000 | character as u32),
    }
}

/// Splits `ctrl+shift+t` where it is written as one; the plus itself is a key as well.
pub(super) fn split(chord: &str) -> Vec<&str> {
    if chord.chars().count() < 2 || keysym(chord).is_some() {
        return vec![chord];
    }
    let (head, plus) = match chord.strip_suffix("++") {
        Some(head) => (head, Some("+")),
        None => (chord, None),
    };
    head.split('+').map(str::trim).chain(plus).collect()
}

/// A name by which the keysym is found again, as people write it.
pub(super) fn name(keysym: u32) -> String {
    match keysym {
        key::Control_L | key::Control_R => "ctrl".into(),
        key::Shift_L | key::Shift_R => "shift".into(),
        key::Alt_L | key::Alt_R => "alt".into(),
        key::Super_L | key::Super_R => "super".into(),
        key::ISO_Level3_Shift => "altgr".into(),
        key::Page_Up => "Page_Up".into(),
        key::Page_Down => "Page_Down".into(),
        _ => match Keysym::new(keysym).key_char().filter(|c| !c.is_control() && !c.is_whitespace()) {
            Some(character) if character_keysym(character) == Some(keysym) => character.into(),
            _ => Keysym::new(keysym).name().map_or_else(|| format!("0x{keysym:x}"), |name| x_name(name).into_owned()),
        },
    }
}

/// All plain names.
pub(super) fn plain_names() -> impl Iterator<Item = &'static str> {
    PLAIN.iter().map(|(name, _)| *name)
}

/// All names of X keysyms.
pub(super) fn keysym_names() -> impl Iterator<Item = &'static str> {
    table().iter().map(|(name, _)| name.as_ref())
}

fn exact(name: &str) -> Option<u32> {
    let table = table();
    let at = table.binary_search_by(|(known, _)| known.as_ref().cmp(name)).ok()?;
    table.get(at).map(|(_, keysym)| *keysym)
}

fn plain(name: &str) -> Option<u32> {
    let bare: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect();
    if let Some((_, keysym)) = PLAIN.iter().find(|(known, _)| *known == bare) {
        return Some(*keysym);
    }
    // `kp_5`, `numpad5`
    let digit = bare.strip_prefix("numpad").or_else(|| bare.strip_prefix("kp"))?;
    match digit.as_bytes() {
        [digit @ b'0'..=b'9'] => Some(key::KP_0 + u32::from(digit - b'0')),
        _ => None,
    }
}

/// `U+00E9` and xdotool's `U00E9`.
fn code_point(name: &str) -> Option<u32> {
    let hex = name.strip_prefix("U+").or_else(|| name.strip_prefix('U'))?;
    if !(4..=6).contains(&hex.len()) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    character_keysym(char::from_u32(u32::from_str_radix(hex, 16).ok()?)?)
}

fn loose(name: &str) -> Option<u32> {
    table().iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, keysym)| *keysym)
}

/// Names of keysyms, sorted. Made once, from the numbers that have names.
fn table() -> &'static [(Cow<'static, str>, u32)] {
    static TABLE: OnceLock<Vec<(Cow<str>, u32)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let core = 1..=0xffff;
        let vendor = 0x1008_1000..=0x1008_ffff;
        let mut table: Vec<_> = core.chain(vendor).filter_map(|raw| Some((x_name(Keysym::new(raw).name()?), raw))).collect();
        // Second names of one number, which the table of numbers can't give.
        for (name, raw) in [
            ("Page_Up", key::Page_Up),
            ("Page_Down", key::Page_Down),
            ("KP_Page_Up", key::KP_Page_Up),
            ("KP_Page_Down", key::KP_Page_Down),
        ] {
            table.push((name.into(), raw));
        }
        table.sort_unstable();
        table.dedup_by(|a, b| a.0 == b.0);
        table
    })
}

/// `XK_Return` is called `Return`, `XF86XK_Sleep` is called `XF86Sleep`.
fn x_name(symbol: &'static str) -> Cow<'static, str> {
    match symbol.split_once("XK_") {
        Some(("", name)) => name.into(),
        Some((vendor, name)) => format!("{vendor}{name}").into(),
        None => symbol.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_tradition_are_known() {
        for (name, expected) in [
            ("ctrl", key::Control_L),
            ("Control_L", key::Control_L),
            ("CTRL", key::Control_L),
            ("cmd", key::Super_L),
            ("pgup", key::Page_Up),
            ("Page_Up", key::Page_Up),
            ("Prior", key::Page_Up),
            ("page_up", key::Page_Up),
            ("ArrowDown", key::Down),
            ("enter", key::Return),
            ("Return", key::Return),
            ("kp_enter", key::KP_Enter),
            ("KP_Enter", key::KP_Enter),
            ("num7", key::KP_7),
            ("kp_7", key::KP_7),
            ("f5", key::F5),
            ("F24", key::F24),
            ("a", key::a),
            ("A", key::A),
            ("ä", key::adiaeresis),
            ("Aacute", key::Aacute),
            ("aacute", key::aacute),
            ("U+1F600", 0x0101_f600),
            ("U20AC", 0x0100_20ac),
            ("\n", key::Return),
            ("plus", key::plus),
            ("+", key::plus),
            ("XF86AudioMute", key::XF86_AudioMute),
            ("volumemute", key::XF86_AudioMute),
            ("altgr", key::ISO_Level3_Shift),
            ("dead_acute", key::dead_acute),
        ] {
            assert_eq!(keysym(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn nonsense_is_unknown() {
        for name in ["", "no such key", "ctrll1", "\u{1}", "U+D800", "U+110000", "\u{fffe}", &"x".repeat(1000)] {
            assert_eq!(keysym(name), None, "{name}");
        }
    }

    #[test]
    fn chords_are_split() {
        assert_eq!(split("ctrl+shift+t"), ["ctrl", "shift", "t"]);
        assert_eq!(split("ctrl++"), ["ctrl", "+"]);
        assert_eq!(split("+"), ["+"]);
        assert_eq!(split("U+20AC"), ["U+20AC"]);
        assert_eq!(split("plus"), ["plus"]);
    }

    #[test]
    fn plain_names_are_sorted_and_found() {
        assert!(plain_names().all(|name| keysym(name).is_some()));
        assert!(keysym_names().all(|name| name.len() > LONGEST_NAME || keysym(name).is_some()));
    }
}
