//! With a real Engine: a private dockerd (`scripts/dockerd`), the real `bare` template, the real binary.
//!
//! The steps build upon each other and share one daemon, so they are one test. Everything runs in the daemon's network
//! namespace, because its published ports are there.

use super::*;
use crate::{Address, Door, SnapshotRef};
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECRET: &str = "a-secret-that-nobody-may-see";
const PASSWORD: &str = "pass-word";

#[test]
fn desks_in_a_real_engine() {
    build_bare();
    let daemon = Daemon::start();
    let net = std::fs::File::open(daemon.directory.join("net")).unwrap();
    let directory = daemon.directory.clone();
    // A thread that changes its namespace can't change it back for the tests that use it next.
    let steps = std::thread::spawn(move || {
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&net),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(all_steps(&directory));
    });
    steps.join().expect("the step named last in the output failed");
}

async fn all_steps(daemon: &Path) {
    let data = tempfile::tempdir().unwrap();
    let docker = provider(daemon.join("docker.sock").to_str().unwrap(), data.path());
    step("an engine that is away is told at once");
    an_engine_that_is_away(data.path()).await;
    step("the engine tells what it can");
    what_it_can(&docker).await;
    step("the image is made once, with progress");
    the_image(&docker).await;
    step("a desk is made, driven, and made again without effect");
    a_desk(&docker, daemon).await;
    step("inside there is no privilege and no secret");
    inside(&docker, daemon).await;
    step("stop and start keep files, reset loses them");
    life(&docker).await;
    step("volumes outlive desks");
    volumes(&docker, data.path()).await;
    step("limits hold");
    limits(&docker).await;
    step("desks see neither each other nor, where they may not, the outside");
    isolation(&docker).await;
    step("a daemon that is killed and comes back has its desks");
    a_killed_daemon(&docker, daemon).await;
    step("snapshots");
    snapshots(&docker, daemon).await;
    step("archives");
    archives(&docker, data.path()).await;
    step("nothing is left");
    nothing_left(&docker, daemon).await;
    step("how fast a desk is ready");
    speed(&docker).await;
}

fn step(name: &str) {
    eprintln!("— {name}");
}

async fn an_engine_that_is_away(data: &Path) {
    for host in ["unix:///nonexistent/docker.sock", "tcp://127.0.0.1:1"] {
        let docker = provider(host, data);
        let begun = Instant::now();
        let (progress, _) = Progress::new();
        let error = docker.create(&spec("d-away"), &progress).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        // It may come back: nothing is refused for good because of it.
        assert!(docker.capabilities().await.memory_limit);
        let checks = docker.check().await;
        assert!(!checks[0].good && checks[0].fix.is_some());
    }
    // One that takes the connection and says nothing.
    let socket = data.join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let docker = provider(socket.to_str().unwrap(), data);
    let error = docker.list().await.unwrap_err();
    assert!(error.to_string().contains("no answer in"), "{error}");
    assert!(Docker::new(context(data), Config { host: Some("tcp://elsewhere:2375".into()) }).is_err());
}

async fn what_it_can(docker: &Docker) {
    let capabilities = docker.capabilities().await;
    assert!(capabilities.memory_limit && capabilities.cpu_limit && capabilities.reset && capabilities.snapshot);
    assert!(!capabilities.live_fork && !capabilities.live_fork_reason.is_empty());
    assert!(capabilities.templates.contains(&"bare".to_owned()));
    let checks = docker.check().await;
    assert!(checks[0].good, "{checks:?}");
    assert!(checks.iter().all(|check| check.good == check.fix.is_none()), "what is not good has a fix: {checks:?}");
}

