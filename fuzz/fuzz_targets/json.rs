//! Any bytes as JSON: every route that runs no program answers, and never by a panic.
#![no_main]

mod desk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let paths = ["/setup/activate_window", "/setup/close_window", "/list_directory", "/setup/download_file"];
    let path = paths[input.0 as usize % paths.len()];
    // Addresses are not fuzzed: nothing may be fetched.
    if path == "/setup/download_file" && input.1.windows(3).any(|w| w.eq_ignore_ascii_case(b"url") || w.contains(&b'\\')) {
        return;
    }
    desk::send(path, "application/json", input.1);
});
