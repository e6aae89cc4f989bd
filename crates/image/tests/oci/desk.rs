//! The image of `bare`.

use crate::binary;
use crate::engine::Daemon;
use hotdesk_image::Library;
use hotdesk_image::oci::{Compression, Image, Options};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TOKEN: &str = "a-token-for-tests";
/// Small enough for several layers.
const LAYER_MAX: u64 = 64 << 20;
/// How long a desk may take on a busy machine.
const READY: Duration = Duration::from_secs(120);

#[test]
fn a_desk_runs_from_its_image_without_any_privilege() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tar = folder.path().join("bare.tar");
    two_builds_are_the_same(folder.path(), &tar);

    let daemon = Daemon::start("oci");
    let name = daemon.load(&tar);
    assert_eq!(name, "hotdesk/bare:latest");
    let labels = daemon.docker(&["image", "inspect", "--format", "{{json .Config.Labels}} {{.Config.User}}", &name]);
    assert!(labels.contains("\"hotdesk.template\":\"bare\"") && labels.trim().ends_with("1000:1000"), "{labels}");
    let token = format!("HOTDESK_TOKEN={TOKEN}");
    daemon.start_container("desk", 5000, &["--env", &token, &name, "--size", "1024x768"]);
    let desk = daemon.server("desk", 5000, TOKEN);
    desk.wait_ready(READY);

    assert_eq!(desk.picture().0, 1024);
    let status =
        desk.shell("id -u; grep -E '^(Cap|NoNew)' /proc/self/status; touch /usr/x /etc/x 2>/dev/null; echo $?; touch ~/x && pwd");
    assert!(status.starts_with("1000\n") && status.ends_with("1\n/home/user\n"), "{status}");
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} in {status}");
    }
    let bill = desk.shell("cat /usr/share/hotdesk/sbom.spdx.json");
    assert!(bill.contains("\"SPDX-2.3\"") && bill.contains("pkg:deb/"), "{}", &bill[..bill.len().min(300)]);
    assert_eq!(daemon.server("desk", 5000, "").ask("/screenshot", None).0, 401, "nobody gets in without the token");
    daemon.docker(&["stop", "desk"]);
    assert_eq!(daemon.docker(&["inspect", "--format", "{{.State.ExitCode}}", "desk"]).trim(), "0");
}

/// Packs the tree twice, with nothing kept from the first time, and writes the second one.
fn two_builds_are_the_same(folder: &Path, tar: &Path) {
    let images = PathBuf::from(std::env::var("HOTDESK_IMAGES").unwrap_or_else(|_| "/var/cache/hotdesk/images".into()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        Library::open(&images).unwrap().build("bare", |stage| eprintln!("  {stage}")).await.unwrap();
        let (first, second) = (pack(&images, &folder.join("one")).await, pack(&images, &folder.join("two")).await);
        assert_eq!(first.digest(), second.digest());
        assert!(first.layers().iter().all(|size| *size <= LAYER_MAX) && first.layers().len() > 3, "{:?}", first.layers());
        second.write(tar, "hotdesk/bare:latest", |_| {}).await.unwrap();
    });
}

/// The same trees, but layers of its own.
async fn pack(images: &Path, own: &Path) -> Image {
    std::fs::create_dir(own).unwrap();
    for part in ["rootfs", "inputs"] {
        std::os::unix::fs::symlink(images.join(part), own.join(part)).unwrap();
    }
    let options = Options { layer_max: LAYER_MAX, compression: Compression::Gzip };
    Library::open(own).unwrap().oci("bare", &binary(), &options, |_| {}).await.unwrap()
}
