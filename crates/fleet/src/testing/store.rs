//! A store in memory: the rules of the real ones, without their disk. Leases run by tokio's clock.

use crate::clock::from_rfc3339;
use crate::error::{Error, Result};
use crate::store::{Alert, Along, Audit, Change, Claimed, DELETED, Once, Record, Spend, Store, StoredKey};
use async_trait::async_trait;
use hotdesk_api::desk::{Event, Snapshot, State};
use hotdesk_api::fleet::{Budget, PoolSpec, Volume};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Default, Clone)]
struct Tables {
    /// Numbers of events that were skipped ([`Store::raise_events`]).
    skipped: i64,
    desks: BTreeMap<String, Record>,
    events: Vec<Event>,
    leases: BTreeMap<String, (String, Instant)>,
    answers: BTreeMap<(String, String), String>,
    keys: BTreeMap<String, (i64, StoredKey)>,
    key_change: i64,
    pools: BTreeMap<String, PoolSpec>,
    snapshots: BTreeMap<String, Snapshot>,
    volumes: BTreeMap<String, Volume>,
    budgets: BTreeMap<String, Budget>,
    notes: BTreeMap<(String, String), (Option<i64>, String)>,
    facts: BTreeMap<String, String>,
    spent: BTreeMap<(String, String), i64>,
    alerts: BTreeMap<String, (Alert, bool)>,
    audit: Vec<Audit>,
}

pub struct MemoryStore {
    tables: Mutex<Tables>,
    news: Notify,
    /// Nothing is answered.
    away: AtomicBool,
    /// Most milliseconds that a call takes, before and after its effect.
    slow_ms: u64,
    rng: Mutex<StdRng>,
}

impl MemoryStore {
    pub fn new() -> Arc<Self> {
        Self::slow(0, 1)
    }

    /// Each call takes up to so long before and after its effect, by the chance that the seed gives.
    pub fn slow(slow_ms: u64, seed: u64) -> Arc<Self> {
        let rng = Mutex::new(StdRng::seed_from_u64(seed));
        Arc::new(Self { tables: Mutex::default(), news: Notify::new(), away: AtomicBool::new(false), slow_ms, rng })
    }

    /// A copy, as a backup has it.
    pub fn copy(&self) -> Arc<Self> {
        let tables = self.tables().clone();
        let rng = Mutex::new(StdRng::seed_from_u64(1));
        Arc::new(Self {
            tables: Mutex::new(tables),
            news: Notify::new(),
            away: AtomicBool::new(false),
            slow_ms: self.slow_ms,
            rng,
        })
    }

