//! The image of `bare` in a real Docker Engine (`scripts/dockerd`), run with nothing that could be taken away: no root, no
//! capability, no device, nothing to write on but memory.

use hotdesk_image::Library;
use hotdesk_image::oci::{Compression, Image, Options};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const TOKEN: &str = "a-token-for-tests";
/// Small enough for several layers.
const LAYER_MAX: u64 = 64 << 20;
/// How long a desk may take on a busy machine.
const READY: Duration = Duration::from_secs(120);

#[test]
fn a_desk_runs_from_its_image_without_any_privilege() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tar = folder.path().join("bare.tar");
    let digest = two_builds_are_the_same(folder.path(), &tar);

    let daemon = Daemon::start();
    let loaded = daemon.docker(&["load", "--input", tar.to_str().unwrap()]);
    assert!(loaded.contains("hotdesk/bare:latest"), "{loaded}");
    let labels = daemon.docker(&["image", "inspect", "--format", "{{json .Config.Labels}} {{.Config.User}}", "hotdesk/bare:latest"]);
    assert!(labels.contains("\"hotdesk.template\":\"bare\"") && labels.trim().ends_with("1000:1000"), "{labels}");
    eprintln!("{digest}: {labels}");

    let desk = "run --detach --name desk --cap-drop ALL --security-opt no-new-privileges --read-only \
                --tmpfs /tmp --tmpfs /run --tmpfs /home/user --publish 127.0.0.1:5000:5000";
    let token = format!("HOTDESK_TOKEN={TOKEN}");
    let mut words: Vec<&str> = desk.split_whitespace().collect();
    words.extend(["--env", &token, "hotdesk/bare:latest", "--size", "1024x768"]);
    daemon.docker(&words);
    daemon.wait_ready();

    let picture = daemon.curl(&["/v1/screenshot"]).stdout;
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(u32::from_be_bytes(picture[16..20].try_into().unwrap()), 1024);
    let status = daemon.shell("id -u; grep -E '^(Cap|NoNew)' /proc/self/status; touch /usr/x /etc/x 2>/dev/null; echo $?; pwd");
    assert!(status.starts_with("1000\n") && status.ends_with("1\n/home/user\n"), "{status}");
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} in {status}");
    }
    let bill = daemon.shell("cat /usr/share/hotdesk/sbom.spdx.json");
    assert!(bill.contains("\"SPDX-2.3\"") && bill.contains("pkg:deb/"), "{}", &bill[..bill.len().min(300)]);
    // Nobody gets in without the token.
    let refused = daemon.run(&["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "http://127.0.0.1:5000/v1/screenshot"]);
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "401");
    daemon.docker(&["stop", "desk"]);
    assert_eq!(daemon.docker(&["inspect", "--format", "{{.State.ExitCode}}", "desk"]).trim(), "0");
}

/// Packs the tree twice, with nothing kept from the first time, and writes the second one.
fn two_builds_are_the_same(folder: &Path, tar: &Path) -> String {
    let images = PathBuf::from(std::env::var("HOTDESK_IMAGES").unwrap_or_else(|_| "/var/cache/hotdesk/images".into()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let own = Library::open(&images).unwrap();
        own.build("bare", |stage| eprintln!("  {stage}")).await.unwrap();
        let (first, second) = (pack(&images, &folder.join("one")).await, pack(&images, &folder.join("two")).await);
        assert_eq!(first.digest(), second.digest());
        assert!(first.layers().iter().all(|size| *size <= LAYER_MAX) && first.layers().len() > 3, "{:?}", first.layers());
        let digest = second.digest().to_owned();
        second.write(tar, "hotdesk/bare:latest", |_| {}).await.unwrap();
        digest
    })
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

/// The binary of the same build as this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("hotdesk");
    assert!(binary.is_file(), "{} is missing; `cargo build -p hotdesk` makes it", binary.display());
    binary
}

/// A private daemon, which ends with its owner.
struct Daemon {
    directory: PathBuf,
}

impl Daemon {
    fn start() -> Self {
        let daemon = Self { directory: PathBuf::from(format!("/tmp/hotdesk-oci-{}", std::process::id())) };
        daemon.script("start", &[]);
        daemon
    }

    fn script(&self, verb: &str, words: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dockerd");
        let output = Command::new(script).arg(verb).arg(&self.directory).args(words).output().unwrap();
        assert!(verb == "run" || output.status.success(), "dockerd {verb}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs a command where the daemon's published ports are.
    fn run(&self, words: &[&str]) -> Output {
        self.script("run", words)
    }

    fn docker(&self, words: &[&str]) -> String {
        let socket = format!("unix://{}/docker.sock", self.directory.display());
        let output = Command::new("docker").args(["--host", &socket]).args(words).output().expect("the docker command");
        assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn curl(&self, words: &[&str]) -> Output {
        let (path, more) = words.split_first().unwrap();
        let (url, token) = (format!("http://127.0.0.1:5000{path}"), format!("Authorization: Bearer {TOKEN}"));
        let mut all = vec!["curl", "--silent", "--fail", "--max-time", "60", "--header", &token, &url];
        all.extend(more);
        self.run(&all)
    }

    fn wait_ready(&self) {
        let begun = Instant::now();
        while !self.curl(&["/health"]).status.success() {
            let state = self.docker(&["inspect", "--format", "{{.State.Running}}", "desk"]);
            let said = Command::new("docker")
                .args(["--host", &format!("unix://{}/docker.sock", self.directory.display()), "logs", "desk"])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(state.trim() == "true", "the container ended: {said}");
            assert!(begun.elapsed() < READY, "the desk is not ready: {said}");
            std::thread::sleep(Duration::from_millis(200));
        }
        eprintln!("ready in {:?}", begun.elapsed());
    }

    fn shell(&self, command: &str) -> String {
        let body = serde_json::json!({ "command": command, "shell": true }).to_string();
        let output = self.curl(&["/execute", "--header", "Content-Type: application/json", "--data", &body]);
        assert!(output.status.success(), "{command}: {output:?}");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["output"].as_str().unwrap().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.script("stop", &[]);
    }
}
