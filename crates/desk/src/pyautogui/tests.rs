//! What programs do, event by event, written down from runs of PyAutoGUI 0.9.54 on CPython 3.11.

mod desk;
mod events;
mod language;
mod random;

use super::world::Event;
use super::{Outcome, from_argv, is_python, syntax_error, understand};

/// What OSWorld's client puts before every action.
const PREFIX: &str = "import pyautogui; import time; pyautogui.FAILSAFE = False; ";

/// Runs a program on a screen of 1280x720 with the pointer at 330, 270.
fn run(code: &str) -> (Vec<Event>, Outcome) {
    let program = understand(code).unwrap_or_else(|| panic!("not understood: {code}"));
    program.rehearse((1280, 720), (330, 270))
}

/// The events of an action that succeeds, in short: `M100,150 B1+ B1- K97+ K97- S0.1`.
fn events(action: &str) -> String {
    let (events, outcome) = run(&format!("{PREFIX}{action}"));
    assert_eq!(outcome.returncode, 0, "{action}: {}", outcome.stderr);
    short(&events)
}

fn short(events: &[Event]) -> String {
    let sign = |down: &bool| if *down { '+' } else { '-' };
    let one = |event: &Event| match event {
        Event::Motion(x, y) => format!("M{x},{y}"),
        Event::Button(button, down) => format!("B{button}{}", sign(down)),
        Event::Key(code, down) => format!("K{code}{}", sign(down)),
        Event::Sleep(seconds) => format!("S{:.4}", seconds).trim_end_matches('0').to_owned(),
    };
    events.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn only_python_with_a_program_is_for_us() {
    let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert!(from_argv(&argv(&["python", "-c", "print(1)"])).is_some());
    assert!(from_argv(&argv(&["/usr/bin/python3", "-c", "print(1)"])).is_some());
    assert!(from_argv(&argv(&["python", "-c", "print(1)", "argument"])).is_none());
    assert!(from_argv(&argv(&["python", "-u", "print(1)"])).is_none());
    assert!(from_argv(&argv(&["python", "-c"])).is_none());
    assert!(is_python("python3.11") && !is_python("python2") && !is_python("/opt/python") && !is_python("pythonw"));
}

#[test]
fn broken_grammar_is_left_to_python_or_told_in_its_words() {
    let code = format!("{PREFIX}for i in range(2): pyautogui.press('a')");
    assert!(understand(&code).is_none());
    let outcome = syntax_error(&code).unwrap();
    assert_eq!(outcome.returncode, 1);
    assert!(outcome.stderr.starts_with("  File \"<string>\", line 1\n"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("\nSyntaxError: "), "{}", outcome.stderr);
    assert_eq!(syntax_error("print(1)"), None);
}
