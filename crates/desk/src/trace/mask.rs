//! Texts that are nobody's business become bullets, always as many, before anything is written.

use hotdesk_api::access::Act;
use hotdesk_api::action::Action;
use hotdesk_api::trace::{Deed, Mask, OtherDeed};

/// What a masked text becomes. Its length tells nothing.
pub(super) const BULLETS: &str = "••••••••";

/// Password fields, as far as programs tell of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passwords {
    /// One is on the screen.
    pub(super) showing: bool,
    /// One has the keyboard.
    pub(super) focused: bool,
}

/// Whether a text may be among them.
pub(super) fn has_text(deeds: &[Deed]) -> bool {
    deeds.iter().any(|deed| text_of(&mut deed.clone()).is_some())
}

/// Masks what has to be. `before` and `after` are what was on the screen then.
pub(super) fn mask(deeds: &mut [Deed], how: Mask, before: Passwords, after: Passwords) {
    // A list may go to a password field, fill it and leave it again; a single text goes where the keyboard is.
    let password = match deeds.len() {
        1 => before.focused || after.focused,
        _ => before.showing || after.showing,
    };
    let all = match how {
        Mask::Nothing => false,
        Mask::Typed => true,
        Mask::Secrets => password,
    };
    for deed in deeds {
        let secret = matches!(deed, Deed::Hands(Action::Type { secret: true, .. })) && how != Mask::Nothing;
        if !all && !secret {
            continue;
        }
        if let Deed::Other(OtherDeed::Copy { bytes, .. }) = deed {
            *bytes = 0;
        }
        if let Some(text) = text_of(deed) {
            *text = BULLETS.into();
        }
    }
}

/// The text that a deed types, one character as a key included.
fn text_of(deed: &mut Deed) -> Option<&mut String> {
    match deed {
        Deed::Hands(Action::Type { text, .. }) => Some(text),
        Deed::Hands(Action::Key { keys, .. } | Action::KeyDown { keys } | Action::KeyUp { keys }) => {
            let shifted = keys.len() == 2 && keys[0].eq_ignore_ascii_case("shift");
            let key = if keys.len() == 1 || shifted { keys.last_mut() } else { None };
            key.filter(|key| key.chars().count() == 1)
        }
        Deed::Other(OtherDeed::Element { act: Act::SetText { text, .. }, .. }) => Some(text),
        Deed::Other(OtherDeed::Copy { text, .. }) => text.as_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::clipboard::Selection;

    fn typed(text: &str, secret: bool) -> Deed {
        Deed::Hands(Action::Type { text: text.into(), interval_ms: 0, secret })
    }

    fn masked(deeds: &[Deed], how: Mask, focused: bool, showing: bool) -> String {
        let mut deeds = deeds.to_vec();
        mask(&mut deeds, how, Passwords { focused, showing }, Passwords::default());
        serde_json::to_string(&deeds).unwrap()
    }

    #[test]
    fn secrets_are_masked_and_their_length_with_them() {
        let one = |text: &str, how, focused| masked(&[typed(text, false)], how, focused, focused);
        assert_eq!(one("hunter2", Mask::Secrets, true), one("a", Mask::Secrets, true));
        assert!(one("hunter2", Mask::Secrets, false).contains("hunter2"));
        assert!(!one("hunter2", Mask::Typed, false).contains("hunter2"));
        assert!(one("hunter2", Mask::Nothing, true).contains("hunter2"));
        assert!(!masked(&[typed("hunter2", true)], Mask::Secrets, false, false).contains("hunter2"));
        assert!(masked(&[typed("hunter2", true)], Mask::Nothing, false, false).contains("hunter2"));
    }

    #[test]
    fn a_list_is_masked_as_soon_as_a_password_field_is_in_sight() {
        let tab = Deed::Hands(Action::Key { keys: vec!["Tab".into()], times: 1 });
        let list = [typed("ada", false), tab, typed("hunter2", false)];
        assert!(!masked(&list, Mask::Secrets, false, true).contains("hunter2"));
        assert!(masked(&list, Mask::Secrets, false, false).contains("hunter2"));
        assert!(masked(&list, Mask::Secrets, false, true).contains("Tab"));
    }

    #[test]
    fn other_ways_to_write_are_masked_too() {
        let key = Deed::Hands(Action::Key { keys: vec!["q".into()], times: 1 });
        let set = Deed::Other(OtherDeed::Element { act: Act::SetText { id: "i".into(), text: "hunter2".into() }, element: None });
        let text = Some("hunter2".to_owned());
        let copy = Deed::Other(OtherDeed::Copy { selection: Selection::Clipboard, r#type: "text/plain".into(), bytes: 7, text });
        for deed in [key, set, copy] {
            assert!(has_text(std::slice::from_ref(&deed)));
            let text = masked(&[deed], Mask::Typed, false, false);
            assert!(!text.contains("hunter2") && !text.contains("\"q\"") && !text.contains("\"bytes\":7"), "{text}");
        }
    }
}
