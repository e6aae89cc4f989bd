//! Seeds: a guest that has booted and settled once, saved with its memory, so that every desk like it resumes instead of booting.
//!
//! A seed fits desks of one disk, one size and one screen; the first of a kind makes it. Its memory is a file that all those desks map
//! as their own copy: what they do not change they share.

use super::desk::{BOOT_LIMIT, KEEPER_LIMIT};
use super::disks::Disk;
use super::keeper::{Plan, Running};
use super::machine::{Machine, Memory, Network};
use super::place::{DeskPlace, Record, Saved, names};
use super::{Inner, NAME, jail};
use crate::local::directory::{make_private, read, trouble, write};
use crate::{Address, DeskSpec, Door, Error, Progress, Result};
use hotdesk_api::desk::Resources;
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Seeds that are kept at most; the one that was not used for longest goes. Each is as large as what its guest uses of its memory.
const MOST_SEEDS: usize = 8;
/// Ends the name of what a seed that is being made is written down in.
const UNFINISHED: &str = ".making.json";
/// Pauses between two looks at a seed that is being made.
const LOOK: Duration = Duration::from_millis(100);

impl Inner {
    /// The seed for such desks; it is made if there is none.
    pub(super) async fn seed(
        self: &Arc<Self>,
        template: &str,
        disk: &Disk,
        machine: Machine,
        bytes: u64,
        progress: &Progress,
    ) -> Result<Saved> {
        let key = key(template, disk, &machine, bytes)?;
        if let Some(saved) = self.usable(&self.place.seed(&key))? {
            return Ok(saved);
        }
        // It is made to its end, even if nobody waits for it any more: the next desk will want it.
        let (inner, template, disk, progress) = (Arc::clone(self), template.to_owned(), disk.clone(), progress.clone());
        let made = tokio::spawn(async move { inner.make_seed(&key, &template, &disk, machine, bytes, &progress).await });
        made.await.map_err(|e| Error::Failed(format!("a step was broken off: {e}")))?
    }

    async fn make_seed(
        &self,
        key: &str,
        template: &str,
        disk: &Disk,
        machine: Machine,
        bytes: u64,
        progress: &Progress,
    ) -> Result<Saved> {
        let path = self.place.seed(key);
        // One makes it, whoever else wants it waits.
        let lock = self.locks.take_file(self.place.lock(&format!("seed-{key}")), &format!("seed-{key}")).await?;
        if let Some(saved) = self.usable(&path)? {
            return Ok(saved);
        }
        progress.stage("booting a first machine of this kind");
        let name = format!("seed-{key}-{:08x}", rand::random::<u32>());
        let desk = DeskPlace { path: self.place.memory(&name) };
        let made = async {
            make_private(&desk.path).map_err(|e| trouble("make", &desk.path, &e))?;
            let layer = format!("{:016x}", rand::random::<u64>());
            let record = Record { template: template.into(), base: disk.base.clone(), layers: vec![], disk: 0, bytes };
            // Written down first, so that it is known as in use.
            let mut saved = Saved {
                template: template.into(),
                base: disk.base.clone(),
                layers: vec![layer.clone()],
                bytes,
                machine: machine.clone(),
                memory: Some(name.clone()),
                guest: None,
                token: format!("seed-{:032x}", rand::random::<u128>()),
                size_bytes: 0,
            };
            {
                let _guard = self.layers.lock().await;
                write(&unfinished(&path), &saved).map_err(|e| trouble("write", &path, &e))?;
                self.over(&record, &self.place.layer(&layer))?;
            }
            let plan = Plan {
                name: format!("hotdesk-{}-{name}", self.context.fleet),
                folder: desk.run(),
                disk: self.place.layer(&layer),
                memory: Memory::Kept { ram: desk.path.join("ram") },
                network: Network::Off,
                allow_private: Vec::new(),
                secret: Some(saved.token.clone()),
                settings: self.settings(&spec_of(template, &machine))?,
                limit_s: BOOT_LIMIT.as_secs(),
                resumed: None,
                save: Some(desk.run().join("state")),
                limits: None,
                running: Some(desk.running_file()),
                jail: None,
                machine,
            }
            .shut_in(self.jail(&name, &desk, &disk.base, &[]));
            write(&desk.plan(), &plan).map_err(|e| trouble("write", &desk.plan(), &e))?;
            self.hand_to_machine(&desk, &plan)?;
            self.launch(&desk.plan(), &desk.socket(), &desk.log(), &lock).await?;
            let running = self.until_saved(&desk, &saved, progress).await?;
            saved.guest = running.guest;
            let layer = self.place.layer(&layer);
            self.keep_memory(&desk, Some(&layer))?;
            saved.size_bytes = size(&desk.path) + size_of(&layer);
            Ok(saved)
        };
        let made = made.await;
        self.end(&desk, None).await;
        let _ = std::fs::remove_file(desk.plan());
        let _ = std::fs::remove_dir_all(desk.run());
        match made {
            Ok(saved) => {
                write(&path, &saved).map_err(|e| trouble("write", &path, &e))?;
                let _ = std::fs::remove_file(unfinished(&path));
                self.forget_old_seeds(key).await;
                Ok(saved)
            }
            Err(e) => {
                let _ = std::fs::remove_file(unfinished(&path));
                self.tidy().await;
                Err(e)
            }
        }
    }

