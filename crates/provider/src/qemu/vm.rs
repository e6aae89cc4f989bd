//! A machine that runs: one QEMU process, and the ways into it.

use super::console::{self, Sign};
use super::filter::{self, Rules};
use super::machine::{self, Machine, Memory, Sockets};
use super::qmp::Qmp;
use super::wire::{self, Wire};
use crate::{Error, Result};
use serde_json::json;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

/// What a machine is started with.
#[derive(Debug, Clone)]
pub(crate) struct Launch<'a> {
    pub(crate) name: &'a str,
    /// QEMU's own directory.
    pub(crate) folder: &'a Path,
    pub(crate) machine: &'a Machine,
    pub(crate) disk: &'a Path,
    pub(crate) memory: &'a Memory,
    /// What the guest may reach.
    pub(crate) rules: Rules,
}

/// How long a machine's state may take to come or go: gigabytes through a slow disk.
const MOVE_LIMIT: Duration = Duration::from_secs(600);
/// Bytes per second: no bound. QEMU's own default is made for networks.
const BANDWIDTH: u64 = 64 << 30;
/// What is told of QEMU's own complaints.
const LAST_WORDS: usize = 1000;
/// Without any word from QEMU it is looked at again after so long.
const LOOK: Duration = Duration::from_secs(1);
/// How long QEMU may take to end.
const QUIT_LIMIT: Duration = Duration::from_secs(5);
const STATE: &str = "state.sock";

