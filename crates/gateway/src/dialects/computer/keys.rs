//! Names of keys as models write them, in the names that desks know.
//!
//! A desk knows the names of X keysyms, which are xdotool's, and the usual plain ones (`ctrl`, `ArrowLeft`, `PageUp`, `cmd`).
//! What is left are the names by which browsers call keys by their place.

/// By their place on the keyboard, as `KeyboardEvent.code` has them, and what else models came up with; in small letters.
const PLACES: [(&str, &str); 37] = [
    ("add", "KP_Add"),
    ("backquote", "grave"),
    ("backslash", "backslash"),
    ("bracketleft", "bracketleft"),
    ("bracketright", "bracketright"),
    ("caps_lock", "Caps_Lock"),
    ("comma", "comma"),
    ("dash", "minus"),
    ("dot", "period"),
    ("equal", "equal"),
    ("equals", "equal"),
    ("forward_slash", "slash"),
    ("hyphen", "minus"),
    ("intlbackslash", "less"),
    ("left_alt", "Alt_L"),
    ("left_control", "Control_L"),
    ("left_ctrl", "Control_L"),
    ("left_shift", "Shift_L"),
    ("metaleft", "Super_L"),
    ("metaright", "Super_R"),
    ("minus", "minus"),
    ("numpadadd", "KP_Add"),
    ("numpaddecimal", "KP_Decimal"),
    ("numpaddivide", "KP_Divide"),
    ("numpadmultiply", "KP_Multiply"),
    ("numpadsubtract", "KP_Subtract"),
    ("oskey", "Super_L"),
    ("osleft", "Super_L"),
    ("period", "period"),
    ("quote", "apostrophe"),
    ("right_alt", "Alt_R"),
    ("right_control", "Control_R"),
    ("right_ctrl", "Control_R"),
    ("right_shift", "Shift_R"),
    ("semicolon", "semicolon"),
    ("slash", "slash"),
    ("super_key", "Super_L"),
];

/// One key.
pub(super) fn key(name: &str) -> String {
    let small = name.trim().to_ascii_lowercase();
    if name == " " {
        return "space".into();
    }
    if let Some((_, known)) = PLACES.iter().find(|(place, _)| *place == small) {
        return (*known).to_owned();
    }
    // `KeyA`, `Digit1`
    for place in ["key", "digit"] {
        if let Some(rest) = small.strip_prefix(place)
            && rest.len() == 1
            && rest.bytes().all(|b| b.is_ascii_alphanumeric())
        {
            return rest.to_owned();
        }
    }
    name.trim().to_owned()
}

/// Keys that are pressed together: `ctrl+shift+t`. The plus itself is a key as well.
pub(super) fn chord(text: &str) -> Vec<String> {
    if text.chars().count() < 2 {
        return vec![key(text)];
    }
    let (head, plus) = match text.strip_suffix("++") {
        Some(head) => (head, Some("+".to_owned())),
        None => (text, None),
    };
    head.split('+').map(key).filter(|key| !key.is_empty()).chain(plus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_place_become_names_of_keys() {
        for (name, known) in [
            ("KeyA", "a"),
            ("Digit1", "1"),
            ("MetaLeft", "Super_L"),
            ("NumpadAdd", "KP_Add"),
            ("ENTER", "ENTER"),
            ("Return", "Return"),
            ("ArrowLeft", "ArrowLeft"),
            (" ", "space"),
            ("/", "/"),
            ("Keypad", "Keypad"),
        ] {
            assert_eq!(key(name), known);
        }
        assert_eq!(chord("ctrl+shift+KeyT"), ["ctrl", "shift", "t"]);
        assert_eq!(chord("ctrl++"), ["ctrl", "+"]);
        assert_eq!(chord("+"), ["+"]);
        assert_eq!(chord("Page_Down"), ["Page_Down"]);
        assert!(PLACES.is_sorted(), "so that one finds them");
    }
}
