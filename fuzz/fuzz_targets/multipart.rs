//! Any bytes as the rest of an upload. The first `file_path` counts, and it is ours.
#![no_main]

mod desk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|rest: Vec<u8>| {
    let mut body = b"--B\r\nContent-Disposition: form-data; name=\"file_path\"\r\n\r\nfuzzed\r\n--B\r\n".to_vec();
    body.extend(rest);
    desk::send("/setup/upload", "multipart/form-data; boundary=B", body);
});
