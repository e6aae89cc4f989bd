//! A provider whose desks are rows in memory.

use crate::clock::Clock;
use crate::life::Look;
use async_trait::async_trait;
use hotdesk_api::action::Size;
use hotdesk_api::activity::Activity;
use hotdesk_api::desk::Resources;
use hotdesk_api::fleet::Capabilities;
use hotdesk_provider::{Address, Check, DeskSpec, Door, Error, Found, Placed, Progress, Provider, Result, Usage, Wishes};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

/// What a provider is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    Prepare,
    Create,
    Start,
    Stop,
    Reset,
    Delete,
    List,
    Usage,
    Snapshot,
    ListSnapshots,
    DeleteSnapshot,
    Export,
    Import,
}

/// What goes wrong with a step.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Before anything is done.
    Fails(Error),
    /// After all was done: the answer is lost.
    FailsAfter(Error),
    /// Half of it is done: files are there, nothing runs.
    FailsHalf(Error),
    Slow(Duration),
    Hangs,
    /// A bug of the provider's own.
    Panics,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thing {
    pub running: bool,
    /// What the desk's programs wrote: tells whether files were kept.
    pub files: u64,
    pub starts: u64,
    pub secret: String,
    pub activity: Activity,
    pub cpu_s: f64,
}

struct World {
    things: BTreeMap<String, Thing>,
    snapshots: BTreeMap<String, Thing>,
    /// Faults to come, per step, first come first served.
    faults: HashMap<Step, Vec<Fault>>,
    always: HashMap<Step, Fault>,
    /// Chance of a random fault per call, and the source of chance.
    chance: f64,
    rng: StdRng,
    away: bool,
    /// Desks that are acted on right now; two at once is what must never be.
    acting: HashSet<String>,
    violations: Vec<String>,
    calls: Vec<(Step, String)>,
    can: Capabilities,
}

/// What is, whatever any fleet believes. Cheap to clone; survives the fleet.
#[derive(Clone)]
pub struct Reality {
    name: &'static str,
    world: Arc<Mutex<World>>,
    clock: Clock,
}

impl Default for Reality {
    fn default() -> Self {
        Self::new()
    }
}

impl Reality {
    pub fn new() -> Self {
        Self::seeded(1)
    }

    pub fn seeded(seed: u64) -> Self {
        let can = Capabilities {
            reset: true,
            snapshot: true,
            live_fork: true,
            archive: true,
            network: true,
            cpu_limit: true,
            memory_limit: true,
            disk_limit: true,
            volumes: true,
            templates: vec!["base".into(), "bare".into(), "large".into()],
            ..Capabilities::default()
        };
        let world = World {
            things: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            faults: HashMap::new(),
            always: HashMap::new(),
            chance: 0.0,
            rng: StdRng::seed_from_u64(seed),
            away: false,
            acting: HashSet::new(),
            violations: Vec::new(),
            calls: Vec::new(),
            can,
        };
        Self { name: "test", world: Arc::new(Mutex::new(world)), clock: Clock::tokio() }
    }

    /// A provider of another name, for a fleet with several.
    pub fn named(name: &'static str) -> Self {
        Self { name, ..Self::new() }
    }