async fn the_image(docker: &Docker) {
    let (progress, mut stages) = Progress::new();
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        while stages.changed().await.is_ok() {
            seen.push(stages.borrow().clone());
        }
        seen
    });
    docker.prepare("bare", &progress).await.unwrap();
    drop(progress);
    let seen = seen.await.unwrap();
    assert!(seen.iter().any(|stage| stage.starts_with("loading the image ")), "{seen:?}");
    let begun = Instant::now();
    let (progress, _) = Progress::new();
    docker.prepare("bare", &progress).await.unwrap();
    eprintln!("  again in {:?}", begun.elapsed());
    let error = docker.prepare("no-such-template", &progress).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    let error = docker.prepare("not-built", &progress).await.unwrap_err();
    assert!(matches!(&error, Error::NotFound(m) if m.contains("hotdesk template build not-built")), "{error}");
    let error = docker.prepare("foreign", &progress).await.unwrap_err();
    assert!(matches!(&error, Error::NotFound(m) if m.contains("can't be pulled")), "{error}");
}

async fn a_desk(docker: &Docker, daemon: &Path) {
    let placed = create(docker, &spec("d-one")).await;
    let Address::Tcp { addr } = &placed.address else { panic!("{placed:?}") };
    assert!(addr.ip().is_loopback());
    let door = door(&placed);
    let (status, picture) = ask(&door, "GET", "/v1/screenshot", None).await;
    assert_eq!(status, 200);
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(u32::from_be_bytes(picture[16..20].try_into().unwrap()), 1024);
    door.activity().await.unwrap();
    assert_eq!(create(docker, &spec("d-one")).await, placed);
    let found = docker.list().await.unwrap();
    assert_eq!(found, [Found { id: "d-one".into(), running: true, placed: Some(placed) }]);
    let usage = docker.usage("d-one").await.unwrap();
    assert!(usage.cpu_s > 0.0 && usage.memory_bytes > 1 << 20 && usage.processes > 3, "{usage:?}");
    assert!(docker.logs("d-one", 50).await.unwrap().contains("ready"));
    // Nobody but loopback is listened to, and another fleet does not see it.
    assert!(engine(daemon, &["port", "hotdesk-testtest-d-one"]).contains("127.0.0.1:"));
    let other =
        Docker::new(Context { fleet: "otherone".into(), ..context(daemon) }, Config { host: Some(socket(daemon)) }).unwrap();
    assert!(other.list().await.unwrap().is_empty());
    other.delete("d-one").await.unwrap();
    assert_eq!(docker.list().await.unwrap().len(), 1);
}

async fn inside(docker: &Docker, daemon: &Path) {
    let placed = create(docker, &spec("d-one")).await;
    let door = door(&placed);
    let status = shell(&door, "id -u; grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status").await;
    assert!(status.starts_with("1000\n"), "{status}");
    for line in
        ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
    {
        assert!(status.contains(line), "{line} in {status}");
    }
    assert_eq!(shell(&door, "echo $COLOUR $LANG; pwd").await, "green C.UTF-8\n/home/user\n");
    assert_ne!(shell(&door, "mount -t tmpfs none /mnt 2>/dev/null; echo $?").await.trim(), "0");
    assert_eq!(shell(&door, "touch /usr/x 2>/dev/null; echo $?").await.trim(), "1");
    let inspected = engine(daemon, &["inspect", "hotdesk-testtest-d-one"]);
    for secret in [SECRET, PASSWORD, "green"] {
        assert!(!inspected.contains(secret), "{secret} is shown by docker inspect");
    }
}

