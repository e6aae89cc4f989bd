//! What all parts of a fleet share, and the one way in which a record is changed.

mod services;
pub(crate) mod tasks;

use crate::archive::Archives;
use crate::clock::{Clock, rfc3339};
use crate::config::Config;
use crate::driver::Drivers;
use crate::driver::hold::Holds;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::life::Look;
use crate::limits::Admission;
use crate::money::Money;
use crate::pools::Pools;
use crate::store::{Audit, Record, Spend, Store};
use crate::telemetry;
use crate::view::View;
use hotdesk_api::action::Size;
use hotdesk_api::desk::{Event, Resources, State};
use hotdesk_provider::{Provider, Wishes};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What agents are trained and measured on.
const SCREEN: Size = Size { width: 1920, height: 1080 };
/// A write that lost against another is tried again so often; each loss is somebody else's success.
const WRITE_TRIES: u32 = 20;
/// How long the store is listened to at once.
const LISTEN: Duration = Duration::from_secs(30);
/// The pause after it did not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// Events read at once.
const EVENTS_AT_ONCE: u32 = 500;

pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Keys,
    pub(crate) money: Money,
    pub(crate) archives: OnceLock<Archives>,
    pub(crate) providers: Providers,
    /// Names this process among the orchestrators of the fleet.
    pub(crate) owner: String,
    /// No other orchestrator can be there: the lock of the data directory stands for the leases of all desks.
    pub(crate) alone: bool,
    pub(crate) clock: Clock,
    pub(crate) look: Arc<dyn Look>,
    pub(crate) view: View,
    pub(crate) holds: Holds,
    pub(crate) drivers: Drivers,
    pub(crate) admission: Admission,
    pub(crate) pools: Pools,
    pub(crate) preparations: crate::prepare::Preparations,
    /// An end of a life came nearer.
    pub(crate) ends: tokio::sync::Notify,
    pub(crate) volumes_used: crate::volumes::usage::Used,
    /// One at a time mounts buckets.
    pub(crate) volumes: tokio::sync::Mutex<()>,
    /// One volume or snapshot at a time is counted and written down: many that are asked for at once are not more than there may be.
    pub(crate) counting: tokio::sync::Mutex<()>,
    pub(crate) events: broadcast::Sender<Event>,
    /// The number of the last event that was passed on.
    pub(crate) last_event: AtomicI64,
    /// Grows when reconciliation is wanted before its next tick.
    pub(crate) wanted: watch::Sender<u64>,
    /// Whether the first reconciliation is over, or was waited for long enough.
    pub(crate) reconciled: watch::Sender<bool>,
    /// The providers that it is not over for.
    pub(crate) unreconciled: Mutex<BTreeSet<String>>,
    /// The store is an older copy that somebody put back: nothing is removed ([`crate::history`]).
    pub(crate) put_back: AtomicBool,
    /// The store lost events while we ran: only a restart helps.
    pub(crate) lost_events: AtomicBool,
    /// The file that holds the number of the newest event, beside the data.
    pub(crate) mark: Option<PathBuf>,
    /// What is kept until somebody decides, by kind and provider.
    pub(crate) undecided: Mutex<BTreeMap<String, usize>>,
    pub(crate) panics: Arc<tasks::Panics>,
    pub(crate) opened_ms: i64,
    pub(crate) audit: mpsc::Sender<Audit>,
    /// No new work is begun.
    pub(crate) closing: CancellationToken,
    /// All work ends where it is.
    pub(crate) killed: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Held for as long as we are the only orchestrator.
    #[expect(dead_code, reason = "it is its being open that counts")]
    pub(crate) lock: Option<std::fs::File>,
}

/// Why a record is changed.
pub(crate) struct Note {
    pub(crate) kind: &'static str,
    pub(crate) by: String,
    /// A line in the log of events; without it the change is silent.
    pub(crate) told: bool,
    /// Money to write down with it.
    pub(crate) spends: Vec<Spend>,
}

impl Note {
    pub(crate) fn state(by: impl Into<String>) -> Self {
        Self { kind: "state", by: by.into(), told: true, spends: Vec::new() }
    }

    pub(crate) fn of(kind: &'static str, by: impl Into<String>) -> Self {
        Self { kind, by: by.into(), told: true, spends: Vec::new() }
    }

    pub(crate) fn silent() -> Self {
        Self { kind: "", by: String::new(), told: false, spends: Vec::new() }
    }
}

impl Engine {
    /// What a desk may use if nobody says so: the fleet's own setting, where it was set, or what the template asks for.
    pub(crate) fn default_resources(&self, provider: &str, template: &str) -> Resources {
        self.config.resources.or(self.providers.wishes(provider, template).resources.unwrap_or_default())
    }

    /// The screen if nobody says so, in the same order.
    pub(crate) fn default_screen(&self, provider: &str, template: &str) -> Size {
        self.config.screen.or_else(|| self.providers.wishes(provider, template).screen).unwrap_or(SCREEN)
    }

