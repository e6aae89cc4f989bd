#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hotdesk_gateway::fuzz::gzip(input));