async fn life(docker: &Docker) {
    let (progress, _) = Progress::new();
    let spec = spec("d-one");
    let placed = create(docker, &spec).await;
    shell(&door(&placed), "echo kept > ~/file").await;
    docker.stop("d-one").await.unwrap();
    docker.stop("d-one").await.unwrap();
    let found = docker.list().await.unwrap();
    assert!(!found[0].running && found[0].placed.is_none());
    let placed = docker.start(&spec, &progress).await.unwrap();
    assert_eq!(docker.start(&spec, &progress).await.unwrap(), placed);
    assert_eq!(shell(&door(&placed), "cat ~/file").await, "kept\n");
    let begun = Instant::now();
    let placed = docker.reset(&spec, &progress).await.unwrap();
    eprintln!("  reset in {:?}", begun.elapsed());
    assert_eq!(shell(&door(&placed), "cat ~/file 2>&1").await, "cat: /home/user/file: No such file or directory\n");
    docker.stop("d-unknown").await.unwrap();
    docker.delete("d-unknown").await.unwrap();
    assert!(matches!(docker.start(&self::spec("d-unknown"), &progress).await, Err(Error::NotFound(_))));
    assert!(matches!(docker.usage("d-unknown").await, Err(Error::NotFound(_))));
}

async fn volumes(docker: &Docker, data: &Path) {
    let directory = data.join("volume");
    std::fs::create_dir(&directory).unwrap();
    let volume = crate::VolumePlace {
        volume: "v-1".into(),
        name: "data".into(),
        directory: directory.clone(),
        at: "/vm".into(),
        read_only: false,
        subpath: None,
        source: None,
    };
    let mut first = spec("d-writer");
    first.volumes = vec![volume.clone()];
    let placed = create(docker, &first).await;
    assert_eq!(shell(&door(&placed), "echo precious > /vm/file; stat -c %U /vm /vm/file").await, "user\nuser\n");
    docker.delete("d-writer").await.unwrap();
    let mut second = spec("d-reader");
    second.volumes = vec![crate::VolumePlace { read_only: true, ..volume.clone() }];
    let placed = create(docker, &second).await;
    let seen = shell(&door(&placed), "cat /vm/file; touch /vm/x 2>&1").await;
    assert!(seen.starts_with("precious\n") && seen.contains("Read-only file system"), "{seen}");
    docker.delete("d-reader").await.unwrap();
    assert_eq!(std::fs::read_to_string(directory.join("file")).unwrap(), "precious\n");
    let (progress, _) = Progress::new();
    let mut part = spec("d-part");
    part.volumes = vec![crate::VolumePlace { subpath: Some("a".into()), ..volume }];
    assert!(matches!(docker.create(&part, &progress).await, Err(Error::Unsupported { .. })));
    docker.delete("d-part").await.unwrap();
}

async fn limits(docker: &Docker) {
    let mut spec = spec("d-small");
    spec.resources = Resources { cpus: 64.0, memory_mib: 256, disk_mib: 1024 };
    let door = door(&create(docker, &spec).await);
    let answer = shell(&door, "python3 -c 'x = bytearray(400 << 20)' >/dev/null 2>&1; echo $?").await;
    assert_eq!(answer.trim(), "137", "more memory than the limit is not to be had");
    let threads = "import threading, time\nn = 0\ntry:\n  while n < 4000:\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1\n\
                   except RuntimeError:\n  pass\nprint(n, flush=True)\nimport os; os._exit(0)";
    let answer = shell(&door, &format!("python3 -c '{threads}'")).await;
    let count: u32 = answer.trim().parse().unwrap();
    assert!((500..2048).contains(&count), "{count} threads");
    assert!(door.health().await.unwrap().ready, "it survived both");
    docker.delete("d-small").await.unwrap();
}