    pub fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.clone())
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every such step goes wrong.
    pub fn always(&self, step: Step, fault: Fault) {
        self.world().always.insert(step, fault);
    }

    /// The next such step goes wrong.
    pub fn fault(&self, step: Step, fault: Fault) {
        self.world().faults.entry(step).or_default().push(fault);
    }

    pub fn no_more_faults(&self) {
        let mut world = self.world();
        world.faults.clear();
        world.always.clear();
        world.chance = 0.0;
        world.away = false;
    }

    /// Each call fails with this chance, somewhere.
    pub fn chance(&self, chance: f64) {
        self.world().chance = chance;
    }

    /// The daemon is down, or back.
    pub fn away(&self, away: bool) {
        self.world().away = away;
    }

    pub fn can(&self, change: impl FnOnce(&mut Capabilities)) {
        change(&mut self.world().can);
    }

    pub fn things(&self) -> BTreeMap<String, Thing> {
        self.world().things.clone()
    }

    pub fn snapshots(&self) -> Vec<String> {
        self.world().snapshots.keys().cloned().collect()
    }

    pub fn thing(&self, id: &str) -> Option<Thing> {
        self.world().things.get(id).cloned()
    }

    /// Something happens to a desk that nobody asked for.
    pub fn touch(&self, id: &str, change: impl FnOnce(&mut Thing)) {
        if let Some(thing) = self.world().things.get_mut(id) {
            change(thing);
        }
    }

    /// Its programs end.
    pub fn die(&self, id: &str) {
        self.touch(id, |t| t.running = false);
    }

    /// All of it is gone.
    pub fn lose(&self, id: &str) {
        self.world().things.remove(id);
    }

    /// Something of our fleet that no record knows.
    pub fn plant(&self, id: &str) {
        self.world().things.insert(id.into(), Thing { running: true, ..Thing::default() });
    }

    pub fn plant_snapshot(&self, id: &str) {
        self.world().snapshots.insert(id.into(), Thing::default());
    }

    pub fn calls(&self, step: Step) -> usize {
        self.world().calls.iter().filter(|(s, _)| *s == step).count()
    }

    /// What such steps were about, in their order.
    pub fn called(&self, step: Step) -> Vec<String> {
        self.world().calls.iter().filter(|(s, _)| *s == step).map(|(_, what)| what.clone()).collect()
    }

    /// Whether two ever acted on one desk at once.
    pub fn violations(&self) -> Vec<String> {
        self.world().violations.clone()
    }

    /// Does `effect` as a provider would: slowly, and perhaps badly.
    async fn act<T>(&self, step: Step, id: &str, effect: impl FnOnce(&mut World, bool) -> Result<T>) -> Result<T> {
        let exclusive = !matches!(step, Step::Prepare | Step::List | Step::ListSnapshots | Step::Usage);
        let _acting = exclusive.then(|| Acting::new(self, step, id));
        let (away, fault, before, after) = {
            let mut world = self.world();
            world.calls.push((step, id.into()));
            let fault = world.faults.get_mut(&step).filter(|f| !f.is_empty()).map(|f| f.remove(0));
            let fault = fault.or_else(|| world.always.get(&step).cloned()).or_else(|| world.random_fault(step));
            // While files are passed on, a thread waits for them, and tokio's paused clock waits for that thread.
            let slow = world.chance > 0.0 && !matches!(step, Step::Export | Step::Import);
            let times = if slow { (world.rng.random_range(0..30), world.rng.random_range(0..30)) } else { (0, 0) };
            (world.away, fault, times.0, times.1)
        };
        pause(before).await;
        if away {
            return Err(Error::Unavailable { provider: self.name, reason: "the daemon is down".into() });
        }
        match fault {
            Some(Fault::Fails(e)) => return Err(e),
            Some(Fault::FailsHalf(e)) => {
                let _ = effect(&mut self.world(), true);
                return Err(e);
            }
            Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Panics) => panic!("{step:?} of {id} panics as it was told to"),
            Some(Fault::FailsAfter(e)) => {
                let _ = effect(&mut self.world(), false);
                pause(after).await;
                return Err(e);
            }
            None => {}
        }
        let result = effect(&mut self.world(), false);
        pause(after).await;
        result
    }
}

async fn pause(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    } else {
        tokio::task::yield_now().await;
    }
}

