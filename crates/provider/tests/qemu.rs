//! Virtual machines, for real: one boots, is saved and copied; the copies go their own ways. All of it emulated, so it runs anywhere.
//!
//! These tests need QEMU, the golden disk of the template `bare` (built when it is missing) and the `hotdesk` binary. They need no
//! right; without root the disk must be built already.

use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_image::{DiskFormat, DiskWish, Library};
use hotdesk_provider::qemu::accel::Choice;
use hotdesk_provider::qemu::{Config, Qemu};
use hotdesk_provider::{Address, Context, DeskSpec, Door, Error, Placed, Progress, Provider, SnapshotRef};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An emulated machine on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(300);

fn binary() -> PathBuf {
    let beside = || std::env::current_exe().expect("a test has a path").ancestors().nth(2).expect("two below").join("hotdesk");
    let path = std::env::var_os("HOTDESK_BINARY").map_or_else(beside, PathBuf::from);
    assert!(path.is_file(), "{} is missing; build it with `cargo build -p hotdesk`", path.display());
    path
}

fn library() -> Arc<Library> {
    let images = std::env::var_os("HOTDESK_IMAGES").map_or_else(|| "/var/cache/hotdesk/images".into(), PathBuf::from);
    Arc::new(Library::open(images).expect("the library of templates can be opened"))
}

struct Place {
    qemu: Qemu,
    fleet: String,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("hotdesk-qemu-").tempdir_in("/var/tmp").unwrap();
        let fleet = format!("t{:07x}", rand::random::<u32>() >> 4);
        Self { qemu: open(&fleet, folder.path()), fleet, folder }
    }

    fn spec(&self, id: &str) -> DeskSpec {
        DeskSpec {
            volumes: Vec::new(),
            id: id.into(),
            template: "bare".into(),
            snapshot: None,
            resources: Resources { cpus: 1.0, memory_mib: 512, disk_mib: 1024 },
            screen: Size { width: 1024, height: 768 },
            env: Default::default(),
            labels: Default::default(),
            network: true,
            vnc_password: None,
            secret: format!("secret-of-{id}-0123456789"),
        }
    }

    async fn create(&self, spec: &DeskSpec) -> Desk {
        let (progress, _) = Progress::new();
        let placed = self.qemu.create(spec, &progress).await.unwrap_or_else(|e| panic!("{}: {e}", spec.id));
        Desk::new(spec, &placed)
    }

    /// Processes of this fleet.
    fn processes(&self) -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let words = all.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        words
            .map(|words| String::from_utf8_lossy(&words).replace('\0', " "))
            .filter(|words| {
                words.contains(&format!("hotdesk-{}-", self.fleet)) || words.contains(self.folder.path().to_str().unwrap())
            })
            .collect()
    }
}

impl Place {
    /// Keeper and QEMU of a desk: nobody on this machine if we are root, and heard by nobody on it.
    fn is_shut_in(&self, desk: &str) {
        let (name, plan) = (format!("guest=hotdesk-{}-{desk}", self.fleet), format!("{desk}/plan.json"));
        let pids: Vec<String> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| {
                let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let words = String::from_utf8_lossy(&words).into_owned();
                words.split('\0').any(|word| word == name)
                    || (words.contains(self.folder.path().to_str().unwrap()) && words.contains(&plan))
            })
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        assert_eq!(pids.len(), 2, "a keeper and a QEMU: {pids:?}");
        let mut sockets = Vec::new();
        for pid in &pids {
            let goes = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
            assert_eq!(goes.trim(), "500", "it goes before this machine's services when memory ends");
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            if rustix::process::geteuid().is_root() {
                assert!(line("Uid:").split_whitespace().all(|uid| uid.parse::<u32>().unwrap() > 524_288), "{}", line("Uid:"));
                assert_eq!((line("NoNewPrivs:").as_str(), line("CapEff:").as_str()), ("1", "0000000000000000"));
                let seen = |path: &str| std::path::Path::new(&format!("/proc/{pid}/root/{path}")).exists();
                assert!(!seen("etc/shadow") && !seen("root") && !seen("home"), "it sees this machine's files");
            }
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
            sockets.extend(open.filter_map(|entry| std::fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok()));
        }
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
                let words: Vec<_> = line.split_whitespace().collect();
                assert!(words[3] != "0A" || !sockets.contains(&format!("socket:[{}]", words[9])), "it listens: {line}");
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whatever a failed test left, by its own directory.
        let qemu = open(&self.fleet, self.folder.path());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    for desk in qemu.list().await.unwrap_or_default() {
                        let _ = qemu.delete(&desk.id).await;
                    }
                });
            });
        });
    }
}