/// A machine that runs.
pub(crate) struct Vm {
    qmp: Qmp,
    /// How QEMU ended, once it has.
    exit: watch::Receiver<Option<ExitStatus>>,
    kill: Arc<Notify>,
    pid: i32,
    folder: PathBuf,
    wire: Wire,
    sign: watch::Receiver<Sign>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Vm {
    /// Starts QEMU; one that resumes goes on from what was saved. It ends with this process.
    pub(crate) async fn start(launch: Launch<'_>) -> Result<Self> {
        let folder = launch.folder.to_owned();
        let failed = |e: std::io::Error| Error::Failed(format!("the machine's sockets can't be made: {e}"));
        for (name, text) in [(machine::TOKEN, ""), (machine::SETTINGS, "")] {
            if !folder.join(name).exists() {
                crate::local::directory::write_bytes(&folder.join(name), text.as_bytes(), 0o600).map_err(failed)?;
            }
        }
        let _ = std::fs::remove_file(folder.join(machine::VIEW));
        let (monitor, monitor_end) = pair().map_err(failed)?;
        let (console_ours, console_end) = pair().map_err(failed)?;
        let (frames, frames_end) = pair().map_err(failed)?;
        let (allowed, allowed_end) = pair().map_err(failed)?;
        let (own_frames, keeper_end) = pair().map_err(failed)?;
        let sockets = Sockets {
            monitor: monitor_end.as_raw_fd(),
            console: console_end.as_raw_fd(),
            frames: frames_end.as_raw_fd(),
            allowed: allowed_end.as_raw_fd(),
            keeper: keeper_end.as_raw_fd(),
        };
        let ends = vec![monitor_end, console_end, frames_end, allowed_end, keeper_end];
        let Launch { name, machine, disk, memory, rules, .. } = launch;
        let words = machine::arguments(name, machine, disk, memory, rules.network, sockets);
        let mut child = spawn(&machine.program, &words, &folder, &ends).await?;
        drop(ends);
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let qmp = match Qmp::open(monitor).await {
            Ok(qmp) => qmp,
            Err(e) => {
                let _ = child.kill().await;
                let said = complaints(&folder);
                return Err(if said.is_empty() { e } else { Error::Failed(format!("QEMU can't make the machine: {said}")) });
            }
        };
        let (sender, sign) = watch::channel(Sign::Silent);
        let (kill, (tell_exit, exit)) = (Arc::new(Notify::new()), watch::channel(None));
        let wire = Wire::new();
        let (filtered, carried) = (wire.clone(), wire.clone());
        let tasks = vec![
            AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(e) = filter::run(frames, allowed, &filtered, &rules).await {
                    tracing::debug!(error = %e, "the guest's network ended");
                }
                filtered.end();
            })),
            AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(e) = carried.run(own_frames).await {
                    tracing::debug!(error = %e, "the way into the guest ended");
                }
            })),
            AbortOnDropHandle::new(tokio::spawn(console::run(console_ours, folder.clone(), sender))),
            AbortOnDropHandle::new(tokio::spawn(watch_over(child, Arc::clone(&kill), tell_exit))),
        ];
        let vm = Self { qmp, exit, kill, pid, folder, wire, sign, _tasks: tasks };
        match memory {
            Memory::Own | Memory::Kept { .. } => {}
            Memory::Resumed { state, .. } => vm.load(state, true).await?,
            Memory::Unpacked { stream, .. } => vm.load(stream, false).await?,
        }
        Ok(vm)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// How far the guest is, as its console tells.
    pub(crate) fn sign(&self) -> watch::Receiver<Sign> {
        self.sign.clone()
    }

    pub(crate) fn view(&self) -> PathBuf {
        self.folder.join(machine::VIEW)
    }

    /// Lets the guest go on.
    pub(crate) async fn go_on(&self) -> Result<()> {
        self.qmp.ask("cont", json!({})).await.map(drop)
    }

    pub(crate) async fn pause(&self) -> Result<()> {
        self.qmp.ask("stop", json!({})).await.map(drop)
    }

    /// A connection to a port of the guest.
    pub(crate) async fn connect(&self, port: u16) -> Result<wire::Stream> {
        self.wire.connect(port).await.map_err(|e| Error::Failed(format!("port {port} of the guest: {e}")))
    }

    /// What the machine's screen shows, as PNG.
    pub(crate) async fn screenshot(&self) -> Result<Vec<u8>> {
        let name = format!("screen-{:08x}.png", rand::random::<u32>());
        self.qmp.ask("screendump", json!({ "filename": name, "format": "png" })).await?;
        let path = self.folder.join(name);
        let bytes = tokio::fs::read(&path).await;
        let _ = std::fs::remove_file(&path);
        bytes.map_err(|e| Error::Failed(format!("the picture of the screen can't be read: {e}")))
    }

    /// From now on what the guest writes goes to a new disk; the one before is complete.
    pub(crate) async fn next_disk(&self, node: &str, disk: &Path) -> Result<()> {
        let file = json!({ "driver": "file", "filename": disk });
        let new = json!({ "driver": "qcow2", "node-name": node, "discard": "unmap", "file": file, "backing": null });
        self.qmp.ask("blockdev-add", new).await?;
        let below = self.top_node().await?;
        self.qmp.ask("blockdev-snapshot", json!({ "node": below, "overlay": node })).await.map(drop)
    }

    /// The node that the guest writes to.
    async fn top_node(&self) -> Result<String> {
        let blocks = self.qmp.ask("query-block", json!({})).await?;
        let node = blocks.as_array().into_iter().flatten().find_map(|block| block["inserted"]["node-name"].as_str());
        node.map(str::to_owned).ok_or_else(|| Error::Failed("QEMU has no disk".into()))
    }

    /// Writes the state of a machine that stands still; `without_memory` if its memory is in a file of its own.
    pub(crate) async fn save(&self, to: &Path, without_memory: bool) -> Result<()> {
        self.prepare_move(without_memory).await?;
        let listener = self.state_socket()?;
        let partial = to.with_extension("new");
        let failed = |e: std::io::Error| crate::local::directory::trouble("write", &partial, &e);
        let receive = async {
            let (mut from, _) = listener.accept().await?;
            let mut file = tokio::fs::File::create(&partial).await?;
            tokio::io::copy_buf(&mut tokio::io::BufReader::with_capacity(1 << 20, &mut from), &mut file).await?;
            file.sync_data().await
        };
        let moved = async {
            self.qmp.ask("migrate", json!({ "uri": format!("unix:{STATE}") })).await?;
            self.moved().await
        };
        // Whoever fails first ends both.
        let both = async { tokio::try_join!(async { receive.await.map_err(failed) }, moved).map(drop) };
        let saved = tokio::time::timeout(MOVE_LIMIT, both).await;
        let _ = std::fs::remove_file(self.folder.join(STATE));
        let saved = saved.unwrap_or_else(|_| Err(Error::Failed("the machine's state was not written in time".into())));
        match saved {
            Ok(()) => std::fs::rename(&partial, to).map_err(failed),
            Err(e) => {
                let _ = std::fs::remove_file(&partial);
                Err(e)
            }
        }
    }

    /// Reads a state into a machine that waits for one.
    async fn load(&self, from: &Path, without_memory: bool) -> Result<()> {
        let failed = |e: std::io::Error| crate::local::directory::trouble("read", from, &e);
        self.prepare_move(without_memory).await?;
        let mut file = tokio::fs::File::open(from).await.map_err(failed)?;
        let _ = std::fs::remove_file(self.folder.join(STATE));
        self.qmp.ask("migrate-incoming", json!({ "uri": format!("unix:{STATE}") })).await?;
        let send = async {
            let mut to = connect_below(&self.folder, STATE).await?;
            tokio::io::copy_buf(&mut tokio::io::BufReader::with_capacity(1 << 20, &mut file), &mut to).await.map(drop)
        };
        let both = async { tokio::try_join!(async { send.await.map_err(failed) }, self.moved()).map(drop) };
        let loaded = tokio::time::timeout(MOVE_LIMIT, both).await;
        let _ = std::fs::remove_file(self.folder.join(STATE));
        let loaded = loaded.unwrap_or_else(|_| Err(Error::Failed("the machine's state was not read in time".into())));
        loaded.map_err(|e| match complaints(&self.folder) {
            said if said.is_empty() => e,
            said => Error::Failed(format!("what was saved can't be resumed: {said}")),
        })
    }

    async fn prepare_move(&self, without_memory: bool) -> Result<()> {
        let switch = |name: &str, on: bool| json!({ "capability": name, "state": on });
        let switches = json!([switch("x-ignore-shared", without_memory), switch("events", true)]);
        self.qmp.ask("migrate-set-capabilities", json!({ "capabilities": switches })).await?;
        self.qmp.ask("migrate-set-parameters", json!({ "max-bandwidth": BANDWIDTH })).await.map(drop)
    }

    /// Waits for the end of a move.
    async fn moved(&self) -> Result<()> {
        let mut events = self.qmp.events();
        loop {
            let status = self.qmp.ask("query-migrate", json!({})).await?;
            match status["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = status["error-desc"].as_str().unwrap_or("QEMU gives no reason");
                    return Err(Error::Failed(format!("the machine's state can't be moved: {why}")));
                }
                _ => {}
            }
            // Whatever happened means another look; so does silence, because a QEMU that has ended says nothing.
            let _ = tokio::time::timeout(LOOK, events.recv()).await;
        }
    }

    fn state_socket(&self) -> Result<UnixListener> {
        let path = self.folder.join(STATE);
        let _ = std::fs::remove_file(&path);
        let bound = File::open(&self.folder).and_then(|folder| {
            // The name by number is short, whatever the folder's is.
            UnixListener::bind(format!("/proc/self/fd/{}/{STATE}", folder.as_raw_fd()))
        });
        bound.map_err(|e| crate::local::directory::trouble("make", &path, &e))
    }

    /// Presses the power button and waits; false if the guest is still there.
    pub(crate) async fn power_down(&self, patience: Duration) -> bool {
        let _ = self.qmp.ask("system_powerdown", json!({})).await;
        self.exited(patience).await
    }

    /// Ends it at once.
    pub(crate) async fn quit(&self) {
        let asked = tokio::time::timeout(QUIT_LIMIT, self.qmp.ask("quit", json!({}))).await;
        if asked.is_err() || !self.exited(QUIT_LIMIT).await {
            self.kill.notify_one();
            self.exited(QUIT_LIMIT).await;
        }
    }

    async fn exited(&self, limit: Duration) -> bool {
        let mut exit = self.exit.clone();
        tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await.is_ok()
    }

    /// Waits until QEMU has ended, and says how.
    pub(crate) async fn ended(&self) -> String {
        let mut exit = self.exit.clone();
        let status = exit.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        let how = match status {
            Some(status) if status.success() => "the guest was switched off".to_owned(),
            Some(status) => match status.signal() {
                Some(signal) => format!("QEMU was ended by signal {signal}"),
                None => format!("QEMU ended with status {}", status.code().unwrap_or(-1)),
            },
            None => "QEMU is gone".to_owned(),
        };
        let said = complaints(&self.folder);
        if said.is_empty() { how } else { format!("{how}: {said}") }
    }
}

