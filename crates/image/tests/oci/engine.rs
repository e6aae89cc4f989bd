//! A private Docker daemon, and the server of a container in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// What every container here is denied.
pub(crate) const NOTHING: &str =
    "--detach --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs /tmp --tmpfs /run --tmpfs /home/user";
/// Between two looks whether a server answers.
const LOOK: Duration = Duration::from_millis(250);

/// It ends with its owner.
pub(crate) struct Daemon {
    directory: PathBuf,
}

impl Daemon {
    pub(crate) fn start(name: &str) -> Self {
        let daemon = Self { directory: PathBuf::from(format!("/tmp/hotdesk-{name}-{}", std::process::id())) };
        daemon.script("start", &[]);
        daemon
    }

    fn script(&self, verb: &str, words: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dockerd");
        let output = Command::new(script).arg(verb).arg(&self.directory).args(words).output().unwrap();
        assert!(verb == "run" || output.status.success(), "dockerd {verb}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn ask(&self, words: &[&str]) -> Output {
        let socket = format!("unix://{}/docker.sock", self.directory.display());
        Command::new("docker").args(["--host", &socket]).args(words).output().expect("the docker command")
    }

    pub(crate) fn docker(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Loads an image and returns what it is called.
    pub(crate) fn load(&self, tar: &Path) -> String {
        let said = self.docker(&["load", "--input", tar.to_str().unwrap()]);
        said.lines().find_map(|line| line.strip_prefix("Loaded image: ")).unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    /// Starts a container, denied everything, whose server is reached at a port of loopback.
    pub(crate) fn start_container(&self, name: &str, port: u16, more: &[&str]) {
        let publish = format!("127.0.0.1:{port}:5000");
        let mut words = vec!["run", "--name", name, "--publish", &publish];
        words.extend(NOTHING.split_whitespace());
        words.extend(more);
        self.docker(&words);
    }

    pub(crate) fn server<'a>(&'a self, container: &'a str, port: u16, token: &'a str) -> Server<'a> {
        Server { daemon: self, container, port, token }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.script("stop", &[]);
    }
}

pub(crate) struct Server<'a> {
    daemon: &'a Daemon,
    container: &'a str,
    port: u16,
    token: &'a str,
}

impl Server<'_> {
    /// Status and answer. 0: there was none.
    pub(crate) fn ask(&self, path: &str, body: Option<&serde_json::Value>) -> (u16, Vec<u8>) {
        let (url, token) = (format!("http://127.0.0.1:{}{path}", self.port), format!("Authorization: Bearer {}", self.token));
        let mut words = vec!["curl", "--silent", "--max-time", "120", "--write-out", "\n%{http_code}", &url];
        if !self.token.is_empty() {
            words.extend(["--header", &token]);
        }
        let body = body.map(ToString::to_string);
        if let Some(body) = &body {
            words.extend(["--header", "Content-Type: application/json", "--data", body]);
        }
        // Published ports are in the daemon's own network.
        let mut answer = self.daemon.script("run", &words).stdout;
        let end = answer.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let status = String::from_utf8_lossy(&answer[end..]).trim().parse().unwrap_or(0);
        answer.truncate(end);
        (status, answer)
    }

    /// Waits until `/health` answers as wanted; a container that ends says why.
    pub(crate) fn wait(&self, limit: Duration, wanted: impl Fn(u16, &str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let (status, health) = self.ask("/health", None);
            let health = String::from_utf8_lossy(&health).into_owned();
            if wanted(status, &health) {
                eprintln!("{} after {:?}: {health}", self.container, begun.elapsed());
                return health;
            }
            let running = self.daemon.docker(&["inspect", "--format", "{{.State.Running}}", self.container]);
            let said = self.daemon.ask(&["logs", self.container]).stderr;
            let said = String::from_utf8_lossy(&said);
            assert!(running.trim() == "true", "the container ended: {said}");
            assert!(begun.elapsed() < limit, "{status} {health}; it said: {said}");
            std::thread::sleep(LOOK);
        }
    }

    pub(crate) fn wait_ready(&self, limit: Duration) {
        self.wait(limit, |status, _| status == 200);
    }

    /// A picture of the screen: its width, and its bytes.
    pub(crate) fn picture(&self) -> (u32, Vec<u8>) {
        let (status, picture) = self.ask("/screenshot", None);
        assert_eq!((status, picture.get(..8)), (200, Some(&b"\x89PNG\r\n\x1a\n"[..])));
        (u32::from_be_bytes(picture[16..20].try_into().unwrap()), picture)
    }

    pub(crate) fn shell(&self, command: &str) -> String {
        let (status, answer) = self.ask("/execute", Some(&serde_json::json!({ "command": command, "shell": true })));
        assert_eq!(status, 200, "{command}: {}", String::from_utf8_lossy(&answer));
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        answer["output"].as_str().unwrap().to_owned()
    }
}
