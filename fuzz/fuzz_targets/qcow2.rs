//! Any bytes as the beginning of a qcow2 file: there is a header or a reason, and never a panic.
#![no_main]

use hotdesk_image::disk::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, Vec<u8>)| {
    let (length, mut head) = input;
    // Half of the time the first bytes are right, so that the rest is looked at.
    if length.is_multiple_of(2) && head.len() >= 8 {
        head[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    }
    if let Ok(header) = Header::parse(&head, length) {
        assert!((9..=21).contains(&header.cluster_bits));
        assert!(header.backing.is_none_or(|name| !name.contains('\0')));
    }
});