async fn isolation(docker: &Docker) {
    let mut closed = spec("d-closed");
    closed.network = false;
    let closed = create(docker, &closed).await;
    let Address::Tcp { addr } = &closed.address else { panic!("{closed:?}") };
    assert!(!addr.ip().is_loopback(), "it has no published port");
    let one = create(docker, &spec("d-one")).await;
    let two = create(docker, &spec("d-two")).await;
    let (open, closed) = (door(&one), door(&closed));
    let outside = Outside::new();
    let address = shell(&door(&two), "hostname -I").await;
    assert_eq!(reach(&door(&two), address.trim(), 5000).await, "reached", "it listens there");
    assert_eq!(reach(&open, Outside::ADDRESS, Outside::PORT).await, "reached", "a desk with a network reaches the outside");
    for (who, door, address, port) in [
        ("a desk reaches another one", &open, address.trim(), 5000),
        ("a closed desk reaches another one", &closed, address.trim(), 5000),
        ("a closed desk reaches the outside", &closed, Outside::ADDRESS, Outside::PORT),
        ("a desk reaches the machine", &open, Outside::MACHINE, outside.machine_port),
        ("a closed desk reaches the machine", &closed, Outside::MACHINE, outside.machine_port),
    ] {
        assert_ne!(reach(door, address, port).await, "reached", "{who}");
    }
    for id in ["d-closed", "d-two"] {
        docker.delete(id).await.unwrap();
    }
}

/// `reached`, or why not.
async fn reach(door: &Door, address: &str, port: u16) -> String {
    let python = format!("import socket; socket.create_connection((\"{address}\", {port}), 2); print(\"reached\")");
    shell(door, &format!("python3 -c '{python}' 2>&1 | tail -n 1")).await.trim().to_owned()
}

/// A network beyond the daemon's, with a server on it; and a server on the daemon's own end of the cable.
struct Outside {
    server: std::process::Child,
    _machine: std::net::TcpListener,
    machine_port: u16,
}

impl Outside {
    const ADDRESS: &str = "10.77.0.2";
    const MACHINE: &str = "10.77.0.1";
    const PORT: u16 = 8080;

