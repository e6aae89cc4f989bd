//! Any bytes as the rest of an upload. The first `file_path` counts, and it is ours.

pub(crate) fn run(rest: &[u8]) {
    let mut body = b"--B\r\nContent-Disposition: form-data; name=\"file_path\"\r\n\r\nfuzzed\r\n--B\r\n".to_vec();
    body.extend(rest);
    super::desk::send("/setup/upload", "multipart/form-data; boundary=B", body);
}
