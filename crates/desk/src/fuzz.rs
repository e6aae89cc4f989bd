//! The fuzz targets, bounded: without coverage to guide them, but built and run with every other test. `scripts/fuzz` runs them
//! for as long as one likes.

#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/src/desk.rs"]
mod desk;
#[path = "../../../fuzz/src/json.rs"]
mod json;
#[path = "../../../fuzz/src/multipart.rs"]
mod multipart;
#[path = "../../../fuzz/src/pyautogui.rs"]
mod pyautogui;

#[test]
fn any_json_is_answered() {
    bounded::run("json", 2_000, json::run);
}

#[test]
fn any_upload_is_answered() {
    bounded::run("multipart", 2_000, multipart::run);
}

#[test]
fn any_program_is_left_alone_or_runs() {
    bounded::run("pyautogui", 5_000, pyautogui::run);
}