    /// Ends and forgets seeds whose making was broken off with the orchestrator that made them.
    pub(super) fn sweep_seeds(&self) {
        for name in names(&self.place.seeds()) {
            let Some(key) = name.strip_suffix(UNFINISHED) else { continue };
            // Somebody else may be at it.
            if !crate::local::disk::is_free(&self.place.lock(&format!("seed-{key}"))) {
                continue;
            }
            let path = self.place.seeds().join(&name);
            let memory = read::<Saved>(&path).ok().flatten().and_then(|saved| saved.memory);
            if let Some(running) = memory.and_then(|memory| DeskPlace { path: self.place.memory(&memory) }.running()) {
                running.keeper.signal(rustix::process::Signal::KILL);
            }
            let _ = std::fs::remove_file(path);
        }
    }

    /// What a machine has saved becomes what others start from: nobody owns it but us.
    pub(super) fn keep_memory(&self, desk: &DeskPlace, layer: Option<&Path>) -> Result<()> {
        let failed = |e: std::io::Error| trouble("keep", &desk.path, &e);
        let ram = desk.path.join("ram");
        jail::take(&ram, &ram, true).map_err(failed)?;
        jail::take(&desk.run().join("state"), &desk.path.join("state"), false).map_err(failed)?;
        layer.map_or(Ok(()), |layer| jail::take(layer, layer, false).map_err(failed))
    }

    fn usable(&self, path: &Path) -> Result<Option<Saved>> {
        let Some(saved) = read::<Saved>(path)? else { return Ok(None) };
        let memory = saved.memory.as_ref().map(|name| self.place.memory(name));
        let whole = memory.is_some_and(|folder| folder.join("ram").is_file() && folder.join("state").is_file())
            && saved.layers.iter().all(|layer| self.place.layer(layer).is_file());
        if whole && let Ok(file) = std::fs::File::options().append(true).open(path) {
            // Its time tells when it was used.
            let _ = file.set_modified(std::time::SystemTime::now());
        }
        Ok(whole.then_some(saved))
    }

    /// Waits until a machine has saved itself and ended.
    pub(super) async fn until_saved(&self, desk: &DeskPlace, saved: &Saved, progress: &Progress) -> Result<Running> {
        let door = Door { address: Address::Unix { path: desk.socket() }, secret: saved.token.clone() };
        let begun = tokio::time::Instant::now();
        loop {
            let running: Option<Running> = desk.written();
            let alive = running.as_ref().is_some_and(|running| running.keeper.is_alive());
            if desk.run().join("state").is_file() && !alive {
                return running.ok_or_else(|| Error::Failed("a machine saved itself and left no note".into()));
            }
            if !alive && (running.is_some() || begun.elapsed() > KEEPER_LIMIT) {
                let log = std::fs::read_to_string(desk.log()).unwrap_or_default();
                let last = log.lines().next_back().unwrap_or("it said nothing").to_owned();
                return Err(Error::NotReady(format!("the first machine of this kind did not come up: {last}")));
            }
            if let Ok(health) = door.health().await {
                progress.stage(format!("booting a first machine of this kind: {}", health.stage));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn forget_old_seeds(&self, keep: &str) {
        let mut seeds: Vec<_> = names(&self.place.seeds())
            .into_iter()
            .filter(|name| *name != format!("{keep}.json") && !name.ends_with(UNFINISHED))
            .map(|name| self.place.seeds().join(name))
            .filter_map(|path| Some((std::fs::metadata(&path).and_then(|meta| meta.modified()).ok()?, path)))
            .collect();
        seeds.sort();
        let surplus = (seeds.len() + 1).saturating_sub(MOST_SEEDS);
        for (_, path) in seeds.into_iter().take(surplus) {
            let _ = std::fs::remove_file(path);
        }
        self.tidy().await;
    }
}

/// Where a seed that is being made is written down.
fn unfinished(path: &Path) -> std::path::PathBuf {
    path.with_extension(UNFINISHED.trim_start_matches('.'))
}

/// What a machine that is nobody's desk is told.
fn spec_of(template: &str, machine: &Machine) -> DeskSpec {
    DeskSpec {
        volumes: Vec::new(),
        id: NAME.into(),
        template: template.into(),
        snapshot: None,
        resources: Resources::default(),
        screen: machine.screen,
        env: Default::default(),
        labels: Default::default(),
        network: false,
        vnc_password: None,
        secret: String::new(),
    }
}

fn key(template: &str, disk: &Disk, machine: &Machine, bytes: u64) -> Result<String> {
    let text = serde_json::to_string(&(template, &disk.base, machine, bytes)).map_err(|e| Error::Failed(e.to_string()))?;
    // A machine that was saved by one QEMU may not be understood by another.
    let version = std::fs::metadata(&machine.program).map(|meta| (meta.len(), meta.mtime())).unwrap_or_default();
    let digest = Sha256::digest(format!("{text} {version:?}").as_bytes());
    Ok(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Bytes that the files in a folder take.
pub(super) fn size(folder: &Path) -> u64 {
    names(folder).iter().map(|name| size_of(&folder.join(name))).sum()
}

pub(super) fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map(|meta| meta.blocks() * 512).unwrap_or(0)
}
