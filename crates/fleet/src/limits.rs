//! Admission: what may be made, before anything is spent.
//!
//! A request passes, in this order: its own form ([`request`]), what the provider can do, the number of desks (of the fleet, of its project, of its key), and what the machine
//! has: CPU and memory promised to desks that are up, disk promised to all that have files. Who passes holds a [`Place`] until the desk is in the view, and
//! both are counted under one lock: of fifty requests for ten places, ten pass.
//!
//! Where several orchestrators share a store, who has a place takes one more turn: under a lease of the whole fleet, and knowing all that was written so far, the place is counted again;
//! the lease is given back when the desk is written down. So the limits hold for all of them together.
//!
//! A request with `queue_s` waits in a line instead of being refused. When a place becomes free, the line is gone through from its head and whoever fits is let in, so a
//! project at its own limit holds up nobody else.

pub(crate) mod machine;
pub(crate) mod request;

use crate::driver::hold::Held;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::state;
use crate::store::Record;
use crate::telemetry;
use hotdesk_api::desk::{Resources, SnapshotState, State};
use machine::Machine;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

/// Nothing new is made, saved or archived where less than a part of the disk is free, within these bounds: the store and the desks that run
/// need it to go on.
const RESERVE_PART: u64 = 20;
const RESERVE_MIB: std::ops::RangeInclusive<u64> = 512..=4096;
/// Below this much free memory the kernel is about to end something.
const LEAST_FREE_MEMORY_MIB: u64 = 256;
/// Bounds of what a refused client is told to wait.
const SOONEST: Duration = Duration::from_secs(2);
pub(crate) const LATEST: Duration = Duration::from_secs(60);
/// The lease under which one orchestrator at a time admits desks, and how long it is waited for.
const TURN: &str = "admission";
const TURN_LIMIT: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(5);
/// Most requests that wait in line.
const LONGEST_LINE: usize = 1000;
/// How soon somebody in the line has room that no desk gave back.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// What a desk would take.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) project: String,
    pub(crate) key: String,
    pub(crate) key_max: Option<u32>,
    /// Counts as a desk of its project and key; desks of pools do not.
    pub(crate) counted: bool,
    /// What of the machine it takes; none for a desk that has it already.
    pub(crate) cpu_and_memory: Option<Resources>,
    pub(crate) disk_mib: u64,
}

impl Wanted {
    /// What a desk takes at a provider that is elsewhere is not taken from this machine.
    pub(crate) fn at(mut self, provider: &dyn hotdesk_provider::Provider) -> Self {
        if !provider.is_here() {
            self.cpu_and_memory = None;
            self.disk_mib = 0;
        }
        self
    }
}

pub(crate) struct Admission {
    ledger: Mutex<Ledger>,
    news: Notify,
    /// Desks that may be started at the same time.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) machine: Machine,
}

#[derive(Default)]
struct Ledger {
    next: u64,
    /// Admitted, but not in the view yet.
    reserved: HashMap<u64, Wanted>,
    line: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    wanted: Wanted,
    admitted: oneshot::Sender<()>,
}

/// A place that was admitted; given back when dropped.
pub(crate) struct Place {
    engine: Arc<Engine>,
    number: u64,
    /// Nobody else in the fleet is admitted until the desk is written down.
    turn: Option<Held>,
}

impl Place {
    /// Lets others be admitted while this one takes its time; it stays counted here.
    pub(crate) fn let_others(&mut self) {
        self.turn = None;
    }

    /// Takes the desk into the view and gives the place back, as one.
    pub(crate) fn fill(self, record: Record) -> Option<Arc<Record>> {
        let engine = Arc::clone(&self.engine);
        let mut ledger = engine.admission.ledger();
        ledger.reserved.remove(&self.number);
        let applied = engine.apply(record);
        drop(ledger);
        applied
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.engine.admission.ledger().reserved.remove(&self.number).is_some() {
            self.engine.admission.changed();
        }
    }
}

