//! The steps of a desk's life.

use super::console;
use super::jail::{self, Jail};
use super::keeper::{Bounds, Plan, Resumed, Running};
use super::machine::{Machine, Memory, Network};
use super::overlay;
use super::place::{DeskPlace, Record, Saved, names};
use super::{Inner, NAME};
use crate::local::cgroup::{Group, Limits};
use crate::local::check_name;
use crate::local::directory::{make_private, read, trouble, write};
use crate::local::lock::Lock;
use crate::{Address, DeskSpec, Door, Error, Found, Placed, Progress, Result, Usage};
use hotdesk_api::freeze::Thaw;
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// A guest that is told to end gets 10 s of it; then the power is cut.
const STOP_LIMIT: Duration = Duration::from_secs(20);
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// From power on to settled. An emulated desktop on a busy machine takes minutes.
pub(super) const BOOT_LIMIT: Duration = Duration::from_secs(600);
/// A guest that was resumed answers within a second.
const RESUME_LIMIT: Duration = Duration::from_secs(60);
/// What QEMU itself needs beside the guest's memory: devices, translated code, our keeper.
const OVERHEAD_MIB: u64 = 768;
/// Processes and threads of a machine: one per CPU, and a few for disks.
const PROCESSES: u32 = 256;
/// How long a keeper may take to say that it is there.
pub(super) const KEEPER_LIMIT: Duration = Duration::from_secs(20);
/// Pauses between two looks whether it is still there.
const LOOK: Duration = Duration::from_millis(50);
/// What is told of the log when a desk did not come up.
const LAST_WORDS: usize = 6;

/// Where a desk begins.
pub(super) struct Origin {
    pub(super) saved: Saved,
    /// With its programs, as they were.
    pub(super) live: bool,
}

impl Inner {
    pub(super) async fn create(self: &Arc<Self>, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let lock = self.locks.take_file(self.place.lock(&spec.id), &spec.id).await?;
        let desk = self.place.desk(&spec.id);
        if desk.running().is_some() {
            return self.ready(spec, &desk, progress).await;
        }
        if desk.record()?.is_some() {
            // Programs and files belong to one moment; what an attempt left that broke off is of a later one.
            self.place.discard(&desk.path)?;
        }
        let origin = self.origin(spec, progress).await?;
        let made = self.make(spec, &desk, &origin, 0).await;
        let started = match made {
            Ok(record) => self.boot(spec, &desk, &record, Some(&origin), lock, progress).await,
            Err(e) => Err(e),
        };
        if started.is_err() {
            self.end(&desk, None).await;
            let _ = self.place.discard(&desk.path);
        }
        started
    }

