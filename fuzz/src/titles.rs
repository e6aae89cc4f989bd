//! Any bytes that a program writes on its windows: they become text, and not much more of it.

use super::{Wanted, decode_compound, decode_string};

pub(crate) fn run(input: &[u8]) {
    let plain = decode_string(input);
    match std::str::from_utf8(input) {
        Ok(text) => assert_eq!(plain, text),
        Err(_) => assert_eq!(plain.chars().count(), input.len()),
    }
    let compound = decode_compound(input);
    assert!(compound.len() <= 3 * input.len());
    for text in [plain, compound] {
        assert!(Wanted::new(&text, true).fits(&text) && Wanted::new(&text, false).fits(&text));
    }
}
