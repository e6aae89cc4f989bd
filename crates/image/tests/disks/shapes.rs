//! A disk keeps its content in every shape, and QEMU agrees.

use crate::{MIB, join, meter, names, on_disk, place, qemu_img, raw_disk, same, text};
use hotdesk_image::Error;
use hotdesk_image::disk::{self, Compression, Difference, Format, Manifest};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

#[test]
fn a_split_disk_opens_without_assembly() {
    let place = place();
    let (raw, parts) = (join(&place, "disk.raw"), join(&place, "parts"));
    raw_disk(&raw, 300 * MIB + 512, 60 * MIB);
    let limit = 16 * MIB;
    let manifest = disk::split(&raw, &parts, limit, &meter()).unwrap();
    assert!(manifest.parts.len() > 1, "{manifest:?}");
    for part in &manifest.parts {
        let path = parts.join(&part.file);
        let length = path.metadata().unwrap().len();
        assert!(length == part.size && length <= limit, "{part:?}");
        qemu_img(&["check", "-f", "qcow2", text(&path)]);
        let sum = Command::new("sha256sum").arg(&path).output().unwrap();
        assert!(String::from_utf8(sum.stdout).unwrap().starts_with(&part.sha256));
    }
    // Alike: none has less than half of the largest.
    let largest = manifest.parts.iter().map(|part| part.size).max().unwrap();
    assert!(manifest.parts.iter().all(|part| part.size * 2 >= largest), "{manifest:?}");
    let open = manifest.open_path(&parts);
    same(&raw, "raw", &open, "qcow2");
    assert_eq!(Manifest::read(&parts).unwrap(), manifest);

    // Also after it was moved, because names in it have no directories.
    let moved = join(&place, "moved");
    std::fs::rename(&parts, &moved).unwrap();
    let open = manifest.open_path(&moved);
    same(&raw, "raw", &open, "qcow2");
    assert_eq!(disk::verify(&raw, &open, &meter()).unwrap(), None);
    let info = disk::info(&open).unwrap();
    assert_eq!((info.chain.len(), info.compression), (manifest.parts.len(), Some(Compression::Zstd)));
    assert_eq!(info.virtual_size, Some(300 * MIB + 512));
    let args = disk::open_args(&open).unwrap();
    assert_eq!(args.virtual_size, 300 * MIB + 512);
    qemu_img(&["compare", &disk::open_args(&raw).unwrap().filename(), &args.filename()]);

    let (one, again) = (join(&place, "one.qcow2"), join(&place, "again.raw"));
    disk::join(&moved, &one, Format::Qcow2, &meter()).unwrap();
    qemu_img(&["check", "-f", "qcow2", text(&one)]);
    same(&raw, "raw", &one, "qcow2");
    disk::join(&moved, &again, Format::Raw, &meter()).unwrap();
    same(&raw, "raw", &again, "raw");
    assert!(on_disk(&again) < 70 * MIB, "zeros were written: {}", on_disk(&again));

    // A second time, over what is there.
    let refusal = disk::split(&raw, &moved, limit, &meter()).unwrap_err().to_string();
    assert!(refusal.contains("there already"), "{refusal}");
    // A part that was changed is noticed.
    let part = moved.join(&manifest.parts[1].file);
    File::options().write(true).open(&part).unwrap().write_all_at(b"x", 5 * MIB).unwrap();
    let refusal = disk::join(&moved, &join(&place, "never.raw"), Format::Raw, &meter()).unwrap_err().to_string();
    assert!(refusal.contains("its digest is not that of the manifest"), "{refusal}");
    assert!(!join(&place, "never.raw").exists());
}

