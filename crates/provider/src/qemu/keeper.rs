//! The process that a machine lives in: it starts QEMU, looks after it, and answers for it.
//!
//! `hotdesk vm` is this and little more, in a container as well as for a desk of the provider. QEMU ends with it, however it ends.

use super::accel::Accel;
use super::console;
use super::control;
use super::front::Front;
use super::guest::{self, Board, Kind, Status};
use super::jail::Jail;
use super::machine::{self, Machine, Memory, Network};
use super::vm::{Launch, Vm};
use crate::local::cgroup::{Group, Limits};
use crate::local::directory;
use crate::local::process::Process;
use crate::{Error, Result};
use hotdesk_api::freeze::Thaw;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// How long a guest may take to end when its power button is pressed, before the power is cut.
const POWER_DOWN: Duration = Duration::from_secs(10);
/// What is told of the console when a guest did not come up.
const LAST_WORDS: usize = 4;

/// A machine to run.
#[derive(Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Shown in lists of processes.
    pub name: String,
    /// For sockets, logs and whatever else the machine needs while it runs.
    pub folder: PathBuf,
    pub machine: Machine,
    /// A qcow2 file that may be written.
    pub disk: PathBuf,
    pub memory: Memory,
    pub network: Network,
    /// Private networks that the guest may reach.
    #[serde(default)]
    pub allow_private: Vec<crate::closed::Cidr>,
    /// What opens the guest's server.
    pub secret: Option<String>,
    /// Settings for the desk inside, in TOML.
    #[serde(default)]
    pub settings: String,
    /// How long the guest may take until it has settled.
    pub limit_s: u64,
    /// What is known of a guest that is resumed.
    pub resumed: Option<Resumed>,
    /// Save the machine's state here once the guest has settled, and end.
    pub save: Option<PathBuf>,
    /// What it may use.
    pub limits: Option<Bounds>,
    /// Where to write down that this process keeps the machine.
    pub running: Option<PathBuf>,
    /// Who its processes are, and what they see of this machine.
    #[serde(default)]
    pub jail: Option<Jail>,
}

/// What a machine may use, and the control group that sees to it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Bounds {
    pub(crate) group: Group,
    pub(crate) limits: Limits,
}

impl Plan {
    /// The same in a jail, with all files that the plan names.
    #[must_use]
    pub(crate) fn shut_in(mut self, jail: Option<Jail>) -> Self {
        self.jail = jail.map(|mut jail| {
            let Machine { program, direct, firmware, .. } = &self.machine;
            // What comes with the system is there anyway; a program of one's own has its libraries and files beside it.
            let own = (!program.starts_with("/usr")).then(|| program.parent().map(Path::to_owned)).flatten();
            jail.read.extend(own);
            jail.read.extend(firmware.clone());
            jail.read
                .extend(direct.iter().flat_map(|direct| std::iter::once(direct.kernel.clone()).chain(direct.initrd.clone())));
            let outside = |path: &PathBuf| !jail.write.iter().any(|folder| path.starts_with(folder));
            let mut write: Vec<PathBuf> = Some(self.disk.clone()).into_iter().filter(outside).collect();
            match &self.memory {
                Memory::Own => {}
                Memory::Kept { ram } => write.extend(Some(ram.clone()).filter(outside)),
                // It is opened for writing even where a copy of it is mapped.
                Memory::Resumed { ram, state } => {
                    write.extend(Some(ram.clone()).filter(outside));
                    jail.read.push(state.clone());
                }
                Memory::Unpacked { ram, stream } => {
                    write.extend(Some(ram.clone()).filter(outside));
                    jail.read.extend(Some(stream.clone()).filter(outside));
                }
            }
            jail.write.extend(write);
            jail
        });
        self
    }

    /// Writes down that this process keeps the machine, before anything else.
    pub fn announce(&self) -> Result<()> {
        let Some(path) = &self.running else { return Ok(()) };
        let failed = |e: std::io::Error| directory::trouble("write", path, &e);
        // What the machine of an earlier start wrote says nothing about this one.
        let _ = std::fs::remove_file(machine_file(&self.folder));
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        directory::write(path, &Kept { keeper: Process::of(own).map_err(failed)?, told: Told::default() }).map_err(failed)
    }

    /// Takes the limits upon this process and gives its rights up, as far as the plan says so. To be called before it has any thread.
    pub fn confine(&self) -> Result<()> {
        let failed = |e: std::io::Error| directory::trouble("prepare", &self.folder, &e);
        if let Some(Bounds { group, limits }) = &self.limits {
            group.make(limits).and_then(|()| group.take(std::process::id())).map_err(failed)?;
        }
        match &self.jail {
            Some(jail) => jail.enter().map_err(|e| Error::Failed(format!("the machine's processes can't be shut in: {e}"))),
            None => Ok(()),
        }
    }
}