impl World {
    fn random_fault(&mut self, step: Step) -> Option<Fault> {
        if self.chance == 0.0 || !self.rng.random_bool(self.chance) {
            return None;
        }
        let failed = Error::Failed(format!("{step:?} failed by chance"));
        let away = Error::Unavailable { provider: "test", reason: "no answer by chance".into() };
        Some(match self.rng.random_range(0..6) {
            0 => Fault::Fails(failed),
            1 => Fault::FailsAfter(failed),
            2 => Fault::FailsHalf(failed),
            3 if !matches!(step, Step::Export | Step::Import) => {
                Fault::Slow(Duration::from_millis(self.rng.random_range(1..20_000)))
            }
            4 => Fault::FailsAfter(away),
            _ => Fault::Fails(away),
        })
    }

    fn thing(&mut self, id: &str) -> Result<&mut Thing> {
        self.things.get_mut(id).ok_or_else(|| Error::NotFound(format!("there is no desk {id} here")))
    }
}

/// Notes that somebody acts on a desk, and whether somebody else does already.
struct Acting<'a> {
    reality: &'a Reality,
    id: String,
    mine: bool,
}

impl<'a> Acting<'a> {
    fn new(reality: &'a Reality, step: Step, id: &str) -> Self {
        let mut world = reality.world();
        let mine = world.acting.insert(id.into());
        if !mine {
            world.violations.push(format!("{step:?} of {id} while somebody else was acting on it"));
        }
        drop(world);
        Self { reality, id: id.into(), mine }
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        if self.mine {
            self.reality.world().acting.remove(&self.id);
        }
    }
}

fn placed(id: &str, thing: &Thing) -> Placed {
    let path = format!("/reality/{id}/{}", thing.starts).into();
    Placed { address: Address::Unix { path }, handle: serde_json::json!({ "starts": thing.starts }) }
}

fn made(world: &mut World, spec: &DeskSpec, half: bool) -> Result<Placed> {
    let files = match &spec.snapshot {
        Some(from) => {
            world.snapshots.get(&from.id).ok_or_else(|| Error::NotFound(format!("there is no snapshot {}", from.id)))?.files
        }
        None => 0,
    };
    let thing = world.things.entry(spec.id.clone()).or_insert(Thing { files, secret: spec.secret.clone(), ..Thing::default() });
    if !half && !thing.running {
        thing.running = true;
        thing.starts += 1;
    }
    Ok(placed(&spec.id, thing))
}

#[async_trait]
impl Provider for Reality {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn capabilities(&self) -> Capabilities {
        self.world().can.clone()
    }

    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    /// One template asks for more than the others.
    fn wishes(&self, template: &str) -> Wishes {
        if template != "large" {
            return Wishes::default();
        }
        let resources = Resources { cpus: 2.0, memory_mib: 4096, disk_mib: 8192 };
        Wishes { resources: Some(resources), screen: Some(Size { width: 1280, height: 800 }) }
    }

    async fn prepare(&self, template: &str, _: &Progress) -> Result<()> {
        self.act(Step::Prepare, template, |world, _| {
            let known = world.can.templates.join(", ");
            if world.can.templates.iter().any(|t| t == template) {
                return Ok(());
            }
            Err(Error::NotFound(format!("there is no template {template}; there are: {known}")))
        })
        .await
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        progress.stage("making");
        self.act(Step::Create, &spec.id, |world, half| made(world, spec, half)).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        progress.stage("starting");
        self.act(Step::Start, &spec.id, |world, half| {
            world.thing(&spec.id)?;
            made(world, spec, half)
        })
        .await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.act(Step::Stop, id, |world, half| {
            if let (Ok(thing), false) = (world.thing(id), half) {
                thing.running = false;
            }
            Ok(())
        })
        .await
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        progress.stage("resetting");
        self.act(Step::Reset, &spec.id, |world, half| {
            let starts = world.thing(&spec.id)?.starts;
            world.things.remove(&spec.id);
            let placed = made(world, spec, half)?;
            if let Ok(thing) = world.thing(&spec.id) {
                thing.starts += starts;
            }
            Ok(placed)
        })
        .await?;
        let world = self.world();
        world.things.get(&spec.id).map(|t| placed(&spec.id, t)).ok_or_else(|| Error::Failed("lost".into()))
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.act(Step::Delete, id, |world, half| {
            if half {
                if let Ok(thing) = world.thing(id) {
                    thing.running = false;
                }
            } else {
                world.things.remove(id);
            }
            Ok(())
        })
        .await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        self.act(Step::List, "", |world, _| {
            let found = world.things.iter().map(|(id, thing)| Found {
                id: id.clone(),
                running: thing.running,
                placed: thing.running.then(|| placed(id, thing)),
            });
            Ok(found.collect())
        })
        .await
    }

