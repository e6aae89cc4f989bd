//! Desks kept ready.
//!
//! A desk of a pool is a desk like any other whose record says `pool`; it belongs to the project `pool`, is within the machine's limits, but is nobody's desk yet. To claim one
//! is one transaction of the store, in which it becomes its new owner's. What can be changed after the fact may differ from the pool's desk: name, labels, project and policy. A request that asks for
//! anything that was decided when the desk was made (environment, resources, screen, snapshot, VNC password, network) gets a desk made for it, and counts as a miss.
//!
//! One orchestrator fills all pools; it makes as many as [`demand`] says, never more than `max`, and never more than `max_hourly` pays for.

mod demand;

use crate::engine::{Engine, Note};
use crate::error::{Error, Result};
use crate::fleet::create::Draft;
use crate::limits::Wanted;
use crate::state;
use crate::store::Record;
use crate::telemetry;
use demand::Demand;
use hotdesk_api::desk::{NewDesk, Policy, State};
use hotdesk_api::fleet::{Pool, PoolSpec};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The project and the key of desks that nobody has claimed.
pub(crate) const PROJECT: &str = "pool";
const LEAD: Duration = Duration::from_secs(15);
const TICK: Duration = Duration::from_secs(5);
/// After a desk could not be made, the pool pauses; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<BTreeMap<String, OnePool>>,
    wake: Notify,
}

struct OnePool {
    spec: PoolSpec,
    demand: Demand,
    target: u32,
    claims: u64,
    misses: u64,
    failures: u32,
    not_before: Instant,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OnePool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something changed that the pools should look at.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Makes the pools in memory equal to the stored ones.
    pub(crate) fn set(&self, specs: Vec<PoolSpec>) {
        let mut pools = self.lock();
        pools.retain(|template, _| specs.iter().any(|s| s.template == *template));
        for spec in specs {
            match pools.get_mut(&spec.template) {
                Some(pool) => pool.spec = spec,
                None => {
                    let pool = OnePool {
                        target: spec.min.min(spec.max),
                        spec: spec.clone(),
                        demand: Demand::new(),
                        claims: 0,
                        misses: 0,
                        failures: 0,
                        not_before: Instant::now(),
                    };
                    pools.insert(spec.template, pool);
                }
            }
        }
        drop(pools);
        self.wake();
    }

    /// A desk left its pool for an owner: here, or through another orchestrator.
    pub(crate) fn claimed(&self, record: &Record, _now_ms: i64) {
        if let Some(pool) = self.lock().get_mut(&record.spec.template) {
            pool.claims += 1;
            pool.demand.wanted();
        }
        self.wake();
    }

    fn missed(&self, template: &str) {
        if let Some(pool) = self.lock().get_mut(template) {
            pool.misses += 1;
            pool.demand.wanted();
            telemetry::claim(template, false);
        }
        self.wake();
    }

    /// A desk of a pool is ready, or could not be made.
    pub(crate) fn filled(&self, template: &str, good: bool, took: Duration) {
        if let Some(pool) = self.lock().get_mut(template) {
            if good {
                pool.demand.filled(took);
                pool.failures = 0;
            } else {
                pool.failures += 1;
                pool.not_before = Instant::now() + (FIRST_PAUSE * 2u32.pow(pool.failures.min(8) - 1)).min(LONGEST_PAUSE);
            }
        }
        self.wake();
    }
}

impl Engine {
    /// The pool that can serve a request, if there is one. Counts a miss if there is one that can't. `network`: whether the
    /// provider's desks have one, and so the pool's.
    pub(crate) fn pool_for(&self, request: &NewDesk, provider: &str, network: bool) -> Option<String> {
        let template = request.template.as_deref().unwrap_or(&self.config.template);
        if request.snapshot.is_some() {
            return None;
        }
        let spec = self.pools.lock().get(template).map(|p| p.spec.clone())?;
        let same_provider = self.providers.choose(spec.provider.as_deref()).is_ok_and(|p| p.name() == provider);
        let plain = same_provider
            && self.resources_of(request.resources, provider, template) == self.pool_resources(&spec)
            && request.env.as_ref().is_none_or(BTreeMap::is_empty)
            && request.screen.is_none_or(|s| s == self.default_screen(provider, template))
            && request.vnc_password.is_none()
            && request.volumes.as_ref().is_none_or(Vec::is_empty)
            && request.network.is_none_or(|n| n == network);
        if !plain {
            self.pools.missed(template);
            return None;
        }
        Some(template.to_owned())
    }

