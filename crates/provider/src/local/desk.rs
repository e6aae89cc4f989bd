//! The steps of a desk's life.

use super::cgroup::{Group, Limits};
use super::criu::{self, image, restore::Restore};
use super::directory::{self, DeskDirectory, Layer, Record, Running, trouble};
use super::disk::{self, Disk};
use super::ending::{KEEPER_LIMIT, KILL_LIMIT};
use super::ids::{Ids, USER};
use super::lock::Lock;
use super::network::{Network, host_addresses};
use super::sandbox::{Answer, Plan, Task, inside, seccomp};
use super::{Inner, check_name};
use crate::{Address, DeskSpec, Door, Error, Found, Placed, Progress, Result, Usage};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A desk that is asked to stop ends its programs, which may have something to save.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// A helper that takes longer than this hangs.
const HELPER_LIMIT: Duration = Duration::from_secs(60);
/// One that restores gigabytes of memory does not.
const RESTORE_LIMIT: Duration = Duration::from_secs(600);
/// A desk takes a fraction of a second; on a machine where hundreds start at once, more.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// A part that is ended for want of memory is started again; so often it is no accident.
const STARVED: u64 = 3;
const STARVED_LOOK: Duration = Duration::from_millis(100);
/// What is told of the log when a desk did not come up.
const LAST_WORDS: usize = 6;
/// Settings of the desk that only we decide on.
const RESERVED: [&str; 6] = ["HOTDESK_LISTEN", "HOTDESK_OPEN", "HOTDESK_TOKEN", "HOTDESK_TOKEN_FILE", "LISTEN_FDS", "LISTEN_PID"];

