//! Disks that want something are refused before QEMU sees them.

use crate::{MIB, join, meter, place, qemu_img, raw_disk, text};
use hotdesk_image::disk;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn refused(path: &Path) -> String {
    let out = path.with_file_name("out.qcow2");
    let parts = path.with_file_name("out-parts");
    let why = disk::check_safe(path).unwrap_err().to_string();
    assert_eq!(disk::info(path).unwrap_err().to_string(), why);
    assert_eq!(disk::shrink(path, &out, true, &meter()).unwrap_err().to_string(), why);
    assert_eq!(disk::split(path, &parts, 8 * MIB, &meter()).unwrap_err().to_string(), why);
    assert_eq!(disk::verify(path, path, &meter()).unwrap_err().to_string(), why);
    assert!(disk::open_args(path).is_err());
    assert!(!out.exists() && !parts.exists());
    why
}

#[test]
fn files_of_the_machine_stay_closed() {
    let place = place();
    let path = join(&place, "evil.qcow2");
    for backing in
        ["/etc/passwd", "../../etc/passwd", "nbd://127.0.0.1:1/x", "json:{\"driver\":\"raw\",\"file\":\"/etc/passwd\"}"]
    {
        qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", backing, text(&path), "64M"]);
        let why = refused(&path);
        assert!(why.contains("same directory") || why.contains("no protocols"), "{backing}: {why}");
    }
    let data = join(&place, "data");
    let options = format!("data_file={},data_file_raw=on", data.display());
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", &options, text(&path), "64M"]);
    assert!(refused(&path).contains("its data is in another file"));
    // A descriptor that names files, and one that hides as a disk.
    let vmdk = join(&place, "evil.vmdk");
    std::fs::write(&vmdk, "# Disk DescriptorFile\nversion=1\ncreateType=\"monolithicFlat\"\nRW 1 FLAT \"/etc/passwd\" 0\n")
        .unwrap();
    assert!(refused(&vmdk).contains("names other files"));
}

#[test]
fn circles_and_lies_are_told() {
    let place = place();
    let (a, b) = (join(&place, "a.qcow2"), join(&place, "b.qcow2"));
    for (path, backing) in [(&a, "b.qcow2"), (&b, "a.qcow2")] {
        qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", backing, text(path), "64M"]);
    }
    assert!(refused(&a).contains("backing file of itself"));
    // A size that nobody has.
    File::options().write(true).open(&b).unwrap().write_all_at(&u64::MAX.to_be_bytes(), 24).unwrap();
    assert!(refused(&b).contains("are the most"));
    for length in [0, 3, 50, 100, 70_000] {
        let whole = join(&place, "whole.qcow2");
        qemu_img(&["create", "-q", "-f", "qcow2", text(&whole), "64M"]);
        File::options().write(true).open(&whole).unwrap().set_len(length).unwrap();
        if length == 3 {
            // Three bytes are a raw disk.
            continue;
        }
        refused(&whole);
    }
}

/// Whatever is wrong in a file, there is an answer.
#[test]
fn damage_is_no_panic() {
    let place = place();
    let (raw, good, bad) = (join(&place, "disk.raw"), join(&place, "good.qcow2"), join(&place, "bad.qcow2"));
    raw_disk(&raw, 8 * MIB, 4 * MIB);
    disk::shrink(&raw, &good, false, &meter()).unwrap();
    let bytes = std::fs::read(&good).unwrap();
    let mut state = 99u64;
    let mut told = 0;
    for round in 0..300 {
        let mut copy = bytes.clone();
        for _ in 0..1 + round % 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of them in the header and the tables, where it hurts.
            let span = if round % 2 == 0 { 200_000.min(copy.len()) } else { copy.len() };
            let at = (state >> 33) as usize % span;
            copy[at] ^= (state >> 20) as u8 | 1;
        }
        std::fs::write(&bad, &copy).unwrap();
        told += usize::from(disk::info(&bad).is_err());
        let _ = disk::verify(&bad, &raw, &meter());
    }
    assert!(told < 300);
    for length in (0..bytes.len()).step_by(bytes.len() / 50) {
        std::fs::write(&bad, &bytes[..length]).unwrap();
        let answer = disk::verify(&bad, &raw, &meter());
        // Only the counts at its end can be missed without a loss.
        assert!(length > bytes.len() - 200_000 || !matches!(answer, Ok(None)), "{length} of {}", bytes.len());
    }
}
