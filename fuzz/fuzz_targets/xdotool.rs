#![no_main]
// The `hotdesk` binary is no library, so its parser is built in here; what only the binary calls is not called.
#![allow(dead_code)]

#[path = "../../crates/cli/src/stand_in/xdotool/read.rs"]
mod read;

libfuzzer_sys::fuzz_target!(|input: &[u8]| read::fuzz::run(input));