    /// As a database that can't be reached, or can again.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run<T>(&self, effect: impl FnOnce(&mut Tables) -> Result<T>) -> Result<T> {
        self.pause().await;
        if self.away.load(Ordering::Relaxed) {
            return Err(Error::Store("the database is away".into()));
        }
        let (result, told) = {
            let mut tables = self.tables();
            let before = tables.events.len();
            let result = effect(&mut tables);
            (result, tables.events.len() > before)
        };
        if told {
            self.news.notify_waiters();
        }
        self.pause().await;
        result
    }

    async fn pause(&self) {
        if self.slow_ms == 0 {
            return tokio::task::yield_now().await;
        }
        let ms = self.rng.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..self.slow_ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

impl Tables {
    fn newest(&self) -> i64 {
        self.skipped + i64::try_from(self.events.len()).unwrap_or(0)
    }

    fn tell(&mut self, mut event: Event) -> i64 {
        let number = self.newest() + 1;
        event.number = number;
        self.events.push(event);
        number
    }

    fn has_volume(&self, volume: &str) -> bool {
        let live = self.desks.values().filter(|r| r.state != State::Deleted);
        live.flat_map(|r| &r.spec.volumes).any(|place| place.volume == volume)
    }

    fn name_taken(&self, record: &Record) -> bool {
        let same = |r: &&Record| r.id != record.id && r.project == record.project && r.name == record.name;
        record.name.is_some() && self.desks.values().filter(|r| r.state != State::Deleted).any(|r| same(&r))
    }

    fn add(&mut self, record: &Record, event: Event) -> Result<()> {
        if self.desks.contains_key(&record.id) || self.name_taken(record) {
            return Err(Error::Conflict("the name is taken".into()));
        }
        for place in &record.spec.volumes {
            let id = &place.volume;
            let volume = self.volumes.get(id).ok_or_else(|| Error::NotFound { what: "volume", id: id.clone() })?;
            if volume.exclusive && self.has_volume(id) {
                return Err(Error::Conflict("the volume is for one desk at a time".into()));
            }
        }
        self.desks.insert(record.id.clone(), record.clone());
        self.tell(event);
        Ok(())
    }

    fn change(&mut self, record: &Record, along: Along) -> Result<i64> {
        if self.name_taken(record) {
            return Err(Error::Conflict("the name is taken".into()));
        }
        let stored = self.desks.get_mut(&record.id).ok_or_else(|| Error::NotFound { what: "desk", id: record.id.clone() })?;
        if stored.version != record.version {
            return Err(Error::Conflict("it was changed by somebody else".into()));
        }
        *stored = record.clone();
        stored.version += 1;
        let version = stored.version;
        for spend in along.spends {
            *self.spent.entry((spend.project, spend.day)).or_default() += spend.micro;
        }
        if let Some(event) = along.event {
            self.tell(event);
        }
        Ok(version)
    }

    fn hold(&mut self, what: String, owner: &str, ttl_ms: i64, desk: Option<&str>) -> bool {
        let until = Instant::now() + Duration::from_millis(u64::try_from(ttl_ms).unwrap_or(0));
        match self.leases.get(&what) {
            Some((holder, end)) if holder != owner && *end > Instant::now() => return false,
            Some((holder, _)) if holder != owner => {
                // Whoever slept through the end of its lease is refused at its next write.
                if let Some(record) = desk.and_then(|d| self.desks.get_mut(d)) {
                    record.version += 1;
                }
            }
            _ => {}
        }
        self.leases.insert(what, (owner.into(), until));
        true
    }

    fn after(&self, after: i64, desk: Option<&str>, limit: u32) -> Vec<Event> {
        let wanted = |e: &&Event| e.number > after && desk.is_none_or(|d| e.desk.as_deref() == Some(d));
        self.events.iter().filter(wanted).take(limit as usize).cloned().collect()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn insert(&self, record: &Record, event: Event) -> Result<()> {
        self.run(|t| t.add(record, event)).await
    }

    async fn insert_once(&self, record: &Record, event: Event, once: Once<'_>) -> Result<Option<String>> {
        self.run(|t| {
            let key = (once.scope.to_owned(), once.key.to_owned());
            if let Some(before) = t.answers.get(&key) {
                return Ok(Some(before.clone()));
            }
            t.add(record, event)?;
            t.answers.insert(key, record.id.clone());
            Ok(None)
        })
        .await
    }

    async fn update(&self, record: &Record, event: Option<Event>) -> Result<i64> {
        self.update_and_spend(record, event, &[]).await
    }

    async fn update_and_spend(&self, record: &Record, event: Option<Event>, spends: &[Spend]) -> Result<i64> {
        self.run(|t| t.change(record, Along { event, spends: spends.to_vec() })).await
    }

    async fn desk(&self, id: &str) -> Result<Option<Record>> {
        self.run(|t| Ok(t.desks.get(id).cloned())).await
    }

    async fn named(&self, project: &str, name: &str) -> Result<Option<Record>> {
        let same = |r: &&Record| r.project == project && r.name.as_deref() == Some(name) && r.state != State::Deleted;
        self.run(|t| Ok(t.desks.values().find(|r| same(r)).cloned())).await
    }

    async fn desks(&self) -> Result<Vec<Record>> {
        self.run(|t| Ok(t.desks.values().filter(|r| r.state != State::Deleted).cloned().collect())).await
    }

    async fn claim(&self, pool: &str) -> Result<Option<Record>> {
        let claimed = self.claim_with(pool, None, &|_| Along::default()).await?;
        Ok(if let Claimed::Desk(record) = claimed { Some(*record) } else { None })
    }

    async fn claim_with(&self, pool: &str, once: Option<Once<'_>>, change: Change<'_>) -> Result<Claimed> {
        self.run(|t| {
            let key = once.map(|o| (o.scope.to_owned(), o.key.to_owned()));
            if let Some(before) = key.as_ref().and_then(|k| t.answers.get(k)) {
                return Ok(Claimed::Before(before.clone()));
            }
            let ready = |r: &&Record| r.pool.as_deref() == Some(pool) && r.state == State::Running;
            let Some(mut record) = t.desks.values().find(ready).cloned() else { return Ok(Claimed::Empty) };
            record.pool = None;
            let along = change(&mut record);
            record.version = t.change(&record, along)?;
            if let Some(key) = key {
                t.answers.insert(key, record.id.clone());
            }
            Ok(Claimed::Desk(Box::new(record)))
        })
        .await
    }

    async fn lease(&self, desk: &str, owner: &str, ttl_ms: i64) -> Result<bool> {
        self.run(|t| Ok(t.hold(format!("desk:{desk}"), owner, ttl_ms, Some(desk)))).await
    }

    async fn release(&self, desk: &str, owner: &str) -> Result<()> {
        self.run(|t| {
            t.leases.retain(|what, (holder, _)| *what != format!("desk:{desk}") || holder != owner);
            Ok(())
        })
        .await
    }

    async fn renew(&self, owner: &str, ttl_ms: i64) -> Result<Vec<String>> {
        self.run(|t| {
            let until = Instant::now() + Duration::from_millis(u64::try_from(ttl_ms).unwrap_or(0));
            let mut held = Vec::new();
            for (what, lease) in t.leases.iter_mut().filter(|(_, l)| l.0 == owner) {
                if let Some(desk) = what.strip_prefix("desk:") {
                    lease.1 = until;
                    held.push(desk.to_owned());
                }
            }
            Ok(held)
        })
        .await
    }

    async fn lead(&self, what: &str, owner: &str, ttl_ms: i64) -> Result<bool> {
        self.run(|t| Ok(t.hold(format!("fleet:{what}"), owner, ttl_ms, None))).await
    }

    async fn event(&self, event: Event) -> Result<i64> {
        self.run(|t| Ok(t.tell(event))).await
    }

    async fn events(&self, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        self.run(|t| Ok(t.after(after, desk, limit))).await
    }

    async fn events_of(&self, project: &str, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        self.run(|t| {
            let mut events = t.after(after, desk, u32::MAX);
            events.retain(|e| e.project.as_deref() == Some(project));
            events.truncate(limit as usize);
            Ok(events)
        })
        .await
    }

    async fn newest(&self) -> Result<i64> {
        self.run(|t| Ok(t.newest())).await
    }

    async fn raise_events(&self, to: i64) -> Result<()> {
        self.run(|t| {
            t.skipped += (to - t.newest()).max(0);
            Ok(())
        })
        .await
    }

    async fn changed(&self, after: i64, limit: u32, wait: Duration) -> Result<Vec<Event>> {
        let end = Instant::now() + wait;
        loop {
            let news = self.news.notified();
            let events = self.tables().after(after, None, limit);
            if !events.is_empty() || tokio::time::timeout_at(end, news).await.is_err() {
                return Ok(events);
            }
        }
    }

    async fn remember(&self, scope: &str, key: &str, desk: &str) -> Result<Option<String>> {
        self.run(|t| {
            let key = (scope.to_owned(), key.to_owned());
            let before = t.answers.get(&key).cloned();
            t.answers.entry(key).or_insert_with(|| desk.to_owned());
            Ok(before)
        })
        .await
    }

    async fn remembered(&self, scope: &str, key: &str) -> Result<Option<String>> {
        self.run(|t| Ok(t.answers.get(&(scope.to_owned(), key.to_owned())).cloned())).await
    }

    async fn put_fact(&self, name: &str, value: &str, replace: bool) -> Result<bool> {
        self.run(|t| {
            if t.facts.contains_key(name) && !replace {
                return Ok(false);
            }
            t.facts.insert(name.into(), value.into());
            Ok(true)
        })
        .await
    }

    async fn fact(&self, name: &str) -> Result<Option<String>> {
        self.run(|t| Ok(t.facts.get(name).cloned())).await
    }

    async fn remove_fact(&self, name: &str) -> Result<()> {
        self.run(|t| {
            t.facts.remove(name);
            Ok(())
        })
        .await
    }

    async fn put_key(&self, key: &StoredKey) -> Result<()> {
        self.run(|t| {
            if t.keys.get(&key.key.id).is_some_and(|(_, k)| k.key.revoked_at.is_some()) {
                return Err(Error::Conflict("the key is revoked".into()));
            }
            t.key_change += 1;
            t.keys.insert(key.key.id.clone(), (t.key_change, key.clone()));
            Ok(())
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<StoredKey>> {
        self.run(|t| Ok(t.keys.values().map(|(_, k)| k.clone()).collect())).await
    }

    async fn key_changes(&self, after: i64) -> Result<(i64, Vec<StoredKey>)> {
        self.run(|t| Ok((t.key_change, t.keys.values().filter(|(n, _)| *n > after).map(|(_, k)| k.clone()).collect()))).await
    }

    async fn touch_keys(&self, _: &[(String, i64)]) -> Result<()> {
        Ok(())
    }

    async fn put_pool(&self, pool: &PoolSpec) -> Result<()> {
        self.run(|t| {
            t.pools.insert(pool.template.clone(), pool.clone());
            Ok(())
        })
        .await
    }

    async fn remove_pool(&self, template: &str) -> Result<()> {
        self.run(|t| {
            t.pools.remove(template);
            Ok(())
        })
        .await
    }

    async fn pools(&self) -> Result<Vec<PoolSpec>> {
        self.run(|t| Ok(t.pools.values().cloned().collect())).await
    }

    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        self.run(|t| {
            t.snapshots.insert(snapshot.id.clone(), snapshot.clone());
            Ok(())
        })
        .await
    }

    async fn remove_snapshot(&self, id: &str) -> Result<()> {
        self.run(|t| {
            t.snapshots.remove(id);
            t.notes.insert((DELETED.into(), format!("snapshot/{id}")), (None, String::new()));
            Ok(())
        })
        .await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.run(|t| Ok(t.snapshots.values().cloned().collect())).await
    }

    async fn add_volume(&self, volume: &Volume) -> Result<bool> {
        self.run(|t| {
            let taken = t.volumes.values().any(|v| (&v.project, &v.name) == (&volume.project, &volume.name));
            if !taken {
                t.volumes.insert(volume.id.clone(), volume.clone());
            }
            Ok(!taken)
        })
        .await
    }

    async fn remove_volume(&self, id: &str) -> Result<()> {
        self.run(|t| {
            if t.has_volume(id) {
                return Err(Error::Conflict("the volume is mounted".into()));
            }
            t.volumes.remove(id);
            Ok(())
        })
        .await
    }

    async fn volumes(&self) -> Result<Vec<Volume>> {
        self.run(|t| Ok(t.volumes.values().cloned().collect())).await
    }

    async fn put_budget(&self, budget: &Budget) -> Result<()> {
        self.run(|t| {
            t.budgets.insert(budget.project.clone(), budget.clone());
            Ok(())
        })
        .await
    }

    async fn remove_budget(&self, project: &str) -> Result<()> {
        self.run(|t| {
            t.budgets.remove(project);
            Ok(())
        })
        .await
    }

    async fn budgets(&self) -> Result<Vec<Budget>> {
        self.run(|t| Ok(t.budgets.values().cloned().collect())).await
    }

    async fn put_note(&self, kind: &str, name: &str, body: &str, until_ms: Option<i64>, replace: bool) -> Result<bool> {
        self.run(|t| {
            let id = (kind.to_owned(), name.to_owned());
            if t.notes.contains_key(&id) && !replace {
                return Ok(false);
            }
            t.notes.insert(id, (until_ms, body.into()));
            Ok(true)
        })
        .await
    }

    async fn note(&self, kind: &str, name: &str) -> Result<Option<String>> {
        self.run(|t| Ok(t.notes.get(&(kind.to_owned(), name.to_owned())).map(|(_, body)| body.clone()))).await
    }

    async fn notes(&self, kind: &str) -> Result<Vec<(String, String)>> {
        self.run(|t| {
            Ok(t.notes
                .iter()
                .filter(|((k, _), _)| k == kind)
                .map(|((_, name), (_, body))| (name.clone(), body.clone()))
                .collect())
        })
        .await
    }

    async fn remove_note(&self, kind: &str, name: &str) -> Result<bool> {
        self.run(|t| Ok(t.notes.remove(&(kind.to_owned(), name.to_owned())).is_some())).await
    }

    async fn spend(&self, project: &str, day: &str, micro: i64) -> Result<()> {
        self.run(|t| {
            *t.spent.entry((project.into(), day.into())).or_default() += micro;
            Ok(())
        })
        .await
    }

    async fn spent(&self) -> Result<Vec<(String, String, i64)>> {
        self.run(|t| Ok(t.spent.iter().map(|((p, d), m)| (p.clone(), d.clone(), *m)).collect())).await
    }

    async fn spent_by(&self, project: &str, day: &str) -> Result<(i64, i64)> {
        self.run(|t| {
            let of = t.spent.iter().filter(|((p, _), _)| p == project);
            Ok(of.fold((0, 0), |(today, all), ((_, d), m)| (today + if d == day { *m } else { 0 }, all + m)))
        })
        .await
    }

    async fn put_alert(&self, alert: &Alert) -> Result<bool> {
        self.run(|t| {
            let new = !t.alerts.contains_key(&alert.id);
            t.alerts.entry(alert.id.clone()).or_insert_with(|| (alert.clone(), false));
            Ok(new)
        })
        .await
    }

    async fn alerts(&self) -> Result<Vec<Alert>> {
        self.run(|t| Ok(t.alerts.values().filter(|(_, done)| !done).map(|(a, _)| a.clone()).collect())).await
    }

    async fn alert_done(&self, id: &str) -> Result<()> {
        self.run(|t| {
            if let Some(alert) = t.alerts.get_mut(id) {
                alert.1 = true;
            }
            Ok(())
        })
        .await
    }

    async fn audit(&self, line: Audit) -> Result<()> {
        self.audit_all(&[line]).await
    }

    async fn audit_all(&self, lines: &[Audit]) -> Result<()> {
        self.run(|t| {
            // As PostgreSQL, which has no zero bytes in texts.
            if lines.iter().any(|line| line.path.contains('\0')) {
                return Err(Error::Store("a zero byte".into()));
            }
            t.audit.extend_from_slice(lines);
            Ok(())
        })
        .await
    }

    async fn audits(&self, limit: u32) -> Result<Vec<Audit>> {
        self.run(|t| Ok(t.audit.iter().rev().take(limit as usize).cloned().collect())).await
    }

    async fn prune(&self, before_ms: i64) -> Result<u64> {
        self.run(|t| {
            let before = t.desks.len();
            t.desks.retain(|_, r| r.state != State::Deleted || r.changed_ms >= before_ms);
            // Events are numbered by their place here, so they only lose their text.
            for event in t.events.iter_mut().filter(|e| from_rfc3339(&e.at).is_some_and(|at| at < before_ms)) {
                event.reason.clear();
            }
            Ok((before - t.desks.len()) as u64)
        })
        .await
    }

    async fn ping(&self) -> Result<()> {
        self.run(|_| Ok(())).await
    }
}
