#![no_main]

#[path = "../src/desk.rs"]
mod desk;
#[path = "../src/multipart.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::run(input));