    async fn usage(&self, id: &str) -> Result<Usage> {
        self.act(Step::Usage, id, |world, _| {
            Ok(Usage { cpu_s: world.thing(id)?.cpu_s, memory_bytes: 50 << 20, ..Usage::default() })
        })
        .await
    }

    async fn logs(&self, id: &str, _: usize) -> Result<String> {
        Ok(format!("the log of {id}\n"))
    }

    async fn snapshot(&self, id: &str, snapshot: &str, _: bool) -> Result<u64> {
        self.act(Step::Snapshot, id, |world, half| {
            let copy = Thing { files: if half { 0 } else { world.thing(id)?.files }, ..Thing::default() };
            world.snapshots.insert(snapshot.into(), copy);
            Ok(1000)
        })
        .await
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.act(Step::DeleteSnapshot, snapshot, |world, half| {
            if !half {
                world.snapshots.remove(snapshot);
            }
            Ok(())
        })
        .await
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        self.act(Step::ListSnapshots, "", |world, _| Ok(world.snapshots.keys().cloned().collect())).await
    }

    async fn export(&self, id: &str, to: &Path) -> Result<()> {
        let files = self.act(Step::Export, id, |world, _| Ok(world.thing(id)?.files)).await?;
        write_line(to, files).await.map_err(|e| Error::Failed(format!("the files can't be written: {e}")))
    }

    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        let files = read_line(from).await.map_err(|e| Error::Failed(format!("the files can't be read: {e}")))?;
        self.act(Step::Import, &spec.id, |world, _| {
            world.things.insert(spec.id.clone(), Thing { files, secret: spec.secret.clone(), ..Thing::default() });
            Ok(())
        })
        .await
    }
}

/// What stands for a desk's files is one line. A pipe is never waited for in a thread: a test that kills its fleet would wait for ever.
async fn write_line(to: &Path, files: u64) -> io::Result<()> {
    let line = format!("{files}\n");
    if !is_pipe(to)? {
        return tokio::fs::write(to, line).await;
    }
    pipe::OpenOptions::new().open_sender(to)?.write_all(line.as_bytes()).await
}

async fn read_line(from: &Path) -> io::Result<u64> {
    let mut text = String::new();
    if is_pipe(from)? {
        let mut pipe = pipe::OpenOptions::new().open_receiver(from)?;
        while !text.ends_with('\n') {
            // Nothing, for as long as nobody has come to write.
            if pipe.read_to_string(&mut text).await? == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    } else {
        text = tokio::fs::read_to_string(from).await?;
    }
    text.trim().parse().map_err(|_| io::Error::other("that is no archive of ours"))
}

fn is_pipe(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.file_type().is_fifo())
}

/// Desks answer for themselves: by the number of their start in the address.
#[async_trait]
impl Look for Reality {
    async fn activity(&self, door: &Door) -> Result<Activity> {
        let world = self.world();
        let thing = world.things.iter().find(|(id, thing)| placed(id, thing).address == door.address && thing.running);
        thing.map(|(_, t)| t.activity).ok_or_else(|| Error::Failed("nobody answers".into()))
    }

    async fn answers(&self, door: &Door) -> bool {
        self.activity(door).await.is_ok()
    }
}
