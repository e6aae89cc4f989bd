//! The fuzz targets of this crate; see CONTRIBUTING.md.

#[macro_use]
#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/src/blocks.rs"]
pub(crate) mod blocks;
#[path = "../../../fuzz/src/desk.rs"]
mod desk;
#[path = "../../../fuzz/src/json.rs"]
mod json;
#[path = "../../../fuzz/src/multipart.rs"]
mod multipart;
#[path = "../../../fuzz/src/pyautogui.rs"]
mod pyautogui;
#[path = "../../../fuzz/src/room.rs"]
pub(crate) mod room;

targets! {
    dbus, 20_000, crate::access::wire::fuzz::run;
    json, 2_000, json::run;
    multipart, 2_000, multipart::run;
    pyautogui, 5_000, pyautogui::run;
    ranges, 20_000, crate::server::ranges::fuzz::run;
    rfb, 1_000, crate::view::fuzz::run;
    tar, 500, crate::files::tar::fuzz::run;
    titles, 20_000, crate::windows::text::fuzz::run;
    trace, 2_000, crate::trace::reader::fuzz::run;
}
