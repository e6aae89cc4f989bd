//! A provider of its own for a test, and desks that clean up after themselves.

use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_image::Library;
use hotdesk_provider::local::{Config, Local};
use hotdesk_provider::{Address, Context, DeskSpec, Door, Placed, Progress, Provider};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The binary that desks run: `HOTDESK_BINARY`, or the one beside the tests.
pub(crate) fn binary() -> PathBuf {
    let path = std::env::var_os("HOTDESK_BINARY").map_or_else(
        || {
            let own = std::env::current_exe().expect("a test has a path");
            own.ancestors().nth(2).expect("tests lie two below").join("hotdesk")
        },
        PathBuf::from,
    );
    assert!(path.is_file(), "{} is missing; build it with `cargo build -p hotdesk`", path.display());
    path
}

pub(crate) fn images() -> PathBuf {
    std::env::var_os("HOTDESK_IMAGES").map_or_else(|| "/var/cache/hotdesk/images".into(), PathBuf::from)
}

pub(crate) struct Place {
    pub(crate) local: Local,
    pub(crate) fleet: String,
    pub(crate) folder: tempfile::TempDir,
    config: Config,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        // Not in /tmp, which may be a memory file system.
        Self::at(tempfile::Builder::new().prefix("hotdesk-local-").tempdir_in("/var/tmp").unwrap(), config).await
    }

    pub(crate) async fn at(folder: tempfile::TempDir, config: Config) -> Self {
        let fleet = format!("t{:07x}", rand::random::<u32>() >> 4);
        let place = Self { local: open(&fleet, folder.path(), config.clone()), fleet, folder, config };
        let (progress, _) = Progress::new();
        place.local.prepare("bare", &progress).await.expect("the template `bare` can be built");
        place
    }

    /// The same directory, as a new orchestrator finds it.
    pub(crate) fn again(&self) -> Local {
        open(&self.fleet, self.folder.path(), self.config.clone())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("local")
    }

    pub(crate) fn spec(&self, id: &str) -> DeskSpec {
        DeskSpec {
            id: id.into(),
            template: "bare".into(),
            snapshot: None,
            resources: Resources { cpus: 2.0, memory_mib: 512, disk_mib: 256 },
            screen: Size { width: 1024, height: 768 },
            env: Default::default(),
            labels: Default::default(),
            network: false,
            vnc_password: None,
            secret: format!("secret-of-{id}"),
            volumes: Vec::new(),
        }
    }

    pub(crate) async fn create(&self, spec: &DeskSpec) -> Desk {
        let (progress, _) = Progress::new();
        let placed = self.local.create(spec, &progress).await.unwrap_or_else(|e| panic!("{}: {e}", spec.id));
        Desk::new(spec, &placed)
    }

    pub(crate) async fn desk(&self, id: &str) -> Desk {
        self.create(&self.spec(id)).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whatever a failed test left; by its own group and directory.
        let ids: Vec<_> = std::fs::read_dir(self.data().join("desks")).into_iter().flatten().flatten().collect();
        let local = self.again();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    for id in ids {
                        let _ = local.delete(&id.file_name().to_string_lossy()).await;
                    }
                });
            });
        });
    }
}

pub(crate) fn open(fleet: &str, folder: &Path, config: Config) -> Local {
    let images = Arc::new(Library::open(images()).expect("the library of templates can be opened"));
    let context = Context { fleet: fleet.into(), data: folder.join("local"), binary: binary(), images };
    Local::new(context, config).expect("the provider works here")
}

/// What is left on the machine of a desk that is gone: processes, mounts, groups, loop devices.
pub(crate) fn leftovers(place: &Place, pid: i32) -> Vec<String> {
    let mut left = Vec::new();
    let data = place.folder.path().to_string_lossy().into_owned();
    // A dead one that nobody has reaped yet is gone.
    let lives = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    if lives(pid) {
        left.push(format!("process {pid}"));
    }
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        if !lives(pid) {
            continue;
        }
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let words = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if words.contains(&data) || String::from_utf8_lossy(&read("cgroup")).contains(&format!("/{}/", place.fleet)) {
            left.push(format!("process {pid}: {words}"));
        }
        if String::from_utf8_lossy(&read("mountinfo")).contains(&data) {
            left.push(format!("mounts of process {pid}: {words}"));
        }
    }
    for entry in std::fs::read_dir("/sys/block").unwrap().flatten() {
        let behind = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if behind.contains(&data) {
            left.push(format!("{}: {behind}", entry.file_name().to_string_lossy()));
        }
    }
    for tree in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        if tree.path().join("hotdesk").join(&place.fleet).exists() {
            left.push(format!("group in {}", tree.path().display()));
        }
    }
    left
}

/// The children of a process, with their names.
pub(crate) fn children(pid: i32) -> Vec<(i32, String)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    all.filter_map(|child| {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        (field("PPid:")? == pid.to_string()).then(|| (child, field("Name:").unwrap_or_default()))
    })
    .collect()
}

/// A small file system, in a namespace that every thread of the test sees; gone with it.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn mount(mib: u32) -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let options = format!("size={mib}m");
        let status =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(folder.path()).status();
        assert!(status.unwrap().success(), "a tmpfs can be mounted");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

/// A running desk.
pub(crate) struct Desk {
    pub(crate) door: Door,
    pub(crate) pid: i32,
}

/// What a command inside gave.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i64,
    pub(crate) text: String,
}

impl Desk {
    pub(crate) fn new(spec: &DeskSpec, placed: &Placed) -> Self {
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        Self { door, pid: i32::try_from(placed.handle["pid"].as_i64().unwrap()).unwrap() }
    }

    /// Runs a shell command inside, as a program of the desk.
    pub(crate) async fn sh(&self, script: &str) -> Output {
        let body = json!({ "command": ["sh", "-c", format!("exec 2>&1; {script}")], "shell": false });
        let (status, answer) = self.ask("POST", "/execute", &body).await;
        assert_eq!(status, 200, "{answer}");
        Output {
            code: answer["returncode"].as_i64().unwrap_or(-1),
            text: answer["output"].as_str().unwrap_or_default().trim().into(),
        }
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let stream = self.door.address.connect().await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "desk")
            .header("authorization", format!("Bearer {}", self.door.secret))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(crate) fn socket(&self) -> &Path {
        match &self.door.address {
            Address::Unix { path } => path,
            _ => panic!("desks of this provider have a socket file"),
        }
    }
}
