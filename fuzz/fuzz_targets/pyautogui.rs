#![no_main]

#[path = "../src/pyautogui.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::run(input));