#[test]
fn disks_of_every_kind_are_read_as_qemu_reads_them() {
    let place = place();
    let raw = join(&place, "disk.raw");
    raw_disk(&raw, 100 * MIB, 12 * MIB);
    for (name, options) in [
        ("plain.qcow2", &["-O", "qcow2"] as &[&str]),
        ("old.qcow2", &["-O", "qcow2", "-o", "compat=0.10"]),
        ("zlib.qcow2", &["-O", "qcow2", "-c"]),
        ("small.qcow2", &["-O", "qcow2", "-c", "-o", "cluster_size=4k,compression_type=zstd"]),
        ("large.qcow2", &["-O", "qcow2", "-c", "-o", "cluster_size=1M,compression_type=zstd"]),
        ("disk.vmdk", &["-O", "vmdk"]),
        ("stream.vmdk", &["-O", "vmdk", "-o", "subformat=streamOptimized"]),
        ("disk.vdi", &["-O", "vdi"]),
    ] {
        let path = join(&place, name);
        let mut args = vec!["convert", "-f", "raw"];
        args.extend(options);
        args.extend([text(&raw), text(&path)]);
        qemu_img(&args);
        assert_eq!(disk::verify(&raw, &path, &meter()).unwrap(), None, "{name}");
    }
    // What is above hides what is below, also with zeros, and in clusters of another size.
    let (base, top) = (join(&place, "small.qcow2"), join(&place, "top.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "small.qcow2", text(&top), "120M"]);
    let write = ["-c", "write -P 9 33333 100000", "-c", "write -z 1M 128k", "-c", "write -P 3 110M 1M"];
    let status = Command::new("qemu-io").args(["-f", "qcow2"]).args(write).arg(&top).output().unwrap();
    assert!(status.status.success());
    let flat = join(&place, "flat.raw");
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", text(&top), text(&flat)]);
    assert_eq!(disk::verify(&top, &flat, &meter()).unwrap(), None);
    assert_eq!(disk::verify(&base, &raw, &meter()).unwrap(), None);
    assert_eq!(disk::verify(&raw, &flat, &meter()).unwrap(), Some(Difference::Size { a: 100 * MIB, b: 120 * MIB }));
    File::options().write(true).open(&raw).unwrap().write_all_at(b"!", 77 * MIB + 123).unwrap();
    assert_eq!(disk::verify(&base, &raw, &meter()).unwrap(), Some(Difference::Byte { offset: 77 * MIB + 123 }));
    let parts = join(&place, "parts");
    disk::split(&top, &parts, 4 * MIB, &meter()).unwrap();
    same(&flat, "raw", &Manifest::read(&parts).unwrap().open_path(&parts), "qcow2");
}

#[test]
fn shrinking_leaves_out_what_is_not_used() {
    let place = place();
    let raw = join(&place, "disk.raw");
    // A file system with a file, and the remains of another one.
    let tree = join(&place, "tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("kept"), vec![b'k'; 3 * MIB as usize]).unwrap();
    raw_disk(&raw, 200 * MIB, 0x40 * MIB);
    // An MBR with one Linux partition at 1 MiB.
    let mut table = vec![0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&(199 * 2048u32).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    File::options().write(true).open(&raw).unwrap().write_all_at(&table, 0).unwrap();
    let made = Command::new("/usr/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard,offset=1048576", "-d", text(&tree), text(&raw), "199M"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let before = Command::new("sha256sum").arg(&raw).output().unwrap().stdout;

    let (zeros, free) = (join(&place, "zeros.qcow2"), join(&place, "free.qcow2"));
    let first = disk::shrink(&raw, &zeros, false, &meter()).unwrap();
    same(&raw, "raw", &zeros, "qcow2");
    qemu_img(&["check", "-f", "qcow2", text(&zeros)]);
    let second = disk::shrink(&raw, &free, true, &meter()).unwrap();
    assert_eq!(second.notes, Vec::<String>::new());
    assert!(second.after * 4 < first.after, "{first:?} {second:?}");
    qemu_img(&["check", "-f", "qcow2", text(&free)]);
    assert_eq!(Command::new("sha256sum").arg(&raw).output().unwrap().stdout, before, "the source was written");
    // The file is still there.
    let flat = join(&place, "flat.raw");
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", text(&free), text(&flat)]);
    let image = format!("{}?offset=1048576", flat.display());
    let read = Command::new("/usr/sbin/debugfs").args(["-R", "cat /kept", &image]).output().unwrap();
    assert_eq!(read.stdout, vec![b'k'; 3 * MIB as usize], "{}", String::from_utf8_lossy(&read.stderr));
    assert!(!names(place.path()).iter().any(|name| name.starts_with('.')), "{:?}", names(place.path()));

    // Other formats become qcow2 too.
    let (vmdk, out) = (join(&place, "disk.vmdk"), join(&place, "from-vmdk.qcow2"));
    qemu_img(&["convert", "-f", "qcow2", "-O", "vmdk", text(&free), text(&vmdk)]);
    disk::shrink(&vmdk, &out, false, &meter()).unwrap();
    same(&free, "qcow2", &out, "qcow2");
}

#[test]
fn limits_are_told_and_nothing_is_left() {
    let place = place();
    let (raw, parts) = (join(&place, "disk.raw"), join(&place, "parts"));
    raw_disk(&raw, 64 * MIB, 16 * MIB);
    let refusal = disk::split(&raw, &parts, 100_000, &meter()).unwrap_err();
    assert!(matches!(&refusal, Error::Invalid(why) if why.contains("too small")), "{refusal}");
    assert!(!parts.exists());
    // Stopped at once.
    let stopped = meter();
    stopped.stop();
    disk::split(&raw, &parts, 8 * MIB, &stopped).unwrap_err();
    disk::shrink(&raw, &join(&place, "small.qcow2"), false, &stopped).unwrap_err();
    assert_eq!(names(place.path()), ["disk.raw"]);
    // Stopped on the way.
    let midway = std::sync::Arc::new(meter());
    let watched = midway.clone();
    let stopper = std::thread::spawn(move || {
        while watched.progress().0 < 8 * MIB || watched.stage() != "writing parts" {
            std::thread::yield_now();
        }
        watched.stop();
    });
    let stopped = disk::split(&raw, &parts, 8 * MIB, &midway);
    stopper.join().unwrap();
    match stopped {
        Err(_) => assert_eq!(names(place.path()), ["disk.raw"]),
        // It was faster.
        Ok(_) => std::fs::remove_dir_all(&parts).unwrap(),
    }
    // An empty disk is one part.
    let empty = join(&place, "empty.raw");
    File::create(&empty).unwrap().set_len(10 << 30).unwrap();
    let manifest = disk::split(&empty, &parts, 8 * MIB, &meter()).unwrap();
    assert_eq!(manifest.parts.len(), 1);
    same(&empty, "raw", &manifest.open_path(&parts), "qcow2");
    let info = disk::info(&empty).unwrap();
    assert_eq!((info.virtual_size, info.data_size), (Some(10 << 30), Some(0)));
}