/// A guest that goes on from what was saved.
#[derive(Clone, Serialize, Deserialize)]
pub struct Resumed {
    pub guest: Kind,
    /// The token that the desk inside had.
    pub token: String,
    pub thaw: Thaw,
}

/// What is written down of a machine by its keeper as long as it is root: it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) keeper: Process,
    /// Keepers of earlier versions, which stay root, write all of it here.
    #[serde(flatten)]
    pub(crate) told: Told,
}

/// What is written down by a keeper that has given up its rights: whoever broke out of the machine could have written it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    #[serde(default)]
    pub(crate) qemu: Option<Process>,
    #[serde(default)]
    pub(crate) guest: Option<Kind>,
}

pub(crate) fn machine_file(folder: &Path) -> PathBuf {
    folder.join("machine.json")
}

/// The processes of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) keeper: Process,
    pub(crate) qemu: Option<Process>,
    /// Whose server is in the guest, once it has settled.
    pub(crate) guest: Option<Kind>,
}

/// Where to be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// The guest's server.
    Unix(PathBuf),
    Tcp(SocketAddr),
    /// Another port of the guest.
    Port(SocketAddr, u16),
    /// The machine's screen, for browsers.
    Screen(SocketAddr),
}

/// What answers for a machine, before there is one and while it runs. Cheap to clone.
#[derive(Clone)]
pub struct Keeper {
    board: Board,
    vm: watch::Sender<Option<Arc<Vm>>>,
    front: Front,
}

impl Keeper {
    /// `secret` opens a guest that has no token of its own.
    pub fn new(secret: Option<String>) -> Self {
        let board = guest::board("starting", "nothing is known yet");
        let vm = watch::channel(None).0;
        let front = Front::new(board.subscribe(), vm.subscribe(), secret);
        Self { board, vm, front }
    }

    /// Says what is waited for.
    pub fn note(&self, stage: &str, detail: impl Into<String>) {
        guest::note(&self.board, stage, detail);
    }

    /// Whether a machine runs.
    pub fn has_machine(&self) -> bool {
        self.vm.borrow().is_some()
    }

    pub fn status(&self) -> Status {
        self.board.borrow().clone()
    }

    /// Answers at an address from now on. The address that was taken, for port 0.
    pub async fn listen(&self, at: &Listen) -> std::io::Result<Option<SocketAddr>> {
        match at {
            Listen::Unix(path) => {
                let _ = std::fs::remove_file(path);
                let folder = std::fs::File::open(path.parent().unwrap_or(Path::new(".")))?;
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
                let front = self.front.clone();
                tokio::spawn(async move {
                    loop {
                        match listener.accept().await {
                            Ok((stream, _)) => drop(tokio::spawn(front.clone().attend(stream))),
                            Err(e) => pause_after(&e).await,
                        }
                    }
                });
                Ok(None)
            }
            Listen::Tcp(address) | Listen::Port(address, _) | Listen::Screen(address) => {
                self.listen_tcp(*address, at.clone()).await.map(Some)
            }
        }
    }

