#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hotdesk_desk::fuzz::json(input));
