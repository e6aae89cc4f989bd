//! Any text as a program: it is left alone or it runs to its end, within its bounds.

use hotdesk_desk::pyautogui::understand;

pub(crate) fn run(input: &[u8]) {
    let Ok(code) = std::str::from_utf8(input) else { return };
    let Some(program) = understand(code) else { return };
    for pointer in [(0, 0), (330, 270)] {
        let (_, outcome) = program.rehearse((1280, 720), pointer);
        // The rehearsal let it pass, so the run may not refuse it any more.
        assert!(!outcome.stderr.contains("hotdesk can't go on"), "{}", outcome.stderr);
    }
}
