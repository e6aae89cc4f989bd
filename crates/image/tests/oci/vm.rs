//! Images with a virtual machine: the disk inside, larger than a layer may be; and the disk beside it, which comes late. Emulated, because that
//! works everywhere.

use crate::binary;
use crate::engine::Daemon;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Far below the disk's size, above that of the largest file in the small system around QEMU, which is our own binary.
const LAYER_MAX_MIB: u64 = 64;
/// An emulated machine in a container on a busy host.
const BOOTED: Duration = Duration::from_secs(600);
const ANSWERS: Duration = Duration::from_secs(60);

#[test]
fn a_machine_runs_from_its_image_with_the_disk_inside_or_beside_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name);
    let (disk, bundled, plain) = (at("System.qcow2"), at("bundled.tar"), at("plain.tar"));
    hotdesk(&["template", "build", "bare", "--as", "disk", "--size", "3G", "-o", text(&disk)]);
    let limit = format!("{LAYER_MAX_MIB}M");
    let made = hotdesk(&["image", "vm", "--json", "--disk", text(&disk), "--layer-max", &limit, "-o", text(&bundled)]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let layers: Vec<u64> = made["layers"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
    assert!(layers.iter().all(|size| *size <= LAYER_MAX_MIB << 20), "{layers:?}");
    assert!(disk.metadata().unwrap().len() > LAYER_MAX_MIB << 20, "the disk would fit into one layer");
    hotdesk(&["image", "vm", "--layer-max", &limit, "-o", text(&plain)]);

    let daemon = Daemon::start("vm");
    let image = daemon.load(&bundled);
    std::fs::remove_file(&bundled).unwrap();
    daemon.start_container("bundled", 5000, &["--tmpfs", "/storage", "--env", "RAM_SIZE=1G", &image]);
    drive(&daemon, "bundled", 5000);
    daemon.docker(&["rm", "--force", "bundled"]);

    // First without its disk, as whoever checks an image starts it; then the disk appears, and nothing is restarted.
    let image = daemon.load(&plain);
    let volume = at("volume");
    std::fs::create_dir(&volume).unwrap();
    let mount = format!("{}:/vm:ro", text(&volume));
    daemon.start_container("late", 5001, &["--volume", &mount, "--tmpfs", "/storage", "--env", "RAM_SIZE=1G", &image]);
    let waits = daemon.server("late", 5001, "").wait(ANSWERS, |_, health| health.contains("waiting for a disk at"));
    assert!(waits.contains("/vm/System.qcow2"), "{waits}");
    std::fs::rename(&disk, volume.join("System.qcow2")).unwrap();
    drive(&daemon, "late", 5001);
    let restarts = daemon.docker(&["inspect", "--format", "{{.RestartCount}} {{.State.Running}}", "late"]);
    assert_eq!(restarts.trim(), "0 true");
}

/// The desktop inside answers, shows something, and does what it is told.
fn drive(daemon: &Daemon, container: &str, port: u16) {
    let desk = daemon.server(container, port, "");
    desk.wait_ready(BOOTED);
    let (width, before) = desk.picture();
    assert!(width >= 640, "{width}");
    // It is the guest, not the container, and a desktop of its own.
    assert!(desk.shell("cat /proc/cmdline").contains("root="), "{}", desk.shell("cat /proc/cmdline"));
    assert_eq!(desk.shell("id -un; xrandr >/dev/null 2>&1 || echo $DISPLAY"), "user\n:99\n");
    let point = |x: u32| {
        desk.ask("/execute", Some(&json!({"command": ["python", "-c", format!("import pyautogui; pyautogui.moveTo({x}, 300)")]})))
    };
    let (status, said) = point(400);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
    let (_, position) = desk.ask("/cursor_position", None);
    assert!(String::from_utf8_lossy(&position).contains("400"), "{}", String::from_utf8_lossy(&position));
    assert_ne!(desk.picture().1, before, "the pointer moved");
}

fn hotdesk(words: &[&str]) -> String {
    let output = Command::new(binary()).args(words).output().unwrap();
    assert!(output.status.success(), "hotdesk {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