fn open(fleet: &str, folder: &Path) -> Qemu {
    let context = Context { fleet: fleet.into(), data: folder.join("qemu"), binary: binary(), images: library() };
    Qemu::new(context, Config { accel: Choice::Tcg, ..Config::default() }).expect("the provider works here")
}

struct Desk {
    door: Door,
}

impl Desk {
    fn new(spec: &DeskSpec, placed: &Placed) -> Self {
        Self { door: Door { address: placed.address.clone(), secret: spec.secret.clone() } }
    }

    async fn sh(&self, script: &str) -> String {
        let body = json!({ "command": ["sh", "-c", format!("exec 2>&1; {script}")], "shell": false });
        let (status, answer) = self.ask("POST", "/execute", &body).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        assert_eq!(status, 200, "{answer}");
        answer["output"].as_str().unwrap_or_default().trim().to_owned()
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let asked = async {
            let stream = self.door.address.connect().await.unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "desk")
                .header("authorization", format!("Bearer {}", self.door.secret))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(if method == "GET" { String::new() } else { body.to_string() })))
                .unwrap();
            let answer = sender.send_request(request).await.unwrap();
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("no answer to {method} {path}"))
    }

    /// A picture of the screen. The first one of a guest that is emulated on a busy machine may be late.
    async fn picture(&self) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.ask("GET", "/screenshot", &Value::Null).await {
                (200, picture) => {
                    assert!(picture.starts_with(b"\x89PNG"), "a picture");
                    return picture;
                }
                (503 | 504, _) if Instant::now() < end => tokio::time::sleep(Duration::from_millis(200)).await,
                (status, text) => panic!("{status}: {}", String::from_utf8_lossy(&text)),
            }
        }
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_boots_and_its_copies_go_their_own_ways() {
    let place = Place::new();
    let (progress, _) = Progress::new();
    place.qemu.prepare("bare", &progress).await.expect("the golden disk of `bare` can be built");

    let begun = Instant::now();
    let spec = place.spec("d-one");
    let one = place.create(&spec).await;
    one.picture().await;
    let booted = begun.elapsed();
    assert!(place.qemu.screenshot("d-one").await.unwrap().starts_with(b"\x89PNG"), "the machine's own screen");
    assert_eq!(one.sh("id -u; cat /sys/class/dmi/id/sys_vendor").await, "1000\nQEMU");
    one.sh("echo one > /home/user/who; (setsid sleep 4711 > /dev/null 2>&1 &)").await;

    place.is_shut_in("d-one");

    // The same call again finds the desk that runs.
    assert_eq!(Desk::new(&spec, &place.qemu.create(&spec, &progress).await.unwrap()).door, one.door);

    // Saved with its programs; two others go on from there.
    assert!(place.qemu.snapshot("d-one", "s-one", true).await.unwrap() > 1 << 20);
    assert_eq!(place.qemu.snapshots().await.unwrap(), ["s-one"]);
    // The golden disk below them stays where it is.
    let users = library().users("bare").unwrap();
    for record in ["desks/d-one/desk.json", "snapshots/s-one.json"] {
        assert!(users.contains(&place.folder.path().join("qemu").join(record)), "{record}: {users:?}");
    }
    assert_eq!(one.sh("cat /home/user/who; echo still one >> /home/user/who").await, "one");
    let copy = |id: &str| DeskSpec { snapshot: Some(SnapshotRef { id: "s-one".into(), memory: true }), ..place.spec(id) };
    let begun = Instant::now();
    let two = place.create(&copy("d-two")).await;
    two.picture().await;
    eprintln!("boot to first picture {} ms, copy to first picture {} ms", booted.as_millis(), begun.elapsed().as_millis());
    let three = place.create(&copy("d-three")).await;
    place.is_shut_in("d-three");
    for (desk, name) in [(&two, "two"), (&three, "three")] {
        assert_eq!(desk.sh("cat /home/user/who; pgrep -x sleep -a").await.lines().next(), Some("one"), "{name}");
        assert!(desk.sh("pgrep -af 'sleep 4711'").await.contains("4711"), "its programs go on in {name}");
        desk.sh(&format!("echo {name} > /home/user/who; sync")).await;
    }
    assert_eq!((two.sh("cat /home/user/who").await, three.sh("cat /home/user/who").await), ("two".into(), "three".into()));
    assert_eq!(one.sh("cat /home/user/who").await, "one\nstill one");

    // Each has its own secret, and the time of today.
    let stranger = Desk { door: Door { secret: one.door.secret.clone(), ..two.door.clone() } };
    assert_eq!(stranger.ask("GET", "/v1/activity", &Value::Null).await.0, 401);
    assert_eq!(two.ask("GET", "/v1/activity", &Value::Null).await.0, 200);
    let end = Instant::now() + Duration::from_secs(60);
    while now().abs_diff(two.sh("date +%s").await.parse().unwrap()) > 3 {
        assert!(Instant::now() < end, "the clock of a copy stays behind");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    // Nothing of this machine is reached, by no address of it.
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["10.0.2.2", "10.0.2.77"] {
        let script = format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{host}/{port}' && echo reached || echo closed");
        assert!(two.sh(&script).await.ends_with("closed"), "{host} leads to this machine");
    }

    // Another orchestrator finds all of them.
    let again = open(&place.fleet, place.folder.path());
    let found = again.list().await.unwrap();
    assert_eq!(
        found.iter().map(|desk| (desk.id.as_str(), desk.running)).collect::<Vec<_>>(),
        [("d-one", true), ("d-three", true), ("d-two", true)]
    );
    let usage = again.usage("d-two").await.unwrap();
    assert!(usage.memory_bytes > 8 << 20 && usage.cpu_s > 0.0 && usage.processes == 2, "{usage:?}");
    assert!(!again.logs("d-one", 50).await.unwrap().is_empty());

    // Back to the snapshot.
    let placed = again.reset(&copy("d-two"), &progress).await.unwrap();
    let two = Desk::new(&copy("d-two"), &placed);
    assert_eq!(two.sh("cat /home/user/who").await, "one");

    // Stopped, archived, brought back; and a stopped one starts with the files that it had.
    again.stop("d-three").await.unwrap();
    again.stop("d-three").await.unwrap();
    let archive = place.folder.path().join("archive.tar");
    std::fs::write(&archive, "").unwrap();
    // Whoever broke out of a machine could write the name of any file into its disk; root does not read that file.
    let folder = std::fs::read_dir(place.folder.path().join("qemu/desks/d-three")).unwrap();
    let disk =
        folder.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "qcow2")).unwrap();
    let tool = |words: &[&str]| {
        let output = std::process::Command::new("qemu-img").args(words).arg(&disk).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let info: serde_json::Value = serde_json::from_slice(&tool(&["info", "--output=json"])).unwrap();
    let (below, format) = (info["backing-filename"].as_str().unwrap(), info["backing-filename-format"].as_str().unwrap());
    tool(&["rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"]);
    let refused = again.export("d-three", &archive).await.unwrap_err();
    assert!(refused.to_string().contains("leads elsewhere"), "{refused}");
    tool(&["rebase", "-u", "-f", "qcow2", "-F", format, "-b", below]);
    again.export("d-three", &archive).await.unwrap();
    again.delete("d-three").await.unwrap();
    again.import(&place.spec("d-four"), &archive).await.unwrap();
    let placed = again.start(&place.spec("d-four"), &progress).await.unwrap();
    assert_eq!(Desk::new(&place.spec("d-four"), &placed).sh("cat /home/user/who").await, "three");

    // A desk whose machine dies is found dead, and everything goes.
    let pid = placed.handle["pid"].as_i64().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let end = Instant::now() + Duration::from_secs(30);
    while again.list().await.unwrap().iter().any(|desk| desk.id == "d-four" && desk.running) {
        assert!(Instant::now() < end, "a dead desk is shown as running");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    again.delete_snapshot("s-one").await.unwrap();
    for id in ["d-one", "d-two", "d-four", "d-unknown"] {
        again.delete(id).await.unwrap();
    }
    assert_eq!(again.list().await.unwrap(), []);
    let end = Instant::now() + Duration::from_secs(30);
    while !place.processes().is_empty() {
        assert!(Instant::now() < end, "left behind: {:?}", place.processes());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let layers = std::fs::read_dir(place.folder.path().join("qemu/layers")).unwrap().count();
    assert_eq!(layers, 1, "the layer of the settled guest that new desks resume");
}

#[tokio::test]
async fn hostile_archives_and_disks_are_refused() {
    let place = Place::new();
    let evil = place.folder.path().join("evil.qcow2");
    let made = std::process::Command::new("qemu-img")
        .args(["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"])
        .arg(&evil)
        .arg("1M")
        .status();
    assert!(made.expect("qemu-utils is installed").success());
    let context = Context { fleet: "t0000000".into(), data: place.folder.path().join("q"), binary: binary(), images: library() };
    let disks = [("evil".to_owned(), evil), ("none".to_owned(), place.folder.path().join("none"))].into();
    let qemu = Qemu::new(context, Config { disks, accel: Choice::Tcg, ..Config::default() }).unwrap();
    let (progress, _) = Progress::new();
    let refused = qemu.prepare("evil", &progress).await.unwrap_err();
    assert!(refused.to_string().contains("is not used"), "{refused}");
    assert!(matches!(qemu.prepare("none", &progress).await, Err(Error::NotFound(_))));
    let spec = DeskSpec { template: "evil".into(), ..place.spec("d-evil") };
    assert!(qemu.create(&spec, &progress).await.is_err());
    for (name, bytes) in [("../out", "x"), ("disk.qcow2", "x"), ("desk.json", "{}")] {
        let archive = place.folder.path().join("archive.tar");
        let mut tar = tar::Builder::new(std::fs::File::create(&archive).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, bytes.as_bytes()).unwrap();
        tar.into_inner().unwrap();
        assert!(qemu.import(&spec, &archive).await.is_err(), "{name}");
    }
    assert_eq!(qemu.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_disk_waits_and_boots_when_one_appears() {
    let folder = tempfile::Builder::new().prefix("hotdesk-vm-").tempdir_in("/var/tmp").unwrap();
    let wish = DiskWish { format: DiskFormat::Qcow2, size: None, binary: binary() };
    let golden = library().disk("bare", &wish, |_| {}).await.expect("the golden disk of `bare` can be built");
    let at = |name: &str| folder.path().join(name);
    let mut machine = tokio::process::Command::new(binary())
        .args([
            "vm",
            "--ports",
            "0",
            "--screen-port",
            "0",
            "--ports-address",
            "127.0.0.1",
            "--kvm",
            "N",
            "--network",
            "N",
            "--memory",
            "512M",
            "--cpus",
            "1",
            "--size",
            "1024x768",
        ])
        .arg("--disk")
        .arg(at("System.qcow2"))
        .arg("--storage")
        .arg(at("storage"))
        .arg("--listen")
        .arg(format!("unix:{}", at("vm.sock").display()))
        .env_remove("HOTDESK_TOKEN")
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let door = Door { address: Address::Unix { path: at("vm.sock") }, secret: "none".into() };
    let desk = Desk { door: door.clone() };
    let end = Instant::now() + PATIENCE;
    while !at("vm.sock").exists() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while door.health().await.map(|health| health.stage).ok().as_deref() != Some("waiting") {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (status, health) = desk.ask("GET", "/health", &Value::Null).await;
    assert_eq!(status, 503);
    assert!(String::from_utf8_lossy(&health).contains("waiting for a disk at"), "{}", String::from_utf8_lossy(&health));
    let (status, page) = desk.ask("GET", "/", &Value::Null).await;
    assert!(status == 503 && String::from_utf8_lossy(&page).contains("waiting for a disk"), "people see it too");
    assert_eq!(desk.ask("GET", "/screenshot", &Value::Null).await.0, 503);

    // Kernel and description beside it make it start faster; the disk itself comes last and in one piece.
    golden.copy_to(&at("System.qcow2")).unwrap();
    door.wait_ready(PATIENCE, |_| {}, async || None).await.unwrap();
    desk.picture().await;
    assert_eq!(desk.sh("echo it runs").await, "it runs");
    let before = std::fs::metadata(at("System.qcow2")).unwrap().modified().unwrap();
    let process = machine.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").arg(&process).status().unwrap().success());
    assert!(tokio::time::timeout(PATIENCE, machine.wait()).await.unwrap().unwrap().success(), "it ends cleanly when told");
    assert_eq!(std::fs::metadata(at("System.qcow2")).unwrap().modified().unwrap(), before, "the disk is never written");
}