    fn new() -> Self {
        let script = "ip link set lo up; until ip link show out1 >/dev/null 2>&1; do sleep 0.05; done; \
                      ip addr add 10.77.0.2/24 dev out1; ip link set out1 up; exec python3 -m http.server 8080 --bind 10.77.0.2";
        let server = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", script])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Its namespace is there as soon as it differs from ours.
        let ours = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(format!("/proc/{}/ns/net", server.id())).unwrap() == ours {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = server.id().to_string();
        for command in
            ["ip link add out0 type veth peer name out1 netns PID", "ip addr add 10.77.0.1/24 dev out0", "ip link set out0 up"]
        {
            let command = command.replace("PID", &pid);
            assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
        }
        while std::net::TcpStream::connect((Self::ADDRESS, Self::PORT)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let machine = std::net::TcpListener::bind((Self::MACHINE, 0)).unwrap();
        let machine_port = machine.local_addr().unwrap().port();
        Self { server, _machine: machine, machine_port }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

async fn a_killed_daemon(docker: &Docker, daemon: &Path) {
    let (progress, _) = Progress::new();
    let placed = create(docker, &spec("d-one")).await;
    shell(&door(&placed), "echo survived > ~/file; sync").await;
    dockerd("kill", daemon);
    let begun = Instant::now();
    let error = docker.list().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(6));
    assert!(matches!(docker.delete("d-one").await, Err(Error::Unavailable { .. })));
    dockerd("start", daemon);
    let found = docker.list().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id, "d-one");
    let placed = docker.start(&spec("d-one"), &progress).await.unwrap();
    assert_eq!(shell(&door(&placed), "cat ~/file").await, "survived\n");
}

async fn snapshots(docker: &Docker, daemon: &Path) {
    let placed = create(docker, &spec("d-one")).await;
    shell(&door(&placed), "echo one > ~/file; head -c 3000000 /dev/urandom > ~/big").await;
    let size = docker.snapshot("d-one", "s-first", false).await.unwrap();
    assert!((3_000_000..50_000_000).contains(&size), "{size}");
    assert_eq!(docker.snapshot("d-one", "s-first", false).await.unwrap(), size);
    assert!(matches!(docker.snapshot("d-one", "s-memory", true).await, Err(Error::Unsupported { .. })));
    assert_eq!(docker.snapshots().await.unwrap(), ["s-first"]);
    let mut fork = spec("d-fork");
    fork.secret = "another-secret-of-the-fork".into();
    fork.snapshot = Some(SnapshotRef { id: "s-first".into(), memory: false });
    let forked = create(docker, &fork).await;
    let forked = Door { address: forked.address, secret: fork.secret.clone() };
    assert_eq!(shell(&forked, "cat ~/file; echo two > ~/file").await, "one\n");
    assert_eq!(shell(&door(&placed), "cat ~/file").await, "one\n");
    let (status, _) = ask(&Door { secret: SECRET.into(), ..forked.clone() }, "GET", "/v1/screenshot", None).await;
    assert_eq!(status, 401, "the fork has its own secret");
    let saved = engine(
        daemon,
        &["run", "--rm", "--user", "0", "--entrypoint", "/bin/cat", "hotdesk/snapshot-testtest:s-first", "/etc/hotdesk/own.toml"],
    );
    assert_eq!(saved, "", "a snapshot holds no secret");
    // Deleted while a desk runs on it: the desk goes on, and takes the rest away when it goes.
    docker.delete_snapshot("s-first").await.unwrap();
    docker.delete_snapshot("s-first").await.unwrap();
    assert!(docker.snapshots().await.unwrap().is_empty());
    assert_eq!(shell(&forked, "cat ~/file").await, "two\n");
    docker.delete("d-fork").await.unwrap();
    fork.id = "d-late".into();
    let (progress, _) = Progress::new();
    assert!(matches!(docker.create(&fork, &progress).await, Err(Error::NotFound(_))));
    assert_eq!(engine(daemon, &["images", "--quiet", "--filter", "label=hotdesk.snapshot"]), "");
}

async fn archives(docker: &Docker, data: &Path) {
    let (progress, _) = Progress::new();
    let spec = spec("d-one");
    let placed = create(docker, &spec).await;
    shell(&door(&placed), "echo archived > ~/file; ln -s file ~/link").await;
    let tar = data.join("archive.tar");
    assert!(docker.export("d-one", &tar).await.unwrap_err().to_string().contains("stop it first"));
    docker.stop("d-one").await.unwrap();
    docker.export("d-one", &tar).await.unwrap();
    let bytes = std::fs::read(&tar).unwrap();
    assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "an archive holds no secret");
    drop(bytes);
    docker.delete("d-one").await.unwrap();
    docker.import(&spec, &tar).await.unwrap();
    docker.import(&spec, &tar).await.unwrap();
    assert!(!docker.list().await.unwrap()[0].running);
    let placed = docker.start(&spec, &progress).await.unwrap();
    assert_eq!(shell(&door(&placed), "cat ~/link; stat -c %U ~/file").await, "archived\nuser\n");
    std::fs::write(&tar, b"not a tar").unwrap();
    assert!(docker.import(&self::spec("d-bad"), &tar).await.is_err());
    assert!(docker.list().await.unwrap().iter().all(|found| found.id != "d-bad"));
}

async fn nothing_left(docker: &Docker, daemon: &Path) {
    for found in docker.list().await.unwrap() {
        docker.delete(&found.id).await.unwrap();
    }
    docker.delete("d-one").await.unwrap();
    assert_eq!(engine(daemon, &["ps", "--all", "--quiet"]), "");
    assert_eq!(engine(daemon, &["network", "ls", "--quiet", "--filter", "label=hotdesk.fleet"]), "");
    assert_eq!(engine(daemon, &["volume", "ls", "--quiet"]), "");
    let images = engine(daemon, &["images", "--all", "--format", "{{.Repository}}"]);
    assert!(images.lines().all(|line| line == "hotdesk/bare"), "{images}");
}

async fn speed(docker: &Docker) {
    let mut times = Vec::new();
    for run in 0..10 {
        let spec = spec(&format!("d-run{run}"));
        let begun = Instant::now();
        create(docker, &spec).await;
        times.push(begun.elapsed().as_millis());
        docker.delete(&spec.id).await.unwrap();
    }
    times.sort_unstable();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    eprintln!("  create → ready: median {} ms ({}–{}), load {}", times[5], times[0], times[9], load.split(' ').next().unwrap());
}

fn spec(id: &str) -> DeskSpec {
    DeskSpec {
        id: id.into(),
        template: "bare".into(),
        snapshot: None,
        resources: Resources { cpus: 1.0, memory_mib: 1024, disk_mib: 1024 },
        screen: Size { width: 1024, height: 768 },
        env: [("COLOUR".to_owned(), "green".to_owned())].into(),
        labels: [("team".to_owned(), "tests".to_owned())].into(),
        network: true,
        vnc_password: Some(PASSWORD.into()),
        secret: SECRET.into(),
        volumes: Vec::new(),
    }
}

fn context(data: &Path) -> Context {
    let templates = data.join("templates");
    std::fs::create_dir_all(&templates).unwrap();
    std::fs::write(templates.join("not-built.toml"), "extends = 'bare'\npackages = ['no-such-package-anywhere']").unwrap();
    std::fs::write(templates.join("foreign.toml"), "image = 'localhost:1/nobody/nothing:1'").unwrap();
    let images = std::env::var("HOTDESK_IMAGES").unwrap_or_else(|_| "/var/cache/hotdesk/images".into());
    let library = hotdesk_image::Library::open(images).unwrap().with_templates(templates);
    Context { fleet: "testtest".into(), data: data.into(), binary: binary(), images: Arc::new(library) }
}

fn provider(host: &str, data: &Path) -> Docker {
    Docker::new(context(data), Config { host: Some(host.into()) }).unwrap()
}

/// Before anything else, because the daemon's namespace has no way to packages.
fn build_bare() {
    let data = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(context(data.path()).images.build("bare", |stage| eprintln!("  {stage}"))).unwrap();
}

/// The binary of the same build as this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("hotdesk");
    assert!(binary.is_file(), "{} is missing; `cargo build -p hotdesk` makes it", binary.display());
    binary
}