impl Inner {
    pub(super) async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        self.refuse_if_impossible()?;
        let rootfs = self.context.images.build(template, |stage| progress.stage(stage)).await.map_err(image_error)?;
        self.refuse_foreign(&rootfs)?;
        self.shift(&rootfs, progress).await
    }

    pub(super) async fn create(self: Arc<Self>, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.refuse(spec)?;
        let lock = self.locks.take(&self.directory, &spec.id).await?;
        let desk = self.directory.desk(&spec.id);
        if let Some(placed) = placed_if_running(&desk) {
            return Ok(placed);
        }
        progress.stage("making its disk");
        let restore = self.restore_of(spec).await?;
        let copy = restore.is_some();
        let (record, new) = match desk.record()? {
            // Programs and files belong to one moment; those of an attempt that broke off are of a later one.
            Some(_) if copy => {
                drop(lock);
                return Box::pin(self.reset(spec, progress)).await;
            }
            Some(record) => (record, false),
            None => (self.make(spec).await?, true),
        };
        let started = self.boot(spec, &desk, &record, restore, &lock, progress).await;
        if new && (matches!(started, Err(Error::Full(_))) || (copy && started.is_err())) {
            // Nothing is left of a desk for which there was no room, and of a copy that could not be made.
            self.released(&desk).await;
            let _ = self.directory.discard(&desk.path);
            lock.forget();
        }
        started
    }

    pub(super) async fn start(self: Arc<Self>, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.refuse(spec)?;
        let lock = self.locks.take(&self.directory, &spec.id).await?;
        let desk = self.directory.desk(&spec.id);
        if let Some(placed) = placed_if_running(&desk) {
            return Ok(placed);
        }
        let record = desk.record()?.ok_or_else(|| unknown(&spec.id))?;
        self.boot(spec, &desk, &record, None, &lock, progress).await
    }

    pub(super) async fn stop(&self, id: &str) -> Result<()> {
        let _lock = self.locks.take(&self.directory, id).await?;
        let desk = self.directory.desk(id);
        self.end(id, &desk, Some(STOP_GRACE)).await?;
        self.released(&desk).await;
        self.remove_group(id).await
    }

    pub(super) async fn reset(self: Arc<Self>, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.refuse(spec)?;
        let lock = self.locks.take(&self.directory, &spec.id).await?;
        let desk = self.directory.desk(&spec.id);
        let Some(before) = desk.record()? else {
            drop(lock);
            return self.create(spec, progress).await;
        };
        let restore = self.restore_of(spec).await?;
        progress.stage("making its disk");
        let guard = self.layers.read().await;
        let record = Record { disk: before.disk.next(), layers: self.layers_of(spec)?, template: spec.template.clone() };
        disk::room(&desk.path)?;
        self.make_disk(&desk.path, &record.disk, spec).await?;
        // Nobody waits for the old one: the new one has a disk of its own.
        let old = self.dismiss(&spec.id, &desk);
        // From here on it is the new desk: whatever happens, the next start has the new disk.
        desk.write_record(&record)?;
        drop(guard);
        let started = self.boot(spec, &desk, &record, restore, &lock, progress).await;
        if let Some(old) = old {
            old.init.gone(KILL_LIMIT).await;
        }
        self.discard_other_disks(&desk, &record).await;
        self.forget_unused_layers().await;
        started
    }

    pub(super) async fn delete(self: Arc<Self>, id: &str) -> Result<()> {
        let lock = self.locks.take(&self.directory, id).await?;
        let desk = self.directory.desk(id);
        self.end(id, &desk, None).await?;
        self.released(&desk).await;
        self.remove_group(id).await?;
        let (directory, path) = (self.directory.clone(), desk.path.clone());
        blocking(move || directory.discard(&path).map_err(|e| trouble("remove", &path, &e))).await?;
        self.forget_unused_layers().await;
        lock.forget();
        Ok(())
    }

    pub(super) async fn list(&self) -> Result<Vec<Found>> {
        let folder = self.directory.desks();
        let entries = std::fs::read_dir(&folder).map_err(|e| trouble("read", &folder, &e))?;
        let ids = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(|id| check_name(id).is_ok());
        let mut found: Vec<Found> = ids
            .filter(|id| self.directory.desk(id).exists())
            .map(|id| {
                criu::mend_door(&self.directory.desk(&id), &self.directory.lock(&id));
                let placed = placed_if_running(&self.directory.desk(&id));
                Found { running: placed.is_some(), id, placed }
            })
            .collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    pub(super) async fn usage(&self, id: &str) -> Result<Usage> {
        let desk = self.directory.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        let path = desk.disk(&record.disk);
        let group = self.group(id);
        let running = desk.running().filter(Running::is_alive);
        blocking(move || {
            let used = running.map(|running| {
                group.as_ref().and_then(Group::used).unwrap_or_else(|| super::process::used_in_namespace_of(&running.init))
            });
            let used = used.unwrap_or_default();
            let disk_bytes = disk::size(&path);
            Ok(Usage { cpu_s: used.cpu_s, memory_bytes: used.memory_bytes, disk_bytes, processes: used.processes })
        })
        .await
    }

    pub(super) fn logs(&self, id: &str, lines: usize) -> Result<String> {
        let desk = self.directory.desk(id);
        if !desk.path.exists() {
            return Err(unknown(id));
        }
        Ok(last_lines(&desk, lines))
    }

    /// Cleans up what an earlier life left half done: directories that never got their name, groups whose desk is gone.
    pub(super) fn sweep(&self) {
        for entry in std::fs::read_dir(self.directory.desks()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let unfinished = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
            if unfinished.is_some_and(|id| disk::is_free(&self.directory.lock(id))) {
                let _ = self.directory.discard(&entry.path());
            }
        }
        for id in self.ability.groups.group(&self.context.fleet, "").below() {
            if !disk::is_free(&self.directory.lock(&id)) {
                continue;
            }
            // Whoever made its programs stand still is gone.
            let _ = self.group(&id).map(|group| group.thaw());
            if !self.directory.desk(&id).path.exists() {
                tracing::warn!(desk = id, "processes of a desk that is gone are ended");
                if let Some(group) = self.group(&id) {
                    let _ = group.remove();
                }
            }
        }
        self.forget_unused_layers_now();
        self.forget_unused_memories();
    }

    /// Makes the desk's directory, whole or not at all.
    async fn make(&self, spec: &DeskSpec) -> Result<Record> {
        let desk = self.directory.desk(&spec.id);
        // A directory without a record is not a desk.
        self.directory.discard(&desk.path).map_err(|e| trouble("remove", &desk.path, &e))?;
        let record = self.make_unnamed(spec).await?;
        let unnamed = self.unnamed(&spec.id);
        if let Err(e) = std::fs::rename(&unnamed.path, &desk.path) {
            let _ = self.directory.discard(&unnamed.path);
            return Err(trouble("name", &desk.path, &e));
        }
        Ok(record)
    }

    /// A desk's directory before it has its name.
    pub(super) fn unnamed(&self, id: &str) -> DeskDirectory {
        DeskDirectory { path: self.directory.desks().join(format!(".{id}.new")) }
    }

    /// Everything of a new desk, under a name that is no desk's.
    pub(super) async fn make_unnamed(&self, spec: &DeskSpec) -> Result<Record> {
        disk::room(&self.directory.desks())?;
        // From the choice of the layers to the record that names them, none is removed.
        let _guard = self.layers.read().await;
        let disk = Disk::first(self.ability.images.is_ok());
        let record = Record { template: spec.template.clone(), layers: self.layers_of(spec)?, disk };
        let unnamed = self.unnamed(&spec.id);
        let failed = |e: std::io::Error| trouble("make", &unnamed.path, &e);
        self.directory.discard(&unnamed.path).map_err(failed)?;
        directory::make_private(&unnamed.path).map_err(failed)?;
        let made = async {
            self.make_disk(&unnamed.path, &record.disk, spec).await?;
            unnamed.write_record(&record)
        };
        if let Err(e) = made.await {
            let _ = self.directory.discard(&unnamed.path);
            return Err(e);
        }
        Ok(record)
    }

    /// An empty disk in a desk's directory.
    pub(super) async fn make_disk(&self, folder: &Path, disk: &Disk, spec: &DeskSpec) -> Result<()> {
        let path = folder.join(disk.name());
        if path.exists() {
            directory::remove_all(&path).map_err(|e| trouble("remove", &path, &e))?;
        }
        if let Disk::Directory(_) = disk {
            return directory::make_private(&path).map_err(|e| trouble("make", &path, &e));
        }
        let mib = spec.resources.disk_mib.max(disk::SMALLEST_MIB);
        let blank = self.directory.blank(&format!("{mib}.ext4"));
        blocking(move || {
            disk::blank(&blank, mib)?;
            disk::copy_sparse(&blank, &path).map_err(|e| {
                let _ = std::fs::remove_file(&path);
                trouble("make", &path, &e)
            })
        })
        .await
    }

    /// Starts a desk that does not run, and waits until it is ready.
    async fn boot(
        &self,
        spec: &DeskSpec,
        desk: &DeskDirectory,
        record: &Record,
        restore: Option<Restore>,
        lock: &Lock,
        progress: &Progress,
    ) -> Result<Placed> {
        progress.stage(if restore.is_some() { "restoring its programs" } else { "starting its sandbox" });
        // What is left of an earlier one must be gone, or two would share a disk.
        self.end(&spec.id, desk, None).await?;
        self.hand_over(desk, record, spec)?;
        let mut plan = self.plan(spec, desk, record)?;
        if let Some(restore) = restore {
            // Memory belongs to the file that it was loaded from.
            plan.binary = restore.from.join(image::BINARY);
            plan.restore = Some(restore);
        }
        let limit = if plan.restore.is_some() { RESTORE_LIMIT } else { HELPER_LIMIT };
        let started = match self.ask(Task::Run(Box::new(plan)), lock, limit).await {
            Ok(Answer::Running(running)) => Ok(running),
            Ok(_) => Err(Error::Failed("the helper answered something else".into())),
            Err(e) => Err(e),
        };
        let ready = match started {
            Ok(running) => self.wait_ready(spec, desk, &running, progress).await.map(|()| running),
            Err(e) => Err(e),
        };
        match ready {
            Ok(running) => Ok(placed(desk, &running)),
            Err(e) => {
                self.end(&spec.id, desk, None).await?;
                self.remove_group(&spec.id).await?;
                Err(e)
            }
        }
    }

    async fn wait_ready(&self, spec: &DeskSpec, desk: &DeskDirectory, running: &Running, progress: &Progress) -> Result<()> {
        progress.stage("waiting for its first picture");
        let door = Door { address: Address::Unix { path: desk.socket() }, secret: spec.secret.clone() };
        let ready = door.wait_ready(READY_LIMIT, |stage| progress.stage(stage), async || None);
        tokio::select! {
            ready = ready => ready,
            _ = running.init.gone(READY_LIMIT * 2) => Err(Error::NotReady(how_it_ended(desk, running).await)),
            _ = self.starved(&spec.id) => Err(Error::NotReady(format!(
                "its memory was used up {STARVED} times while it started; {} MiB are too little",
                spec.resources.memory_mib
            ))),
        }
    }

    /// Waits for a sign that a desk will never have enough memory: the kernel ends its parts again and again.
    async fn starved(&self, id: &str) {
        let Some(group) = self.group(id) else { return std::future::pending().await };
        let before = group.ended_for_memory();
        while group.ended_for_memory() < before + STARVED {
            tokio::time::sleep(STARVED_LOOK).await;
        }
    }

    /// The desk's directory `run`, made anew, with its settings. It belongs to the host, so that nobody in the desk, its root
    /// included, can put anything there: what the host finds in it is what the host put there.
    fn hand_over(&self, desk: &DeskDirectory, record: &Record, spec: &DeskSpec) -> Result<()> {
        let (run, ids) = (desk.run(), self.ids(&spec.id));
        let failed = |e: std::io::Error| trouble("prepare", &run, &e);
        self.directory.discard(&run).map_err(failed)?;
        std::fs::create_dir(&run).map_err(failed)?;
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let path = run.join("desk.toml");
        directory::write_bytes(&path, settings(record, spec)?.as_bytes(), 0o440).map_err(failed)?;
        if !ids.is_rootless() {
            // The desk's user reads it by its group; the owner is nobody there.
            std::os::unix::fs::chown(&path, None, Some(ids.gid(USER))).map_err(failed)?;
        }
        desk.write_secret(&spec.secret).map_err(|e| trouble("write the secret of", &desk.path, &e))
    }

    fn plan(&self, spec: &DeskSpec, desk: &DeskDirectory, record: &Record) -> Result<Plan> {
        let layers = self.layer_paths(record)?;
        // A template that is gone by now has no wishes any more.
        let template = self.context.images.template(&record.template).ok();
        let home = "/home/user".to_owned();
        let mut env = std::collections::BTreeMap::from(
            [
                ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
                ("HOME", &home),
                ("USER", "user"),
                ("LOGNAME", "user"),
                ("SHELL", "/bin/bash"),
                ("LANG", "C.UTF-8"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        env.extend(spec.env.clone());
        env.extend(spec.vnc_password.clone().map(|password| ("VNC_PASSWORD".to_owned(), password)));
        env.retain(|name, _| !RESERVED.contains(&name.as_str()));
        let listen = format!("unix:{}", inside::SOCKET);
        let size = format!("{}x{}", spec.screen.width, spec.screen.height);
        let words = [
            ["/usr/local/bin/hotdesk", "desk"],
            ["--listen", &listen],
            ["--token-file", inside::SECRET],
            ["--config", "/run/hotdesk/desk.toml"],
            ["--size", &size],
            ["--home", &home],
        ];
        let command: Vec<String> = words.as_flattened().iter().map(ToString::to_string).collect();
        Ok(Plan {
            id: spec.id.clone(),
            desk: desk.path.clone(),
            stage: self.directory.stage(),
            layers,
            disk: record.disk.clone(),
            ids: self.ids(&spec.id),
            group: self.group(&spec.id),
            limits: self.limits(spec),
            network: self.network().filter(|_| spec.network),
            binary: self.context.binary.clone(),
            command,
            secret: spec.secret.clone(),
            env: env.into_iter().collect(),
            rules: seccomp::Rules { nested_namespaces: self.config.nested_namespaces, debuggers: self.config.debuggers },
            volumes: spec.volumes.clone(),
            root: template.as_ref().is_some_and(|template| template.root),
            keep_tmp: template.as_ref().is_some_and(|template| template.keep_tmp),
            restore: None,
        })
    }

    pub(super) fn ids(&self, id: &str) -> Ids {
        if !self.ability.root {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            return Ids::Single { uid, gid };
        }
        if self.ability.mapped.is_ok() { Ids::mapped(&self.context.fleet, id) } else { Ids::shifted() }
    }

    pub(super) fn group(&self, id: &str) -> Option<Group> {
        self.ability.groups.limits_memory().then(|| self.ability.groups.group(&self.context.fleet, id))
    }

    /// The addresses of the host are asked for at each start: they change.
    fn network(&self) -> Option<Network> {
        let tool = self.ability.network.as_ref().ok()?.clone();
        Some(Network { tool, blocked: host_addresses(), allowed: self.config.allow_private.clone() })
    }

    fn limits(&self, spec: &DeskSpec) -> Limits {
        Limits { cpus: spec.resources.cpus, memory_bytes: spec.resources.memory_mib << 20, processes: self.config.max_processes }
    }

    /// What can't be done here is refused before anything is spent.
    pub(super) fn refuse(&self, spec: &DeskSpec) -> Result<()> {
        self.refuse_if_impossible()?;
        let unsupported =
            |what: &str, reason: &str| Err(Error::Unsupported { provider: "local", what: what.into(), reason: reason.into() });
        if let Err(missing) = &self.ability.network
            && spec.network
        {
            return unsupported("a network", &format!("{}; `{}` helps", missing.what, missing.fix));
        }
        if spec.env.iter().any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')) {
            return unsupported("this environment", "names have no `=`, and nothing has a zero byte");
        }
        if spec.resources.cpus < 0.01 || spec.resources.memory_mib < 16 {
            return unsupported("so small a desk", "it needs at least 0.01 CPUs and 16 MiB of memory");
        }
        Ok(())
    }

    /// An ordinary user's desks can only be built on files of that user.
    fn refuse_foreign(&self, rootfs: &hotdesk_image::Rootfs) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let Ids::Single { uid, .. } = self.ids("") else { return Ok(()) };
        let owner = std::fs::metadata(&rootfs.path).map_err(|e| trouble("read", &rootfs.path, &e))?.uid();
        if owner == uid {
            return Ok(());
        }
        Err(Error::Unsupported {
            provider: "local",
            what: format!("a desk on the template `{}`", rootfs.template),
            reason: format!(
                "without root a desk is built on files of its own user, and {} belongs to user {owner}; build the template as \
                 this user, in a directory of its own (HOTDESK_IMAGES)",
                rootfs.path.display()
            ),
        })
    }

    fn refuse_if_impossible(&self) -> Result<()> {
        match &self.ability.refused {
            Some(reason) => Err(Error::Unavailable { provider: "local", reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

/// Where the layers lie.
impl Inner {
    fn layer_paths(&self, record: &Record) -> Result<Vec<PathBuf>> {
        let paths = record.layers.iter().map(|layer| match layer {
            Layer::Template(path) => path.clone(),
            Layer::Saved(id) => self.directory.layer(id),
        });
        let paths: Vec<_> = paths.collect();
        match paths.iter().find(|path| !path.is_dir()) {
            Some(missing) => Err(Error::NotFound(format!(
                "the desk is built on {}, which is gone; a template that is built again does not change its desks, but one that is removed does",
                missing.display()
            ))),
            None => Ok(paths),
        }
    }
}

/// The template's settings of its desks, with the desk's own environment over them. They are read from the template
/// itself: what a desk wrote over it may be anything.
fn settings(record: &Record, spec: &DeskSpec) -> Result<String> {
    let template = record.layers.iter().find_map(|layer| match layer {
        Layer::Template(path) => Some(path.join(hotdesk_image::DESK_SETTINGS.trim_start_matches('/'))),
        Layer::Saved(_) => None,
    });
    let mut table = match template.map(|path| (std::fs::read_to_string(&path), path)) {
        Some((Ok(text), path)) => {
            toml::from_str(&text).map_err(|e| Error::Failed(format!("{} can't be understood: {e}", path.display())))?
        }
        _ => toml::Table::new(),
    };
    let env = table.entry("env").or_insert_with(|| toml::Table::new().into());
    if let Some(env) = env.as_table_mut() {
        env.extend(spec.env.iter().map(|(name, value)| (name.clone(), value.clone().into())));
    }
    toml::to_string(&table).map_err(|e| Error::Failed(format!("the desk's settings can't be written: {e}")))
}

/// Why a desk that was started does not run any more.
async fn how_it_ended(desk: &DeskDirectory, running: &Running) -> String {
    // The keeper notes it; it is the last thing it does.
    running.keeper.gone(KEEPER_LIMIT).await;
    let how = desk.ended().map_or_else(|| "its server ended".to_owned(), |ended| ended.how);
    let words = last_lines(desk, LAST_WORDS);
    if words.is_empty() { how } else { format!("{how}; its last words were: {}", words.trim().replace('\n', " | ")) }
}

fn placed_if_running(desk: &DeskDirectory) -> Option<Placed> {
    desk.running().filter(Running::is_alive).map(|running| placed(desk, &running))
}

fn placed(desk: &DeskDirectory, running: &Running) -> Placed {
    let handle = serde_json::json!({ "pid": running.init.pid, "started": running.init.started });
    Placed { address: Address::Unix { path: desk.socket() }, handle }
}

/// The last lines of this start and the one before.
fn last_lines(desk: &DeskDirectory, lines: usize) -> String {
    let text = std::fs::read_to_string(desk.log_before()).unwrap_or_default()
        + &std::fs::read(desk.log()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    last(&text, lines)
}

pub(super) fn last(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().iter().map(|line| format!("{line}\n")).collect()
}

pub(super) fn unknown(id: &str) -> Error {
    Error::NotFound(format!("there is no desk `{id}` on this machine"))
}

pub(crate) fn image_error(e: hotdesk_image::Error) -> Error {
    match e {
        hotdesk_image::Error::Full(text) => Error::Full(text),
        e @ (hotdesk_image::Error::Unknown { .. } | hotdesk_image::Error::NotBuilt { .. }) => Error::NotFound(e.to_string()),
        e => Error::Failed(e.to_string()),
    }
}

/// Work that blocks, away from the tasks that must not.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::Failed(format!("a step was broken off: {e}")))?
}