    pub(crate) fn pool_missed(&self, template: &str) {
        self.pools.missed(template);
    }

    fn pool_resources(&self, spec: &PoolSpec) -> hotdesk_api::desk::Resources {
        let provider = self.providers.choose(spec.provider.as_deref()).map_or("", |p| p.name());
        self.resources_of(spec.resources, provider, &spec.template)
    }

    /// All pools, as they are.
    pub(crate) fn pool_list(&self) -> Vec<Pool> {
        let mut counts: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        self.view.for_each(|_, r| {
            if let Some(template) = &r.pool {
                let count = counts.entry(template.clone()).or_default();
                match r.state {
                    State::Running => count.0 += 1,
                    s if state::is_up(s) => count.1 += 1,
                    _ => {}
                }
            }
        });
        let pools = self.pools.lock();
        pools
            .values()
            .map(|p| {
                let (ready, filling) = counts.get(&p.spec.template).copied().unwrap_or_default();
                Pool { spec: p.spec.clone(), target: p.target, ready, filling, claims: p.claims, misses: p.misses }
            })
            .collect()
    }

    /// Keeps the pools filled until the fleet closes.
    pub(crate) async fn fill_pools(self: Arc<Self>) {
        // What is there already must be known before more is made.
        let mut reconciled = self.reconciled.subscribe();
        tokio::select! {
            () = self.closing.cancelled() => return,
            _ = reconciled.wait_for(|done| *done) => {}
        }
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                () = self.pools.wake.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
            if !self.alone
                && let Ok(specs) = self.store.pools().await
            {
                let known: Vec<_> = self.pools.lock().values().map(|p| p.spec.clone()).collect();
                if known != specs {
                    self.pools.set(specs);
                }
            }
            let any = !self.pools.lock().is_empty() || self.view.all().iter().any(|e| e.record().pool.is_some());
            if any
                && self.leads("pools", LEAD).await
                && let Err(e) = self.fill_once().await
            {
                tracing::warn!(error = %e, "the pools were not filled; trying again");
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }

    async fn fill_once(self: &Arc<Self>) -> Result<()> {
        let mut members: BTreeMap<String, Vec<Arc<Record>>> = BTreeMap::new();
        for entry in self.view.all() {
            let record = entry.record();
            if let Some(pool) = &record.pool {
                members.entry(pool.clone()).or_default().push(record);
            }
        }
        // Pools that are no more, and desks that no longer are what their pool promises.
        for (template, records) in &mut members {
            let spec = self.pools.lock().get(template).map(|p| p.spec.clone());
            let resources = spec.as_ref().map(|s| self.pool_resources(s));
            let provider = spec.as_ref().and_then(|s| self.providers.choose(s.provider.as_deref()).ok()).map(|p| p.name());
            for record in records.extract_if(.., |r| Some(r.spec.resources) != resources || Some(r.provider.as_str()) != provider)
            {
                self.drop_member(&record, "its pool has changed").await?;
            }
            for record in records.extract_if(.., |r| matches!(r.state, State::Error | State::Stopped)) {
                self.drop_member(&record, "it is of no use in its pool").await?;
            }
        }
        let templates: Vec<String> = self.pools.lock().keys().cloned().collect();
        for template in templates {
            let mut records = members.remove(&template).unwrap_or_default();
            records.retain(|r| !matches!(r.state, State::Deleting | State::Deleted));
            let Some((spec, target, wait)) = self.target(&template) else { continue };
            let ready = records.iter().filter(|r| r.state == State::Running).count();
            telemetry::pool(&template, target, u32::try_from(ready).unwrap_or(u32::MAX));
            let have = records.len();
            let target = target as usize;
            if have < target && !wait {
                for _ in have..target {
                    if !self.add_member(&spec).await? {
                        break;
                    }
                }
            } else if have > target {
                records.sort_by_key(|r| (r.state == State::Running, r.created_ms));
                for record in records.iter().take(have - target) {
                    self.drop_member(record, "fewer are needed").await?;
                }
            }
        }
        Ok(())
    }

    /// The target of a pool, and whether it pauses after a failure.
    fn target(&self, template: &str) -> Option<(PoolSpec, u32, bool)> {
        let mut pools = self.pools.lock();
        let pool = pools.get_mut(template)?;
        let max = match pool.spec.max_hourly {
            Some(money) => self.affordable(&pool.spec, money).min(pool.spec.max),
            None => pool.spec.max,
        };
        pool.target = pool.demand.target(pool.spec.min.min(max), max, Duration::from_secs(pool.spec.cool_down_s));
        Some((pool.spec.clone(), pool.target, Instant::now() < pool.not_before))
    }

    /// How many desks an amount per hour pays for.
    fn affordable(&self, spec: &PoolSpec, money: f64) -> u32 {
        let Ok(provider) = self.providers.choose(spec.provider.as_deref()) else { return 0 };
        let Some(price) = self.config.prices.get(provider.name()) else { return u32::MAX };
        let resources = self.pool_resources(spec);
        #[expect(clippy::cast_precision_loss)]
        let one = f64::from(resources.cpus) * price.cpu_hour
            + resources.memory_mib as f64 / 1024.0 * price.memory_gib_hour
            + resources.disk_mib as f64 / 1024.0 * price.disk_gib_hour;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        if one > 0.0 { (money / one).floor().min(f64::from(u32::MAX)) as u32 } else { u32::MAX }
    }

    /// Begins one more desk. False if there is no room.
    async fn add_member(self: &Arc<Self>, spec: &PoolSpec) -> Result<bool> {
        let provider = self.providers.choose(spec.provider.as_deref())?;
        let resources = self.pool_resources(spec);
        let wanted = Wanted {
            project: PROJECT.into(),
            key: PROJECT.into(),
            key_max: None,
            counted: false,
            cpu_and_memory: Some(resources),
            disk_mib: resources.disk_mib,
        };
        let place = match self.admit(wanted.at(provider.as_ref()), Duration::ZERO).await {
            Ok(place) => place,
            Err(Error::Limit { reason, .. }) => {
                tracing::debug!(template = spec.template, reason, "the pool stays smaller than it should be");
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let capabilities = provider.capabilities().await;
        let mut draft = Draft::new(self, provider.name(), &spec.template);
        draft.resources = resources;
        draft.network = capabilities.network;
        draft.project = PROJECT.into();
        draft.key = PROJECT.into();
        draft.policy = Policy { auto_stop_s: 0, auto_archive_s: 0, auto_delete_s: 0, ttl_s: 0, end_stops: false };
        draft.pool = Some(spec.template.clone());
        let record = draft.record(self, "for the pool");
        let id = record.id.clone();
        self.store.insert(&record, self.event(&record, "state", "pool")).await?;
        place.fill(record);
        self.kick(&id);
        Ok(true)
    }

    async fn drop_member(self: &Arc<Self>, record: &Record, reason: &str) -> Result<()> {
        let record = self
            .change(&record.id, |r| {
                // Claimed meanwhile: it is somebody's desk now.
                if r.pool.is_none() || matches!(r.state, State::Deleting | State::Deleted) {
                    return Ok(None);
                }
                r.state = State::Deleting;
                r.reason = reason.into();
                Ok(Some(Note::state("pool")))
            })
            .await?;
        self.kick(&record.id);
        Ok(())
    }
}