async fn create(docker: &Docker, spec: &DeskSpec) -> Placed {
    let (progress, _) = Progress::new();
    docker.create(spec, &progress).await.unwrap()
}

fn door(placed: &Placed) -> Door {
    Door { address: placed.address.clone(), secret: SECRET.into() }
}

async fn shell(door: &Door, command: &str) -> String {
    let (status, answer) = ask(door, "POST", "/execute", Some(json!({ "command": command, "shell": true }))).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    answer["output"].as_str().unwrap().to_owned()
}

async fn ask(door: &Door, method: &str, path: &str, body: Option<Value>) -> (u16, Vec<u8>) {
    let stream = door.address.connect().await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "desk")
        .header("authorization", format!("Bearer {}", door.secret))
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body.map(|body| body.to_string()).unwrap_or_default())))
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
}

/// What the `docker` command prints, asked of the private daemon.
fn engine(daemon: &Path, arguments: &[&str]) -> String {
    let output = Command::new("docker").arg("--host").arg(socket(daemon)).args(arguments).output().expect("the docker command");
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn socket(daemon: &Path) -> String {
    format!("unix://{}/docker.sock", daemon.display())
}

/// A private daemon, which ends with its owner.
struct Daemon {
    directory: PathBuf,
}

impl Daemon {
    fn start() -> Self {
        let directory = PathBuf::from(format!("/tmp/hotdesk-dockerd-{}", std::process::id()));
        dockerd("start", &directory);
        Self { directory }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        dockerd("stop", &self.directory);
    }
}

fn dockerd(verb: &str, directory: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dockerd");
    let output = Command::new(script).arg(verb).arg(directory).output().unwrap();
    assert!(output.status.success(), "dockerd {verb}: {}", String::from_utf8_lossy(&output.stderr));
}
