//! A private Docker daemon (`scripts/dockerd`), and desks in it.
//!
//! `scripts/test-rust` starts one daemon for all tests and says where it is; otherwise each test has its own. Tests run in the
//! daemon's network namespace, because its published ports are there.

use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_provider::docker::{Config, Docker};
use hotdesk_provider::{Context, DeskSpec, Door, Placed, Progress, Provider};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub(crate) const SECRET: &str = "a-secret-that-nobody-may-see";
pub(crate) const PASSWORD: &str = "pass-word";

/// A daemon. One that was started by the test ends with it.
pub(crate) struct Engine {
    pub(crate) directory: PathBuf,
    own: bool,
}

impl Engine {
    /// The one that tests share.
    pub(crate) fn shared() -> Self {
        match std::env::var_os("HOTDESK_TEST_DOCKER") {
            Some(directory) => Self { directory: directory.into(), own: false },
            None => Self::own(),
        }
    }

    /// For a test that kills it, or looks at everything in it.
    pub(crate) fn own() -> Self {
        let directory = PathBuf::from(format!("/tmp/hotdesk-dockerd-{}-{:08x}", std::process::id(), rand::random::<u32>()));
        dockerd("start", &directory);
        Self { directory, own: true }
    }

    /// One whose containers' users are others than the machine's.
    pub(crate) fn with_user_namespaces() -> Self {
        let directory = PathBuf::from(format!("/tmp/hotdesk-dockerd-{}-{:08x}", std::process::id(), rand::random::<u32>()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dockerd");
        let output = Command::new(script).arg("start").arg(&directory).arg("--userns").output().unwrap();
        assert!(output.status.success(), "dockerd start: {}", String::from_utf8_lossy(&output.stderr));
        Self { directory, own: true }
    }

    /// Runs a test in the daemon's network, with a fleet of its own, of which nothing may be left.
    pub(crate) fn run(self, test: impl AsyncFnOnce(&Place) + Send + 'static) {
        build_bare();
        let net = std::fs::File::open(self.directory.join("net")).unwrap();
        let directory = self.directory.clone();
        // A thread that changes its namespace can't change it back for the tests that use it next.
        let thread = std::thread::spawn(move || {
            let network = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(net.as_fd(), network).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let place = Place::new(directory);
                test(&place).await;
                place.end().await;
            });
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.own {
            dockerd("stop", &self.directory);
        }
    }
}

pub(crate) fn dockerd(verb: &str, directory: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dockerd");
    let output = Command::new(script).arg(verb).arg(directory).output().unwrap();
    assert!(output.status.success(), "dockerd {verb}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A provider with a fleet of its own in a daemon.
pub(crate) struct Place {
    pub(crate) docker: Docker,
    pub(crate) fleet: String,
    pub(crate) data: tempfile::TempDir,
    pub(crate) daemon: PathBuf,
}

impl Place {
    fn new(daemon: PathBuf) -> Self {
        let data = tempfile::tempdir().unwrap();
        let fleet = format!("t{:07x}", rand::random::<u32>() >> 4);
        let docker = provider(&socket(&daemon), data.path(), &fleet);
        Self { docker, fleet, data, daemon }
    }

    /// Makes a desk. Its image is made once per daemon, however many tests want it at the same time.
    pub(crate) async fn create(&self, spec: &DeskSpec) -> Placed {
        let (progress, _) = Progress::new();
        {
            let lock = std::fs::File::create(self.daemon.join("image.lock")).unwrap();
            lock.lock().unwrap();
            self.docker.prepare("bare", &progress).await.unwrap();
        }
        self.docker.create(spec, &progress).await.unwrap()
    }

    pub(crate) fn container(&self, id: &str) -> String {
        format!("hotdesk-{}-{id}", self.fleet)
    }

    /// What the `docker` command prints, asked of the private daemon.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let output = Command::new("docker").arg("--host").arg(socket(&self.daemon)).args(arguments).output();
        let output = output.expect("the docker command");
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Deletes all desks of the fleet, and looks whether anything is left of it.
    async fn end(&self) {
        for found in self.docker.list().await.unwrap() {
            self.docker.delete(&found.id).await.unwrap();
        }
        let ours = format!("label=hotdesk.fleet={}", self.fleet);
        assert_eq!(self.ask(&["ps", "--all", "--quiet", "--filter", &ours]), "", "containers are left");
        assert_eq!(self.ask(&["network", "ls", "--quiet", "--filter", &ours]), "", "networks are left");
        assert_eq!(self.ask(&["images", "--all", "--quiet", "--filter", &ours]), "", "images are left");
    }
}

pub(crate) fn socket(daemon: &Path) -> String {
    format!("unix://{}/docker.sock", daemon.display())
}

pub(crate) fn context(data: &Path, fleet: &str) -> Context {
    let templates = data.join("templates");
    std::fs::create_dir_all(&templates).unwrap();
    std::fs::write(templates.join("not-built.toml"), "extends = 'bare'\npackages = ['no-such-package-anywhere']").unwrap();
    std::fs::write(templates.join("rooted.toml"), "extends = 'bare'\nroot = true").unwrap();
    std::fs::write(templates.join("foreign.toml"), "image = 'localhost:1/nobody/nothing:1'").unwrap();
    let images = std::env::var("HOTDESK_IMAGES").unwrap_or_else(|_| "/var/cache/hotdesk/images".into());
    let library = hotdesk_image::Library::open(images).unwrap().with_templates(templates);
    Context { fleet: fleet.into(), data: data.into(), binary: binary(), images: Arc::new(library) }
}

pub(crate) fn provider(host: &str, data: &Path, fleet: &str) -> Docker {
    Docker::new(context(data, fleet), Config { host: Some(host.into()), ..Config::default() }).unwrap()
}

/// Before anything else, because the daemon's namespace has no way to packages.
fn build_bare() {
    let data = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for template in ["bare", "rooted"] {
        runtime.block_on(context(data.path(), "building").images.build(template, |stage| eprintln!("  {stage}"))).unwrap();
    }
}

/// The binary of the same build as this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("hotdesk");
    assert!(binary.is_file(), "{} is missing; `cargo build -p hotdesk` makes it", binary.display());
    binary
}

pub(crate) fn spec(id: &str) -> DeskSpec {
    DeskSpec {
        id: id.into(),
        template: "bare".into(),
        snapshot: None,
        resources: Resources { cpus: 1.0, memory_mib: 1024, disk_mib: 1024 },
        screen: Size { width: 1024, height: 768 },
        env: [("COLOUR".to_owned(), "green".to_owned())].into(),
        labels: [("team".to_owned(), "hidden-in-a-label".to_owned())].into(),
        network: true,
        vnc_password: Some(PASSWORD.into()),
        secret: SECRET.into(),
        volumes: Vec::new(),
    }
}

pub(crate) fn door(placed: &Placed) -> Door {
    Door { address: placed.address.clone(), secret: SECRET.into() }
}

pub(crate) async fn shell(door: &Door, command: &str) -> String {
    let (status, answer) = ask(door, "POST", "/execute", Some(json!({ "command": command, "shell": true }))).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    answer["output"].as_str().unwrap().to_owned()
}

pub(crate) async fn ask(door: &Door, method: &str, path: &str, body: Option<Value>) -> (u16, Vec<u8>) {
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
