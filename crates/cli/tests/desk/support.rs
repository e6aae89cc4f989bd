//! A desk under test, and how it is looked at.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for a machine with many times more to do than it can.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotdesk"));
    for (name, _) in std::env::vars_os() {
        let foreign = name.to_string_lossy();
        if foreign.starts_with("HOTDESK_") || ["RESOLUTION", "NOTIFY_SOCKET"].contains(&&*foreign) {
            command.env_remove(name);
        }
    }
    command
}

/// A desk with a home, a socket and a mark by which its processes are known.
pub(crate) struct Desk {
    pub(crate) child: Child,
    pub(crate) folder: tempfile::TempDir,
    mark: String,
    /// Who is asked to stop, where it is not the child itself.
    pub(crate) target: Option<i32>,
}

impl Desk {
    /// Starts the binary on a free display.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = binary();
        command.args(["desk", "--display", "auto", "--size", "640x480"]);
        Self::from(command, arguments, |command| command)
    }

    /// Starts the binary as `command` says; `wrap` may put another command around it.
    pub(crate) fn from(mut command: Command, arguments: &[&str], wrap: impl FnOnce(Command) -> Command) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let mark = format!("HOTDESK_MARK_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let config = folder.path().join("desk.toml");
        std::fs::write(&config, format!("[env]\nMARK = '{mark}'\n")).unwrap();
        // The desk may run as somebody else.
        for path in [folder.path(), &home] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        }
        command
            .arg("--listen")
            .arg(format!("unix:{}", folder.path().join("http").display()))
            .arg("--home")
            .arg(&home)
            .arg("--config")
            .arg(&config)
            .args(arguments)
            .env("TMPDIR", "/tmp")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = wrap(command).stderr(log).spawn().unwrap();
        Self { child, folder, mark, target: None }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Sends a request; status, head and body. `None` while nobody listens.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, String, Vec<u8>)> {
        let mut stream = UnixStream::connect(self.folder.path().join("http")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split_whitespace().nth(1)?.parse().ok()?;
        let mut body = answer.split_off(end + 4);
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            body = unchunk(&body);
        }
        Some((status, head, body))
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.ask("GET", path, "").expect("the desk answers");
        (status, serde_json::from_slice(&body).expect("the answer is JSON"))
    }

    /// Waits until the desk is ready; its health then.
    pub(crate) fn ready(&mut self) -> Value {
        until("a desk that is ready", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the desk ended: {status}");
            }
            let (status, _, body) = self.ask("GET", "/health", "")?;
            let health: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(status == 200, health["ready"] == true, "{health}");
            (status == 200).then_some(health)
        })
    }

    pub(crate) fn pid(&self, part: &str) -> Option<i32> {
        self.get("/health").1["parts"][part]["pid"].as_i64().map(|pid| pid as i32)
    }

    pub(crate) fn display(&self) -> u16 {
        let info = self.get("/v1/info").1;
        info["display"].as_str().unwrap().trim_start_matches(':').parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = self.target.unwrap_or(self.child.id() as i32);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the end of the desk", || self.child.try_wait().unwrap())
    }

    /// Asks the desk to stop, and checks that nothing is left of it.
    pub(crate) fn stop(&mut self) {
        let display = self.display();
        // Whoever starts next may take the same number, so it is the very files that must be gone.
        let paths = [
            format!("/tmp/.X{display}-lock"),
            format!("/tmp/.X11-unix/X{display}"),
            format!("/tmp/hotdesk-{}-{display}", nix::unistd::geteuid()),
        ];
        let before = paths.each_ref().map(|path| which(path));
        self.signal(nix::sys::signal::SIGTERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{status} {:?}", status.signal());
        assert_eq!(self.processes(), Vec::<String>::new(), "processes are left");
        for (path, before) in paths.iter().zip(before) {
            assert!(before.is_none() || which(path) != before, "{path} is left");
        }
        assert!(!self.home().join(".Xauthority").exists(), "the cookie is left");
        assert!(!self.folder.path().join("http").exists(), "the socket is left");
    }

    /// The living processes that carry the mark of this desk, as text.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.windows(self.mark.len()).any(|bytes| bytes == self.mark.as_bytes()) {
                let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push(String::from_utf8_lossy(&command).replace('\0', " "));
            }
        }
        found
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
        }
        let begin = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            // Asked once it ends cleanly, again and again it does not wait; below it nobody is left either way.
            let pid = nix::unistd::Pid::from_raw(self.target.unwrap_or(self.child.id() as i32));
            let signal = if begin.elapsed() < PATIENCE { nix::sys::signal::SIGTERM } else { nix::sys::signal::SIGKILL };
            let _ = nix::sys::signal::kill(pid, signal);
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

/// Whether a process lives, and is not only waiting to be reaped.
pub(crate) fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}

pub(crate) fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
}

/// What tells a file from another of the same name.
fn which(path: &str) -> Option<(u64, std::time::SystemTime)> {
    let data = std::fs::symlink_metadata(path).ok()?;
    Some((std::os::unix::fs::MetadataExt::ino(&data), data.created().ok()?))
}