    pub(super) async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let lock = self.locks.take_file(self.place.lock(&spec.id), &spec.id).await?;
        let desk = self.place.desk(&spec.id);
        if desk.running().is_some() {
            return self.ready(spec, &desk, progress).await;
        }
        let record = desk.record()?.ok_or_else(|| unknown(&spec.id))?;
        self.check_base(&record.base)?;
        self.boot(spec, &desk, &record, None, lock, progress).await
    }

    pub(super) async fn stop(&self, id: &str) -> Result<()> {
        let _lock = self.locks.take_file(self.place.lock(id), id).await?;
        let desk = self.place.desk(id);
        self.end(&desk, Some(STOP_LIMIT)).await;
        self.remove_group(id).await
    }

    pub(super) async fn reset(self: &Arc<Self>, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let lock = self.locks.take_file(self.place.lock(&spec.id), &spec.id).await?;
        let desk = self.place.desk(&spec.id);
        let Some(before) = desk.record()? else {
            drop(lock);
            return self.create(spec, progress).await;
        };
        // Asked first: a desk whose template is gone stays as it is.
        let origin = self.origin(spec, progress).await?;
        self.end(&desk, None).await;
        let record = self.make(spec, &desk, &origin, before.disk + 1).await?;
        for name in names(&desk.path) {
            if name.starts_with("disk-") && desk.path.join(&name) != desk.disk(record.disk) {
                let _ = std::fs::remove_file(desk.path.join(name));
            }
        }
        let started = self.boot(spec, &desk, &record, Some(&origin), lock, progress).await;
        self.tidy().await;
        started
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        let lock = self.locks.take_file(self.place.lock(id), id).await?;
        let desk = self.place.desk(id);
        self.end(&desk, None).await;
        self.remove_group(id).await?;
        self.place.discard(&desk.path)?;
        self.tidy().await;
        lock.forget();
        Ok(())
    }

    pub(super) fn list(&self) -> Vec<Found> {
        let ids = names(&self.place.desks()).into_iter().filter(|id| check_name(id).is_ok());
        let found = ids.filter_map(|id| {
            let desk = self.place.desk(&id);
            desk.record().ok().flatten()?;
            let placed = desk.running().map(|running| placed(&desk, &running));
            Some(Found { running: placed.is_some(), id, placed })
        });
        found.collect()
    }

    pub(super) async fn usage(&self, id: &str) -> Result<Usage> {
        let desk = self.place.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        let disk_bytes = std::fs::metadata(desk.disk(record.disk)).map(|meta| meta.blocks() * 512).unwrap_or(0);
        let mut usage = Usage { disk_bytes, ..Usage::default() };
        let Some(running) = desk.running() else { return Ok(usage) };
        for process in std::iter::once(&running.keeper).chain(&running.qemu) {
            let used = crate::local::process::used_by(process);
            usage.cpu_s += used.cpu_s;
            usage.memory_bytes += used.memory_bytes;
            usage.processes += used.processes;
        }
        Ok(usage)
    }

    pub(super) fn logs(&self, id: &str, lines: usize) -> Result<String> {
        let desk = self.place.desk(id);
        if !desk.path.exists() {
            return Err(unknown(id));
        }
        let text = std::fs::read_to_string(desk.log()).unwrap_or_default() + &console::last_lines(&desk.run(), lines);
        let all: Vec<_> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..].iter().map(|line| format!("{line}\n")).collect())
    }

    /// What a desk begins with: its snapshot, the settled guest of its template, or the bare disk.
    async fn origin(self: &Arc<Self>, spec: &DeskSpec, progress: &Progress) -> Result<Origin> {
        if let Some(snapshot) = &spec.snapshot {
            let path = self.place.snapshot(&snapshot.id);
            let saved: Saved = read(&path)?.ok_or_else(|| Error::NotFound(format!("there is no snapshot `{}`", snapshot.id)))?;
            let live = snapshot.memory && saved.memory.is_some();
            if snapshot.memory && !live {
                return Err(Error::NotFound(format!("the snapshot `{}` holds no programs", snapshot.id)));
            }
            self.check_base(&saved.base)?;
            return Ok(Origin { saved, live });
        }
        let disk = self.disk_of(&spec.template, progress).await?;
        let machine = self.machine(spec, &disk).await?;
        let bytes = disk.base.bytes.max(spec.resources.disk_mib << 20);
        if self.config.memory_snapshots {
            let saved = self.seed(&spec.template, &disk, machine, bytes, progress).await?;
            return Ok(Origin { saved, live: true });
        }
        let saved = Saved {
            template: spec.template.clone(),
            base: disk.base,
            layers: Vec::new(),
            bytes,
            machine,
            memory: None,
            guest: None,
            token: String::new(),
            size_bytes: 0,
        };
        Ok(Origin { saved, live: false })
    }

    /// The machine that a desk asks for.
    async fn machine(&self, spec: &DeskSpec, disk: &super::disks::Disk) -> Result<Machine> {
        let accel = self.accel().await?.accel;
        let most = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Ok(Machine {
            program: self.program()?,
            accel,
            cpus: (spec.resources.cpus.ceil() as u32).clamp(1, most),
            memory_mib: spec.resources.memory_mib,
            screen: spec.screen,
            direct: disk.direct.clone(),
            firmware: self.config.firmware.clone(),
        })
    }

    /// The desk's directory with an empty disk of its own.
    async fn make(&self, spec: &DeskSpec, desk: &DeskPlace, origin: &Origin, number: u32) -> Result<Record> {
        let _guard = self.layers.lock().await;
        make_private(&desk.path).map_err(|e| trouble("make", &desk.path, &e))?;
        let Saved { base, layers, bytes, .. } = &origin.saved;
        let record =
            Record { template: spec.template.clone(), base: base.clone(), layers: layers.clone(), disk: number, bytes: *bytes };
        let path = desk.disk(number);
        let _ = std::fs::remove_file(&path);
        self.over(&record, &path)?;
        desk.write_record(&record)?;
        Ok(record)
    }

    /// An empty disk over all that a desk is made of.
    pub(super) fn over(&self, record: &Record, path: &Path) -> Result<()> {
        match record.layers.last() {
            Some(layer) => overlay::create(path, &self.place.layer(layer), "qcow2", record.bytes),
            None => overlay::create(path, &record.base.path, &record.base.format, record.bytes),
        }
    }

    /// Starts a desk that does not run, and waits until it is ready.
    async fn boot(
        &self,
        spec: &DeskSpec,
        desk: &DeskPlace,
        record: &Record,
        origin: Option<&Origin>,
        lock: Lock,
        progress: &Progress,
    ) -> Result<Placed> {
        self.end(desk, None).await;
        let live = origin.filter(|origin| origin.live).map(|origin| &origin.saved);
        let plan = self.plan(spec, desk, record, live).await?;
        progress.stage(if live.is_some() { "resuming its machine" } else { "starting its machine" });
        write(&desk.plan(), &plan).map_err(|e| trouble("write", &desk.plan(), &e))?;
        self.hand_to_machine(desk, &plan)?;
        self.launch(&desk.plan(), &desk.socket(), &desk.log(), &lock).await?;
        // The keeper has the lock until it has written down that it runs.
        let ready = self.ready(spec, desk, progress).await;
        if ready.is_err() {
            self.end(desk, None).await;
            self.remove_group(&spec.id).await?;
        }
        drop(lock);
        ready
    }

    async fn plan(&self, spec: &DeskSpec, desk: &DeskPlace, record: &Record, live: Option<&Saved>) -> Result<Plan> {
        let machine = match live {
            Some(saved) => saved.machine.clone(),
            None => {
                let (progress, _) = Progress::new();
                match self.disk_of(&record.template, &progress).await {
                    Ok(disk) => self.machine(spec, &disk).await?,
                    Err(e) => return Err(e),
                }
            }
        };
        let memory = match live.and_then(|saved| saved.memory.as_ref()) {
            Some(name) => {
                let folder = self.place.memory(name);
                Memory::Resumed { ram: folder.join("ram"), state: folder.join("state") }
            }
            None => Memory::Own,
        };
        let resumed = live.map(|saved| Resumed {
            guest: saved.guest.unwrap_or(super::guest::Kind::Other),
            token: saved.token.clone(),
            thaw: Thaw { token: Some(spec.secret.clone()), vnc_password: spec.vnc_password.clone(), env: spec.env.clone() },
        });
        let limits =
            Limits { cpus: spec.resources.cpus, memory_bytes: (machine.memory_mib + OVERHEAD_MIB) << 20, processes: PROCESSES };
        Ok(Plan {
            name: format!("hotdesk-{}-{}", self.context.fleet, spec.id),
            folder: desk.run(),
            disk: desk.disk(record.disk),
            memory,
            network: if spec.network { Network::Outside } else { Network::Off },
            allow_private: self.config.allow_private.clone(),
            secret: Some(spec.secret.clone()),
            settings: self.settings(spec)?,
            limit_s: if live.is_some() { RESUME_LIMIT } else { BOOT_LIMIT }.as_secs(),
            resumed,
            save: None,
            limits: self.group(&spec.id).map(|group| Bounds { group, limits }),
            running: Some(desk.running_file()),
            jail: None,
            machine,
        }
        .shut_in(self.jail(&spec.id, desk, &record.base, &record.layers)))
    }

    /// Who the machine's processes are; none where we are not root.
    pub(super) fn jail(&self, name: &str, desk: &DeskPlace, base: &super::Base, layers: &[String]) -> Option<Jail> {
        let read = std::iter::once(base.path.clone()).chain(layers.iter().map(|layer| self.place.layer(layer))).collect();
        let uid = jail::uid(&self.context.fleet, name)?;
        Some(Jail { uid, root: desk.jail(), read, write: vec![desk.path.clone()] })
    }

    /// Sees to it that a machine's user can read a file that it is shown. Ours lie in private directories; of others' we ask their owner.
    fn let_read(&self, path: &Path) -> Result<()> {
        let mode = std::fs::metadata(path).map_err(|e| trouble("read", path, &e))?.mode();
        if mode & 0o004 != 0 {
            return Ok(());
        }
        if !self.place.holds(path) && !path.starts_with(self.context.images.directory()) {
            let name = path.display();
            return Err(Error::Failed(format!(
                "machines have a user of their own, who can't read {name}; `chmod o+r {name}` lets them"
            )));
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode & 0o777 | 0o004);
        std::fs::set_permissions(path, mode).map_err(|e| trouble("hand over", path, &e))
    }

    /// Gives a machine's user what it may write: its directory for sockets and logs, its disk, its memory. All else stays root's.
    pub(super) fn hand_to_machine(&self, desk: &DeskPlace, plan: &Plan) -> Result<()> {
        let failed = |e: std::io::Error| trouble("hand over", &desk.path, &e);
        make_private(&desk.run()).map_err(failed)?;
        let Some(Jail { uid, read, .. }) = &plan.jail else { return Ok(()) };
        let uid = *uid;
        for path in read {
            self.let_read(path)?;
        }
        jail::give_folder(&desk.run(), uid).map_err(failed)?;
        jail::give(&plan.disk, uid).map_err(failed)?;
        match &plan.memory {
            Memory::Own => {}
            Memory::Kept { ram } | Memory::Unpacked { ram, .. } => {
                std::fs::File::options().append(true).create(true).open(ram).map_err(failed)?;
                jail::give(ram, uid).map_err(failed)?;
            }
            // Earlier versions kept it for root alone.
            Memory::Resumed { ram, .. } => {
                std::fs::set_permissions(ram, std::os::unix::fs::PermissionsExt::from_mode(jail::SHARED)).map_err(failed)?
            }
        }
        // The way to them; the directory above lets nobody in from outside.
        std::fs::set_permissions(&desk.path, std::os::unix::fs::PermissionsExt::from_mode(0o711)).map_err(failed)
    }

    /// Settings for the desk inside; a disk with another's server does not look at them.
    pub(super) fn settings(&self, spec: &DeskSpec) -> Result<String> {
        let mut settings = self.context.images.template(&spec.template).map(|template| template.settings()).unwrap_or_default();
        settings.vnc_password = spec.vnc_password.clone();
        settings.size = Some(format!("{}x{}", spec.screen.width, spec.screen.height));
        settings.env.extend(spec.env.clone());
        settings.to_toml().map_err(|e| Error::Failed(e.to_string()))
    }

    /// Starts a keeper. It outlives us, and has the lock until it has written down that it is there.
    pub(super) async fn launch(&self, plan: &Path, socket: &Path, log: &Path, lock: &Lock) -> Result<()> {
        let failed = |e: std::io::Error| trouble("start", &self.context.binary, &e);
        let log = std::fs::File::create(log).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let lock = lock.file.try_clone().map_err(failed)?;
        let mut command = tokio::process::Command::new(&self.context.binary);
        command.arg("vm").arg("--plan").arg(plan).arg("--listen").arg(format!("unix:{}", socket.display()));
        command.stdin(Stdio::from(lock)).stdout(log).stderr(errors);
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
        }
        let mut child = command.spawn().map_err(failed)?;
        child.id().into_iter().for_each(crate::goes_first);
        // Whoever lives longer, it is reaped.
        tokio::spawn(async move {
            let _ = child.wait().await;
        });
        Ok(())
    }

    /// Waits until a desk that was started is ready.
    async fn ready(&self, spec: &DeskSpec, desk: &DeskPlace, progress: &Progress) -> Result<Placed> {
        let door = Door { address: Address::Unix { path: desk.socket() }, secret: spec.secret.clone() };
        tokio::select! {
            ready = door.wait_ready(BOOT_LIMIT, |stage| progress.stage(stage), async || None) => ready?,
            () = gone(desk) => return Err(Error::NotReady(self.last_words(desk))),
        }
        desk.running().map(|running| placed(desk, &running)).ok_or_else(|| Error::NotReady(self.last_words(desk)))
    }

    fn last_words(&self, desk: &DeskPlace) -> String {
        let text = std::fs::read_to_string(desk.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_WORDS)..].join(" | ");
        if last.is_empty() { "its machine ended and said nothing".into() } else { format!("its machine ended: {last}") }
    }

    /// Ends a desk's machine: after `patience` by force.
    pub(super) async fn end(&self, desk: &DeskPlace, patience: Option<Duration>) {
        if let Some(running) = desk.running() {
            if let Some(patience) = patience {
                running.keeper.signal(Signal::TERM);
                running.keeper.gone(patience).await;
            }
            // QEMU ends with its keeper.
            running.keeper.signal(Signal::KILL);
            running.keeper.gone(KILL_LIMIT).await;
            if let Some(qemu) = &running.qemu {
                qemu.signal(Signal::KILL);
                qemu.gone(KILL_LIMIT).await;
            }
        }
        let _ = std::fs::remove_file(desk.running_file());
    }

    pub(super) fn group(&self, id: &str) -> Option<Group> {
        self.groups.limits_memory().then(|| self.groups.group(&format!("{}-vm", self.context.fleet), id))
    }

    async fn remove_group(&self, id: &str) -> Result<()> {
        let Some(group) = self.group(id) else { return Ok(()) };
        let removed = tokio::task::spawn_blocking(move || group.remove()).await;
        if let Ok(Err(e)) = removed {
            tracing::warn!(desk = id, error = %e, "the control group of a desk is not removed yet");
        }
        Ok(())
    }

    /// Removes what nothing is made of any more.
    pub(super) async fn tidy(&self) {
        let _guard = self.layers.lock().await;
        self.place.forget_unused();
    }
}

/// Returns when the machine of a desk that was started is not there any more.
async fn gone(desk: &DeskPlace) {
    let begun = tokio::time::Instant::now();
    // It writes down that it runs before it does anything else.
    while desk.running().is_some() || (!desk.running_file().exists() && begun.elapsed() < KEEPER_LIMIT) {
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) fn placed(desk: &DeskPlace, running: &Running) -> Placed {
    let handle = serde_json::json!({ "pid": running.keeper.pid, "started": running.keeper.started });
    Placed { address: Address::Unix { path: desk.socket() }, handle }
}

pub(super) fn unknown(id: &str) -> Error {
    Error::NotFound(format!("there is no desk `{id}` with {NAME} on this machine"))
}
