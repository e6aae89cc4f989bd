//! Desks of an ordinary user, and desks on a kernel that can't shift owners.

use crate::place::{Desk, Place, binary, images};
use hotdesk_image::Library;
use hotdesk_provider::local::Config;
use hotdesk_provider::{Progress, Provider};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A user that owns nothing; it need not exist.
const SOMEBODY: u32 = 54_321;
const FOLDER: &str = "HOTDESK_TEST_ROOTLESS";

/// Starts this program again as an ordinary user, with a template that belongs to that user.
#[tokio::test]
async fn an_ordinary_user_has_desks_too() {
    let library = Library::open(images()).unwrap();
    let rootfs = library.build("bare", |_| {}).await.unwrap();
    let folder = tempfile::Builder::new().prefix("hotdesk-rootless-").tempdir_in("/var/tmp").unwrap();
    copy_library(rootfs.path.parent().and_then(Path::parent).unwrap(), &rootfs.digest, &folder.path().join("images"));
    // The binary may lie where this user can't go.
    std::fs::copy(binary(), folder.path().join("hotdesk")).unwrap();
    let me = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &me).unwrap();
    let owner = format!("{SOMEBODY}:{SOMEBODY}");
    assert!(Command::new("chown").args(["-R", &owner]).arg(folder.path()).status().unwrap().success());
    let (uid, gid) = (format!("--reuid={SOMEBODY}"), format!("--regid={SOMEBODY}"));
    let output = Command::new("setpriv")
        .args([&uid, &gid, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(&me)
        .args(["--ignored", "--exact", "rootless::as_an_ordinary_user", "--nocapture"])
        .env(FOLDER, folder.path())
        .env("HOTDESK_BINARY", folder.path().join("hotdesk"))
        .env("HOTDESK_IMAGES", folder.path().join("images"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "is run as an ordinary user by the test above"]
async fn as_an_ordinary_user() {
    assert_eq!(rustix::process::geteuid().as_raw(), SOMEBODY);
    let folder = std::env::var_os(FOLDER).expect("the test above says where");
    let place = Place::at(tempfile::tempdir_in(folder).unwrap(), Config::default()).await;
    let capabilities = place.local.capabilities().await;
    assert!(capabilities.snapshot && !capabilities.memory_limit && !capabilities.disk_limit);
    assert!(place.local.check().await.iter().any(|check| !check.good && check.fix.is_some()));
    let spec = place.spec("d-mine");
    let desk = place.create(&spec).await;
    assert_eq!(desk.sh("id -u; hostname; cat /proc/1/comm").await.text, "1000\nd-mine\nhotdesk");
    assert_ne!(desk.sh("mount -t tmpfs none /mnt || unshare -U true").await.code, 0);
    assert_eq!(desk.sh("grep -c . /proc/net/dev").await.text, "3", "only loopback");
    // The user of the desk is the user of the host, who owns the directory; it is read-only.
    for attempt in ["echo x > /run/hotdesk/x", "ln -sfn /etc/passwd /run/hotdesk/server.sock", "echo x >> /run/hotdesk/desk.toml"]
    {
        assert_ne!(desk.sh(attempt).await.code, 0, "{attempt}");
    }
    assert!(desk.sh("echo kept > ~/kept; rm ~/.bashrc; rm -r ~/Desktop; mkdir ~/Desktop; touch ~/Desktop/x").await.code == 0);
    let usage = place.local.usage("d-mine").await.unwrap();
    assert!(usage.processes >= 5 && usage.memory_bytes > 10 << 20 && usage.disk_bytes > 0, "{usage:?}");

    place.local.snapshot("d-mine", "s-mine", false).await.unwrap();
    let mut fork = place.spec("d-fork");
    fork.snapshot = Some(hotdesk_provider::SnapshotRef { id: "s-mine".into(), memory: false });
    let look = "cat ~/kept; ls ~/.bashrc 2>/dev/null; ls ~/Desktop";
    assert_eq!(place.create(&fork).await.sh(look).await.text, "kept\nx");
    place.local.stop("d-mine").await.unwrap();
    let archive = place.folder.path().join("desk.tar");
    place.local.export("d-mine", &archive).await.unwrap();
    let mut spec = place.spec("d-back");
    spec.network = false;
    place.local.import(&spec, &archive).await.unwrap();
    let (progress, _) = Progress::new();
    let back = Desk::new(&spec, &place.local.start(&spec, &progress).await.unwrap());
    assert_eq!(back.sh(look).await.text, "kept\nx");
    let back = Desk::new(&spec, &place.local.reset(&spec, &progress).await.unwrap());
    assert_eq!(back.sh("ls ~/kept ~/.bashrc 2>/dev/null").await.text, "/home/user/.bashrc");
    for id in ["d-mine", "d-fork", "d-back"] {
        place.local.delete(id).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(place.data().join("desks")).unwrap().count(), 0);
}

#[tokio::test]
async fn where_owners_can_not_be_shifted_they_are_copied() {
    let place = Place::with(Config { mapped_mounts: false, ..Config::default() }).await;
    let desk = place.desk("d-shifted").await;
    let out = desk.sh("stat -c %U / /etc/passwd /home/user /usr/bin/su; echo x > ~/x; stat -c %U ~/x; id -u").await;
    assert_eq!(out.text, "root\nroot\nuser\nroot\nuser\n1000");
    assert_ne!(desk.sh("echo x >> /etc/passwd").await.code, 0);
    place.local.stop("d-shifted").await.unwrap();
    let archive = place.folder.path().join("desk.tar");
    place.local.export("d-shifted", &archive).await.unwrap();
    // What is packed here is unpacked elsewhere: owners are those inside.
    let other = Place::new().await;
    let spec = other.spec("d-other");
    other.local.import(&spec, &archive).await.unwrap();
    let (progress, _) = Progress::new();
    let desk = Desk::new(&spec, &other.local.start(&spec, &progress).await.unwrap());
    assert_eq!(desk.sh("cat ~/x; stat -c %U ~/x").await.text, "x\nuser");
}

/// One template of a library, and how it is found.
fn copy_library(from: &Path, digest: &str, to: &Path) {
    std::fs::create_dir_all(to.join("rootfs")).unwrap();
    let copy = |what: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").arg(what).arg(to).status().unwrap().success(), "{}", what.display());
    };
    copy(&from.join("inputs"), to);
    for entry in std::fs::read_dir(from.join("rootfs")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(digest) {
            assert_eq!(entry.metadata().unwrap().uid(), 0);
            copy(&entry.path(), &to.join("rootfs"));
        }
    }
}
