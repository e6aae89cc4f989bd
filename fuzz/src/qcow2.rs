//! Any bytes as the beginning of a qcow2 file: there is a header or a reason, and never a panic. The first eight bytes are the
//! length of the file.

use hotdesk_image::disk::Header;

pub(crate) fn run(input: &[u8]) {
    let Some((length, head)) = input.split_first_chunk::<8>() else { return };
    let length = u64::from_le_bytes(*length);
    let mut head = head.to_vec();
    // Half of the time the first bytes are right, so that the rest is looked at.
    if length.is_multiple_of(2) && head.len() >= 8 {
        head[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    }
    if let Ok(header) = Header::parse(&head, length) {
        assert!((9..=21).contains(&header.cluster_bits));
        assert!(header.backing.is_none_or(|name| !name.contains('\0')));
    }
}