    /// Work whose caller waits for its answer, but which goes on if the caller goes away.
    pub(crate) async fn detached<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.spawn("request", async move {
            let _ = sender.send(work.await);
        });
        receiver.await.unwrap_or_else(|_| match self.closing.is_cancelled() {
            true => Err(Error::Conflict("the fleet is closing; ask again when it is back".into())),
            false => Err(Error::Store("the request failed by a fault of the fleet's own; its log says more".into())),
        })
    }

    pub(crate) fn event(&self, record: &Record, kind: &str, by: &str) -> Event {
        Event {
            number: 0,
            at: rfc3339(record.changed_ms),
            desk: Some(record.id.clone()),
            project: Some(record.project.clone()),
            kind: kind.into(),
            state: Some(record.state),
            reason: record.reason.clone(),
            by: by.into(),
        }
    }

    /// Changes a record: `change` is applied to the newest one, written with its event, and only then known to anybody.
    /// When another writer was faster, it is applied again to what that one wrote. `Ok(None)` from it: nothing to write.
    pub(crate) async fn change(
        &self,
        id: &str,
        mut change: impl FnMut(&mut Record) -> Result<Option<Note>>,
    ) -> Result<Arc<Record>> {
        let entry = self.view.get(id).ok_or_else(|| Error::NotFound { what: "desk", id: id.into() })?;
        let _one = entry.writing.lock().await;
        for _ in 0..WRITE_TRIES {
            let old = entry.record();
            let mut record = Record::clone(&old);
            let Some(mut note) = change(&mut record)? else { return Ok(old) };
            let now = self.clock.now_ms();
            note.spends.extend(self.settle(&old, &mut record, now));
            let event = note.told.then(|| {
                let mut event = self.event(&record, note.kind, &note.by);
                event.at = rfc3339(now);
                event
            });
            let begun = tokio::time::Instant::now();
            let answer = self.store.update_and_spend(&record, event, &note.spends).await;
            telemetry::store("update", begun.elapsed());
            match answer {
                Ok(version) => {
                    record.version = version;
                    for spend in &note.spends {
                        telemetry::cost(&spend.project, &record.provider, spend.micro);
                    }
                    let record = self.apply(record).unwrap_or_else(|| entry.record());
                    return Ok(record);
                }
                Err(Error::Conflict(why)) => {
                    let stored = self.store.desk(id).await?;
                    match stored {
                        Some(stored) if stored.version != old.version => {
                            self.apply(stored);
                        }
                        // Not outrun: the store refuses what is in it, e.g. a name that is taken.
                        _ => return Err(Error::Conflict(why)),
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::Conflict(format!("the desk {id} is changed by others all the time; try again")))
    }

    /// What goes with each change of state: its time, and the money until then.
    fn settle(&self, old: &Record, record: &mut Record, now: i64) -> Vec<Spend> {
        if old.state == record.state {
            return Vec::new();
        }
        let state = std::mem::replace(&mut record.state, old.state);
        let spends = self.money.settle(record, now);
        record.state = state;
        record.changed_ms = now.max(old.changed_ms + 1);
        spends
    }

    /// Takes a record into the view and lets everybody know who follows.
    pub(crate) fn apply(&self, record: Record) -> Option<Arc<Record>> {
        let applied = self.view.apply(record)?;
        let (old, new) = (applied.old.as_deref(), &applied.new);
        if old.map(|o| o.state) != Some(new.state) {
            telemetry::moved(new);
            self.admission.changed();
        }
        if old.is_some_and(|o| o.pool.is_some()) && new.pool.is_none() {
            self.pools.claimed(&applied.new, self.clock.now_ms());
        }
        if new.pool.is_some() && old.map(|o| o.state) != Some(new.state) {
            self.pools.wake();
        }
        Some(applied.new)
    }

    /// Reads a desk anew; needed where another orchestrator may have changed it.
    pub(crate) async fn refresh(&self, id: &str) -> Result<()> {
        if let Some(record) = self.store.desk(id).await? {
            self.apply(record);
        }
        Ok(())
    }

    /// A line that concerns no state of a desk.
    pub(crate) async fn tell(&self, kind: &str, desk: Option<&str>, project: Option<&str>, reason: impl Into<String>, by: &str) {
        let event = Event {
            number: 0,
            at: rfc3339(self.clock.now_ms()),
            desk: desk.map(Into::into),
            project: project.map(Into::into),
            kind: kind.into(),
            state: None,
            reason: reason.into(),
            by: by.into(),
        };
        if let Err(e) = self.store.event(event).await {
            tracing::warn!(error = %e, kind, "an event was not written");
        }
    }

    /// A stage of a step: shown and passed on, but not kept.
    pub(crate) fn stage(&self, entry: &crate::view::Entry, stage: Option<String>) {
        if !entry.live.set_stage(stage.clone()) {
            return;
        }
        entry.tick();
        if let Some(stage) = stage {
            let record = entry.record();
            let mut event = self.event(&record, "stage", "driver");
            event.number = self.last_event.load(Ordering::Relaxed);
            event.at = rfc3339(self.clock.now_ms());
            event.reason = stage;
            let _ = self.events.send(event);
        }
    }

    /// Passes on what was written, by us or by another orchestrator, in the order of its numbers.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let after = self.last_event.load(Ordering::Relaxed);
            let events = tokio::select! {
                events = self.store.changed(after, EVENTS_AT_ONCE, LISTEN) => events,
                () = self.closing.cancelled() => return,
            };
            let passed = match events {
                Ok(events) => self.pass_on(events).await,
                Err(e) => Err(e),
            };
            if let Err(e) = passed {
                tracing::warn!(error = %e, "the log of events can't be read; trying again");
                tokio::select! {
                    () = self.closing.cancelled() => return,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }

    async fn pass_on(&self, events: Vec<Event>) -> Result<()> {
        // Only the last word on each desk says how it is now.
        let mut last: HashMap<&str, &Event> = HashMap::new();
        for event in &events {
            if let Some(desk) = event.desk.as_deref() {
                last.insert(desk, event);
            }
        }
        for (desk, event) in last {
            let known = self.view.get(desk).map(|e| e.record());
            // Ours, most of the time. Or of a request that was dropped after its write, before we took note.
            let same = known.as_ref().is_some_and(|r| Some(r.state) == event.state && r.reason == event.reason);
            let ended = known.is_none() && matches!(event.state, None | Some(State::Deleted));
            let changed = known.is_some() && event.kind == "changed" && !self.alone;
            if changed || !(same || ended) {
                self.refresh(desk).await?;
            }
        }
        for event in events {
            self.last_event.fetch_max(event.number, Ordering::Relaxed);
            let _ = self.events.send(event);
        }
        Ok(())
    }

    /// Gives back what a closing fleet still holds.
    pub(crate) async fn release_all(&self) {
        for id in self.holds.held() {
            let _ = self.store.release(&id, &self.owner).await;
        }
    }

    /// Whether this process has a right of the whole fleet for now.
    pub(crate) async fn leads(&self, what: &str, ttl: Duration) -> bool {
        if self.alone {
            return true;
        }
        match self.store.lead(what, &self.owner, crate::clock::ms(ttl)).await {
            Ok(leads) => leads,
            Err(e) => {
                tracing::warn!(error = %e, what, "the store did not answer who leads");
                false
            }
        }
    }
}

/// The providers of a fleet, and which of them are away.
pub(crate) struct Providers {
    all: BTreeMap<String, Arc<dyn Provider>>,
    first: Option<String>,
    away: RwLock<HashMap<String, String>>,
    /// (provider, template) that were found good, and when.
    prepared: Mutex<HashMap<(String, String), tokio::time::Instant>>,
    /// What the template asks for, by (provider, template), and when that was read.
    wishes: Mutex<HashMap<(String, String), (tokio::time::Instant, Wishes)>>,
}

/// How long a template that was found good is taken to be good still.
const PREPARED: Duration = Duration::from_secs(30);

impl Providers {
    pub(crate) fn new(providers: Vec<Arc<dyn Provider>>) -> Self {
        let first = providers.first().map(|p| p.name().to_owned());
        let all = providers.into_iter().map(|p| (p.name().to_owned(), p)).collect();
        Self { all, first, away: RwLock::default(), prepared: Mutex::default(), wishes: Mutex::default() }
    }

    /// By name, or the fleet's first.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<&Arc<dyn Provider>> {
        let Some(name) = name.or(self.first.as_deref()) else {
            return Err(Error::Invalid("this fleet has no provider; `hotdesk doctor` says why".into()));
        };
        self.all.get(name).ok_or_else(|| {
            let known = self.all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::Invalid(format!("there is no provider {name} in this fleet; there are: {known}"))
        })
    }

    /// Whether a provider's desks live on this machine.
    pub(crate) fn is_here(&self, name: &str) -> bool {
        self.all.get(name).is_none_or(|provider| provider.is_here())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Arc<dyn Provider>)> {
        self.all.iter()
    }

    /// Why a provider is away, if it is.
    pub(crate) fn away(&self, name: &str) -> Option<String> {
        self.away.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Notes that a provider is away, or back. True if that is news.
    pub(crate) fn set_away(&self, name: &str, why: Option<String>) -> bool {
        let mut away = self.away.write().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => away.insert(name.into(), why).is_none(),
            None => away.remove(name).is_some(),
        }
    }

    pub(crate) fn is_prepared(&self, provider: &str, template: &str) -> bool {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.get(&(provider.to_owned(), template.to_owned())).is_some_and(|at| at.elapsed() < PREPARED)
    }

    pub(crate) fn set_prepared(&self, provider: &str, template: &str) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.insert((provider.into(), template.into()), tokio::time::Instant::now());
    }

    fn wishes(&self, provider: &str, template: &str) -> Wishes {
        let Some(place) = self.all.get(provider) else { return Wishes::default() };
        let mut known = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        // Names come from outside: those of the last half minute are enough to know.
        known.retain(|_, (at, _)| at.elapsed() < PREPARED);
        let fresh = || (tokio::time::Instant::now(), place.wishes(template));
        known.entry((provider.to_owned(), template.to_owned())).or_insert_with(fresh).1
    }
}