    async fn listen_tcp(&self, address: SocketAddr, at: Listen) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let taken = listener.local_addr()?;
        let front = self.front.clone();
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        let front = front.clone();
                        match at {
                            Listen::Port(_, port) => drop(tokio::spawn(front.attend_port(stream, port))),
                            Listen::Screen(_) => drop(tokio::spawn(front.attend_screen(stream))),
                            _ => drop(tokio::spawn(front.attend(stream))),
                        }
                    }
                    Err(e) => pause_after(&e).await,
                }
            }
        });
        Ok(taken)
    }

    /// Runs a machine until it ends, or until it is told to, and says how it ended.
    pub async fn run(&self, plan: &Plan, stop: impl Future<Output = ()>) -> Result<String> {
        let ended = self.run_once(plan, stop).await;
        self.vm.send_replace(None);
        self.board.send_modify(|status| {
            (status.ready, status.guest) = (false, None);
            "ended".clone_into(&mut status.stage);
            status.detail = match &ended {
                Ok(how) => how.clone(),
                Err(e) => e.to_string(),
            };
        });
        ended
    }

    async fn run_once(&self, plan: &Plan, stop: impl Future<Output = ()>) -> Result<String> {
        hand_over(plan)?;
        let launch = Launch {
            name: &plan.name,
            folder: &plan.folder,
            machine: &plan.machine,
            disk: &plan.disk,
            memory: &plan.memory,
            rules: super::filter::Rules { network: plan.network, allowed: plan.allow_private.clone() },
        };
        self.note("firmware", "QEMU makes the machine");
        let vm = Arc::new(Vm::start(launch).await?);
        if let (Memory::Unpacked { .. }, Some(state)) = (&plan.memory, &plan.save) {
            // It never runs: it turns one form of a memory into another.
            let saved = vm.save(state, true).await;
            vm.quit().await;
            return saved.map(|()| "it was unpacked".into());
        }
        self.vm.send_replace(Some(Arc::clone(&vm)));
        tell(plan, vm.pid(), None)?;
        let control = control::serve(&plan.folder, Arc::clone(&vm), plan.secret.clone())?;
        tokio::pin!(stop);
        let kind = tokio::select! {
            kind = self.settle(plan, &vm) => match kind {
                Ok(kind) => kind,
                Err(e) => {
                    vm.quit().await;
                    return Err(with_last_words(e, plan));
                }
            },
            () = &mut stop => {
                vm.quit().await;
                return Ok("it was told to end before it had settled".into());
            }
        };
        tell(plan, vm.pid(), Some(kind))?;
        if let Some(state) = &plan.save {
            self.note("saving", "the guest has settled and is saved");
            vm.pause().await?;
            vm.save(state, true).await?;
            vm.quit().await;
            return Ok("it was saved".into());
        }
        self.board.send_modify(|status| {
            (status.ready, status.guest) = (true, Some(kind));
            "settled".clone_into(&mut status.stage);
            status.detail.clear();
        });
        let how = tokio::select! {
            how = vm.ended() => how,
            () = &mut stop => {
                self.board.send_modify(|status| {
                    status.ready = false;
                    "stopping".clone_into(&mut status.stage);
                });
                if !vm.power_down(POWER_DOWN).await {
                    vm.quit().await;
                }
                "it was told to end".into()
            }
        };
        drop(control);
        Ok(how)
    }

    /// Brings a guest to where it can be used.
    async fn settle(&self, plan: &Plan, vm: &Arc<Vm>) -> Result<Kind> {
        let limit = Duration::from_secs(plan.limit_s);
        let Some(resumed) = &plan.resumed else {
            return guest::wait_settled(vm, &self.board, plan.secret.as_deref(), limit).await;
        };
        vm.go_on().await?;
        self.note("resuming", "the guest goes on from where it was saved");
        if resumed.guest == Kind::Other {
            let vm = Arc::clone(vm);
            tokio::spawn(async move { guest::set_clock(&vm).await });
            return Ok(Kind::Other);
        }
        match tokio::time::timeout(limit, guest::thaw(vm, &resumed.token, &resumed.thaw)).await {
            Ok(thawed) => thawed.map(|()| Kind::Desk),
            Err(_) => Err(Error::NotReady("the desk inside does not answer since it was resumed".into())),
        }
    }
}

/// What the guest reads when it starts.
fn hand_over(plan: &Plan) -> Result<()> {
    let failed = |e: std::io::Error| directory::trouble("prepare", &plan.folder, &e);
    directory::make_private(&plan.folder).map_err(failed)?;
    for (name, text) in [(machine::TOKEN, plan.secret.as_deref().unwrap_or_default()), (machine::SETTINGS, &plan.settings)] {
        directory::write_bytes(&plan.folder.join(name), text.as_bytes(), 0o600).map_err(failed)?;
    }
    Ok(())
}

fn tell(plan: &Plan, qemu: i32, guest: Option<Kind>) -> Result<()> {
    if plan.running.is_none() {
        return Ok(());
    }
    let path = machine_file(&plan.folder);
    let failed = |e: std::io::Error| directory::trouble("write", &path, &e);
    directory::write(&path, &Told { qemu: Some(Process::of(qemu).map_err(failed)?), guest }).map_err(failed)
}

fn with_last_words(error: Error, plan: &Plan) -> Error {
    let Error::NotReady(mut why) = error else { return error };
    let words = console::last_lines(&plan.folder, LAST_WORDS);
    if !words.trim().is_empty() {
        let words: Vec<_> = words.lines().map(|line| line.trim().escape_debug().to_string()).collect();
        why += &format!("; its console's last words were: {}", words.join(" | "));
    }
    if plan.machine.accel == Accel::Kvm {
        // The test guest ran on it, and yet.
        why += "; if KVM is to blame, accel = \"tcg\" or KVM=N does without it";
    }
    Error::NotReady(why)
}

/// Running out of descriptors passes; asking again at once would not help.
async fn pause_after(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be taken");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
