//! Any words as a command line of `xdotool`: they are left alone, or they become no more steps than anybody waits for.

use super::{MOST_STEPS, Step, steps};

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let words: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let Some(steps) = steps(&words) else { return };
    assert!(!steps.is_empty() && steps.len() <= MOST_STEPS + words.len(), "{} steps", steps.len());
    for step in steps {
        if let Step::Search(search) = step {
            search.pattern.fits(text);
        }
    }
}