impl Admission {
    pub(crate) fn new(config: &crate::Config, machine: Machine) -> Self {
        let turns = match config.starts_at_once {
            0 => 2 * std::thread::available_parallelism().map_or(2, usize::from),
            n => n as usize,
        };
        Self { ledger: Mutex::default(), news: Notify::new(), turns: Arc::new(Semaphore::new(turns)), machine }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have become free.
    pub(crate) fn changed(&self) {
        self.news.notify_one();
    }
}

impl Engine {
    /// A place for a desk, now or within `queue`.
    pub(crate) async fn admit(self: &Arc<Self>, wanted: Wanted, queue: Duration) -> Result<Place> {
        let end = Instant::now() + queue;
        loop {
            let mut place = self.admit_here(wanted.clone(), end.saturating_duration_since(Instant::now())).await?;
            if self.alone {
                return Ok(place);
            }
            let turn = self.turn_of_the_fleet().await?;
            match self.still_fits(&place) {
                Ok(()) => {
                    place.turn = Some(turn);
                    return Ok(place);
                }
                Err(refusal) if Instant::now() >= end => {
                    telemetry::refused("limit");
                    return Err(refusal);
                }
                // Another orchestrator was faster; back into the line.
                Err(_) => {}
            }
        }
    }

    /// The right to be the next one of the whole fleet who is admitted, knowing all who were before.
    async fn turn_of_the_fleet(self: &Arc<Self>) -> Result<Held> {
        let deadline = Instant::now() + TURN_LIMIT;
        loop {
            if let Some(turn) = self.hold(TURN).await? {
                let newest = self.store.newest().await?;
                while self.last_event.load(Ordering::Relaxed) < newest {
                    if Instant::now() > deadline {
                        self.reread().await?;
                        break;
                    }
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                return Ok(turn);
            }
            if Instant::now() > deadline {
                let reason = "the other orchestrators leave no turn to admit a desk".into();
                return Err(Error::Limit { reason, retry_after: SOONEST });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    fn still_fits(&self, place: &Place) -> Result<()> {
        let mut ledger = self.admission.ledger();
        let Some(wanted) = ledger.reserved.remove(&place.number) else { return Ok(()) };
        let fits = self.fits(&ledger, &wanted);
        ledger.reserved.insert(place.number, wanted);
        fits
    }

    /// A place as far as this process knows.
    async fn admit_here(self: &Arc<Self>, wanted: Wanted, queue: Duration) -> Result<Place> {
        let (number, wish, admitted) = {
            let mut ledger = self.admission.ledger();
            self.pump(&mut ledger);
            ledger.next += 1;
            let number = ledger.next;
            match self.fits(&ledger, &wanted) {
                Ok(()) => {
                    ledger.reserved.insert(number, wanted);
                    return Ok(Place { engine: Arc::clone(self), number, turn: None });
                }
                Err(Error::Limit { .. }) if !queue.is_zero() && ledger.line.len() < LONGEST_LINE => {
                    let (sender, receiver) = oneshot::channel();
                    ledger.line.push_back(Waiter { number, wanted: wanted.clone(), admitted: sender });
                    (number, wanted, receiver)
                }
                Err(refusal) => {
                    telemetry::refused("limit");
                    return Err(refusal);
                }
            }
        };
        // Made before waiting: if the caller goes away, what was admitted meanwhile is given back.
        let place = Place { engine: Arc::clone(self), number, turn: None };
        let answer = tokio::select! {
            answer = admitted => answer.is_ok(),
            () = tokio::time::sleep(queue) => false,
            () = self.closing.cancelled() => false,
        };
        let mut ledger = self.admission.ledger();
        ledger.line.retain(|w| w.number != number);
        if answer || ledger.reserved.contains_key(&number) {
            drop(ledger);
            return Ok(place);
        }
        // Why now, which may be another reason than at the beginning. Room of this moment is there for whoever asks next.
        let (reason, retry_after) = match self.fits(&ledger, &wish) {
            Err(Error::Limit { reason, retry_after }) => (reason, retry_after),
            _ => ("all places were taken".into(), SOONEST),
        };
        drop(ledger);
        telemetry::refused("queue");
        Err(Error::Limit { reason: format!("{reason}; no place became free in {} s", queue.as_secs()), retry_after })
    }

    /// Lets in whoever fits, from the head of the line.
    fn pump(&self, ledger: &mut Ledger) {
        let mut waiting = std::mem::take(&mut ledger.line);
        waiting.retain(|w| !w.admitted.is_closed());
        while let Some(waiter) = waiting.pop_front() {
            if self.fits(ledger, &waiter.wanted).is_ok() {
                let Waiter { number, wanted, admitted } = waiter;
                if admitted.send(()).is_ok() {
                    ledger.reserved.insert(number, wanted);
                }
            } else {
                ledger.line.push_back(waiter);
            }
        }
    }

    /// Serves the line whenever something changed, and now and then: nobody tells when the machine has more room than before.
    pub(crate) async fn serve_line(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                () = self.admission.news.notified() => {}
                () = tokio::time::sleep(LOOKS_AGAIN) => {}
            }
            let mut ledger = self.admission.ledger();
            if !ledger.line.is_empty() {
                self.pump(&mut ledger);
            }
        }
    }

    fn fits(&self, ledger: &Ledger, wanted: &Wanted) -> Result<()> {
        let mut sum = Sum::default();
        self.view.for_each(|_, record| sum.add_record(record, wanted, self.providers.is_here(&record.provider)));
        for reserved in ledger.reserved.values() {
            sum.add(reserved, wanted);
        }
        let full = |reason: String| Err(Error::Limit { reason, retry_after: self.retry_after() });
        let config = &self.config;
        if wanted.counted {
            if sum.desks >= config.max_desks {
                return full(format!("the fleet has {} desks, the most it may have; delete one, or raise max_desks", sum.desks));
            }
            if let Some(max) = config.max_desks_per_project.get(&wanted.project).filter(|max| sum.of_project >= **max) {
                return full(format!(
                    "the project {} has {} desks, and {max} is its limit; delete one first",
                    wanted.project, sum.of_project
                ));
            }
            if let Some(max) = wanted.key_max.filter(|max| sum.of_key >= *max) {
                return full(format!("this key has {} desks, and {max} is its limit; delete one first", sum.of_key));
            }
        }
        let machine = self.admission.machine.look(&config.data);
        if let Some(resources) = wanted.cpu_and_memory {
            let cpus = machine.cpus * config.cpu_share;
            if sum.cpus + resources.cpus > cpus {
                return full(format!(
                    "{} more CPUs can't be promised: {} of {cpus} are; stop a desk, or ask for fewer",
                    resources.cpus, sum.cpus
                ));
            }
            let memory = share(machine.memory_mib, config.memory_share);
            if sum.memory_mib + resources.memory_mib > memory {
                return full(format!(
                    "{} MiB more memory can't be promised: {} of {memory} MiB are; stop a desk, or ask for less",
                    resources.memory_mib, sum.memory_mib
                ));
            }
            if machine.free_memory_mib < LEAST_FREE_MEMORY_MIB {
                return full(format!("the machine has {} MiB of memory left; stop a desk", machine.free_memory_mib));
            }
        }
        if wanted.disk_mib > 0 {
            let disk = share(machine.disk_mib, config.disk_share);
            if sum.disk_mib + wanted.disk_mib > disk {
                return full(format!(
                    "{} MiB more disk can't be promised: {} of {disk} MiB are; delete or archive a desk, or ask for less",
                    wanted.disk_mib, sum.disk_mib
                ));
            }
            self.room()?;
        }
        Ok(())
    }

    /// Whether the data directory has more room than what is kept for the store and for desks that run.
    pub(crate) fn room(&self) -> Result<()> {
        let machine = self.admission.machine.look(&self.config.data);
        let reserve = (machine.disk_mib / RESERVE_PART).clamp(*RESERVE_MIB.start(), *RESERVE_MIB.end());
        if machine.free_disk_mib >= reserve {
            return Ok(());
        }
        let reason = format!(
            "the disk of {} has {} MiB left, and {reserve} MiB are kept for what runs; make room there",
            self.config.data.display(),
            machine.free_disk_mib
        );
        Err(Error::Limit { reason, retry_after: LATEST })
    }

    /// Whether a project may save one more desk.
    pub(crate) async fn snapshot_room(&self, project: &str, here: bool) -> Result<()> {
        if here {
            self.room()?;
        }
        let all = self.store.snapshots().await?;
        let own = all.iter().filter(|s| s.project == project && s.state != SnapshotState::Deleting);
        let (count, bytes) = own.fold((0u32, 0u64), |(count, bytes), s| (count + 1, bytes.saturating_add(s.size_bytes)));
        let full = |reason: String| {
            telemetry::refused("snapshots");
            Err(Error::Limit { reason, retry_after: LATEST })
        };
        let (most, most_mib) = (self.config.max_snapshots, self.config.max_snapshots_mib);
        if count >= most {
            return full(format!("the project {project} has {count} snapshots, and {most} is the limit; delete one first"));
        }
        if most_mib > 0 && bytes >> 20 >= most_mib {
            return full(format!(
                "the snapshots of the project {project} take {} MiB, and {most_mib} MiB is the limit; delete one first",
                bytes >> 20
            ));
        }
        Ok(())
    }

    /// When something may become free: soon if a desk is just going, else when the next one must go.
    fn retry_after(&self) -> Duration {
        let now = self.clock.now_ms();
        let mut soonest = crate::clock::ms(LATEST);
        self.view.for_each(|entry, record| {
            let left = match record.state {
                State::Deleting | State::Stopping | State::Archiving => 0,
                State::Running if record.policy.auto_stop_s > 0 => {
                    let stop = i64::try_from(record.policy.auto_stop_s).unwrap_or(i64::MAX / 2000) * 1000;
                    stop - (now - entry.live.active_ms(now))
                }
                _ => i64::MAX,
            };
            soonest = soonest.min(left).min(record.expires_ms.map_or(i64::MAX, |end| end - now));
        });
        Duration::from_millis(u64::try_from(soonest).unwrap_or(0)).clamp(SOONEST, LATEST)
    }

    /// CPU and memory of this machine that are promised now.
    pub(crate) fn promised(&self) -> (f32, u64) {
        let mut sum = (0.0, 0);
        self.view.for_each(|_, record| {
            if state::is_up(record.state) && self.providers.is_here(&record.provider) {
                sum.0 += record.spec.resources.cpus;
                sum.1 += record.spec.resources.memory_mib;
            }
        });
        sum
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn share(of: u64, share: f32) -> u64 {
    (of as f64 * f64::from(share)) as u64
}

/// What is taken already, as far as it concerns a request.
#[derive(Default)]
struct Sum {
    desks: u32,
    of_project: u32,
    of_key: u32,
    cpus: f32,
    memory_mib: u64,
    disk_mib: u64,
}

impl Sum {
    fn add_record(&mut self, record: &Record, wanted: &Wanted, here: bool) {
        // A desk that is going has lost its claims: whoever deletes one may make the next at once.
        let counted = record.pool.is_none() && !matches!(record.state, State::Deleting | State::Deleted);
        if counted {
            self.count(&record.project, &record.key, wanted);
        }
        if here && state::is_up(record.state) {
            self.cpus += record.spec.resources.cpus;
            self.memory_mib += record.spec.resources.memory_mib;
        }
        if here && state::has_files(record.state) {
            self.disk_mib += record.spec.resources.disk_mib;
        }
    }

    fn add(&mut self, reserved: &Wanted, wanted: &Wanted) {
        if reserved.counted {
            self.count(&reserved.project, &reserved.key, wanted);
        }
        if let Some(resources) = reserved.cpu_and_memory {
            self.cpus += resources.cpus;
            self.memory_mib += resources.memory_mib;
        }
        self.disk_mib += reserved.disk_mib;
    }

    fn count(&mut self, project: &str, key: &str, wanted: &Wanted) {
        self.desks += 1;
        self.of_project += u32::from(project == wanted.project);
        self.of_key += u32::from(key == wanted.key);
    }
}
