//! Disks of a template that is as small as they come: the same inputs make the same disk, bit for bit.

use hotdesk_image::{Disk, DiskFormat, DiskWish, Error, Library};
use std::path::Path;
use std::process::Command;

const TINY: &str = "
description = 'nothing but the base system'
packages = ['sudo']
run = ['mkdir /made && chown \"$DESK_USER\" /made']
[user]
password = 'password'
sudo = true
[open_with]
'text/plain' = 'x.desktop'
[[files]]
path = '/home/user/a note'
content = 'mine'
";

/// A library of its own, with packages that are kept from run to run of the tests.
fn library(directory: &Path) -> Library {
    let debs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debs");
    let own = directory.join("images/debs");
    std::fs::create_dir_all(&own).unwrap();
    for entry in std::fs::read_dir(&debs).into_iter().flatten().flatten() {
        let _ = std::fs::hard_link(entry.path(), own.join(entry.file_name()));
    }
    let templates = directory.join("templates");
    std::fs::create_dir_all(&templates).unwrap();
    std::fs::write(templates.join("tiny.toml"), TINY).unwrap();
    Library::open(directory.join("images")).unwrap().with_templates(templates)
}

fn keep_packages(directory: &Path) {
    let debs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debs");
    std::fs::create_dir_all(&debs).unwrap();
    for entry in std::fs::read_dir(directory.join("images/debs")).unwrap().flatten() {
        let _ = std::fs::hard_link(entry.path(), debs.join(entry.file_name()));
    }
}

fn wish(directory: &Path, format: DiskFormat, size: u64) -> DiskWish {
    let binary = directory.join("hotdesk");
    std::fs::write(&binary, "#!/bin/sh\n").unwrap();
    DiskWish { format, size: Some(size), binary }
}

#[tokio::test]
async fn the_same_inputs_make_the_same_disk() {
    let first = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let second = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut disks = Vec::new();
    for directory in [first.path(), second.path()] {
        let library = library(directory);
        let disk = library.disk("tiny", &wish(directory, DiskFormat::Raw, 1 << 30), |_| {}).await.unwrap();
        keep_packages(directory);
        // Asked for again, it is the same, at once.
        let again = library.disk("tiny", &wish(directory, DiskFormat::Raw, 1 << 30), |_| {}).await.unwrap();
        assert_eq!(disk, again);
        disks.push(disk);
    }
    assert_eq!(disks[0].info, disks[1].info);
    let compared = Command::new("cmp").args([disks[0].path(), disks[1].path()]).output().unwrap();
    assert!(compared.status.success(), "{}\n{}", String::from_utf8_lossy(&compared.stdout), differences(&disks));
    sound(&disks[0]);

    let tree = library(first.path()).rootfs("tiny").unwrap().path;
    let read = |path: &str| std::fs::read_to_string(tree.join(path)).unwrap();
    assert!(read("etc/shadow").contains("user:$6$hotdesk$"), "the user has a password");
    assert_eq!(read("etc/sudoers.d/hotdesk"), "user ALL=(ALL:ALL) ALL\n");
    assert_eq!(read("etc/xdg/mimeapps.list"), "[Default Applications]\ntext/plain=x.desktop\n");
    assert!(tree.join("made").is_dir());

    // As Google's clouds want it: one sparse file of whole gibibytes.
    let library = library(first.path());
    let packed = library.disk("tiny", &wish(first.path(), DiskFormat::Gce, 1 << 30), |_| {}).await.unwrap();
    let listed = Command::new("tar").arg("-tvzf").arg(packed.path()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("1073741824") && listed.trim_end().ends_with("disk.raw"), "{listed}");
    assert_eq!(library.disks().len(), 2);
    library.remove_disks("tiny").unwrap();
    assert_eq!(library.disks().len(), 0);

    let error = library.disk("tiny", &wish(first.path(), DiskFormat::Raw, 1 << 20), |_| {}).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("at least")), "{error}");
}

/// The file system is one that the kernel's own checker has no word against, and has what was put on it.
fn sound(disk: &Disk) {
    let place = format!("{}?offset=1048576", disk.path().display());
    let checked = Command::new("e2fsck").args(["-f", "-n", &place]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    for (path, part) in [
        ("/etc/hotdesk/boot.toml", "Mode:  0644"),
        ("/usr/local/bin/hotdesk", "Mode:  0755"),
        ("/boot/vmlinuz", "Mode:  0644"),
        ("\"/home/user/a note\"", "User:  1000   Group:  1000"),
        ("/etc/shadow", "User:     0"),
    ] {
        let shown = Command::new("debugfs").args(["-R", &format!("stat {path}"), &place]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(part), "{path}: {shown}");
    }
}

/// The files that differ between the trees of two disks, for the message.
fn differences(disks: &[Disk]) -> String {
    let tree = |disk: &Disk| disk.directory.join("../../rootfs").join(&disk.info.rootfs);
    let compared =
        Command::new("diff").args(["-rq", "--no-dereference"]).args([tree(&disks[0]), tree(&disks[1])]).output().unwrap();
    String::from_utf8_lossy(&compared.stdout).into_owned()
}