/// Reaps QEMU; ends it when asked, or when nobody is interested in it any more.
async fn watch_over(mut child: Child, kill: Arc<Notify>, exit: watch::Sender<Option<ExitStatus>>) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = kill.notified() => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    exit.send_replace(Some(status.unwrap_or_default()));
}

/// Connects to a socket in a folder, however long the folder's name is.
pub(crate) async fn connect_below(folder: &Path, name: &str) -> std::io::Result<UnixStream> {
    let folder = File::open(folder)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())).await
}

fn pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}

fn errors(folder: &Path) -> PathBuf {
    folder.join("qemu.log")
}

/// What QEMU complained about.
fn complaints(folder: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(errors(folder)).unwrap_or_default()).into_owned();
    let lines =
        text.lines().filter(|line| !line.contains("warning:")).map(|line| line.trim_start_matches("qemu-system-x86_64: "));
    let mut said = lines.collect::<Vec<_>>().join("; ");
    said.truncate(said.floor_char_boundary(LAST_WORDS));
    said
}

/// Starts QEMU in its directory, with the sockets that it is given and nothing else of ours. It ends with this process.
async fn spawn(program: &Path, words: &[std::ffi::OsString], folder: &Path, sockets: &[OwnedFd]) -> Result<Child> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::Unavailable {
            provider: super::NAME,
            reason: format!("{} is missing; `{}` installs it", program.display(), super::INSTALL),
        },
        _ => Error::Failed(format!("{} can't be started: {e}", program.display())),
    };
    let log = File::create(errors(folder)).map_err(failed)?;
    let numbers: Vec<i32> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("TMPDIR", folder);
    let prepare = move || {
        use nix::libc;
        for number in &numbers {
            // SAFETY: changes a flag of a descriptor that is open in this process until the child has its own copy.
            if unsafe { libc::fcntl(*number, libc::F_SETFD, 0) } == -1 {
                return Err(std::io::Error::last_os_error());
            }
        }
        // SAFETY: sets what happens to the child alone, when the thread that started it ends: the spawner's, which does not end before us.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } == -1 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: what runs between fork and exec makes system calls and nothing else.
    unsafe { command.pre_exec(prepare) };
    super::spawner::spawn(command).await.map_err(failed)
}
