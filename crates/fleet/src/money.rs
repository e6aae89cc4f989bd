//! Prices, costs, budgets.
//!
//! A desk costs CPU, memory and disk while it runs, disk alone while it is stopped, nothing once it is archived or deleted.
//! Money is counted from times, never from ticks: a record says until when it is counted ([`Record::cost_until_ms`]), and
//! whoever changes its state first settles the account up to that moment at the price of the state that ends. The record
//! and the project's day are written in one transaction ([`Store::update_and_spend`]), so after a crash the time since the
//! last write is simply still open: nothing is lost, nothing is counted twice.
//!
//! ```text
//!   every change of state   let spends = money.settle(&mut record, now);   // then change the state, then update_and_spend
//!   every minute            let spends = money.tick(&mut record, now);     // empty: nothing worth a write
//!                           for (project, why) in money.look(now).await?.over { stop its desks }
//!   every create            money.can_spend(project, now).await?;
//! ```
//!
//! Amounts are whole millionths of the currency; days are UTC.

mod alerts;
mod budget;

pub use budget::Look;

use crate::config::{Config, Price};
use crate::error::{Error, Result};
use crate::store::{Record, Spend, Store};
use hotdesk_api::desk::{Resources, State};
use hotdesk_api::fleet::Costs;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

const DAY_MS: i64 = 24 * 3600 * 1000;
const MIB_PER_GIB: f64 = 1024.0;
/// Millionths per millisecond of one unit per hour.
const MICRO_PER_MS: f64 = 1e6 / 3.6e6;

/// What a fleet charges. Cheap to clone.
#[derive(Clone)]
pub struct Money {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    prices: BTreeMap<String, Price>,
    currency: String,
    /// There is an alert to deliver.
    news: Arc<Notify>,
}

impl Money {
    pub fn new(store: Arc<dyn Store>, config: &Config) -> Result<Self> {
        for (provider, price) in &config.prices {
            if [price.cpu_hour, price.memory_gib_hour, price.disk_gib_hour].iter().any(|p| !p.is_finite() || *p < 0.0) {
                return Err(Error::Invalid(format!("the prices of provider {provider} must be numbers that are not negative")));
            }
        }
        let inner = Inner { store, prices: config.prices.clone(), currency: config.currency.clone(), news: Arc::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What a desk costs per hour in a state.
    pub fn per_hour(&self, provider: &str, resources: &Resources, state: State) -> f64 {
        let Some(price) = self.inner.prices.get(provider) else { return 0.0 };
        let disk = resources.disk_mib as f64 / MIB_PER_GIB * price.disk_gib_hour;
        let memory = resources.memory_mib as f64 / MIB_PER_GIB * price.memory_gib_hour;
        match state {
            // On the way to and from running it holds what it will have or had.
            State::Creating | State::Running | State::Starting | State::Resetting | State::Stopping => {
                f64::from(resources.cpus) * price.cpu_hour + memory + disk
            }
            State::Stopped | State::Archiving | State::Restoring | State::Error | State::Deleting => disk,
            State::Archived | State::Deleted => 0.0,
        }
    }

    /// Closes the account of a desk up to now, at the price of the state that it is in. Call it before the state is changed,
    /// and before the project is.
    pub fn settle(&self, record: &mut Record, now_ms: i64) -> Vec<Spend> {
        let rate = self.rate(record);
        // A clock that was put back must not earn money.
        let until = now_ms.max(record.cost_until_ms);
        let micro = (rate * (until - record.cost_until_ms) as f64).round() as i64;
        charge(record, until, micro)
    }

    /// The same for a desk that stays in its state, in whole millionths: what is left over stays open, so that the cheapest desk
    /// is paid for in the end. Nothing is returned, and nothing needs to be written, if there is less than one.
    pub fn tick(&self, record: &mut Record, now_ms: i64) -> Vec<Spend> {
        let rate = self.rate(record);
        let micro = (rate * (now_ms - record.cost_until_ms) as f64).floor() as i64;
        if micro <= 0 {
            return Vec::new();
        }
        let until = record.cost_until_ms + (micro as f64 / rate).floor() as i64;
        charge(record, until.min(now_ms), micro)
    }

    /// What a desk cost until now, in units of the currency.
    pub fn cost(&self, record: &Record, now_ms: i64) -> f64 {
        let mut record = record.clone();
        self.settle(&mut record, now_ms);
        units(record.cost_micro)
    }

    /// What was spent in all and by day, until now: what is written down, and what `live` desks cost since then. Of one project, or of all.
    pub async fn costs<'a>(
        &self,
        project: Option<&str>,
        live: impl IntoIterator<Item = &'a Record> + Send,
        now_ms: i64,
    ) -> Result<Costs> {
        let mut rows = self.inner.store.spent().await?;
        for record in live {
            let open = self.settle(&mut record.clone(), now_ms);
            rows.extend(open.into_iter().map(|spend| (spend.project, spend.day, spend.micro)));
        }
        let today = day(now_ms);
        let mut by_project = BTreeMap::<String, i64>::new();
        let mut by_day = BTreeMap::<String, i64>::new();
        for (owner, day, micro) in rows {
            if project.is_none_or(|project| project == owner) {
                *by_project.entry(owner).or_default() += micro;
                *by_day.entry(day).or_default() += micro;
            }
        }
        Ok(Costs {
            currency: self.inner.currency.clone(),
            total: units(by_project.values().sum()),
            today: units(by_day.get(&today).copied().unwrap_or(0)),
            by_project: by_project.into_iter().map(|(project, micro)| (project, units(micro))).collect(),
            by_day: by_day.into_iter().map(|(day, micro)| (day, units(micro))).collect(),
        })
    }

    /// Millionths per millisecond.
    fn rate(&self, record: &Record) -> f64 {
        self.per_hour(&record.provider, &record.spec.resources, record.state) * MICRO_PER_MS
    }
}

/// Books an amount that was spent evenly since the last time; midnights divide it.
fn charge(record: &mut Record, until_ms: i64, micro: i64) -> Vec<Spend> {
    let from = record.cost_until_ms;
    record.cost_until_ms = until_ms;
    record.cost_micro = record.cost_micro.saturating_add(micro);
    if micro <= 0 {
        return Vec::new();
    }
    let length = (until_ms - from).max(1) as f64;
    let mut spends = Vec::new();
    let (mut start, mut booked) = (from, 0);
    loop {
        let midnight = (start.div_euclid(DAY_MS) + 1) * DAY_MS;
        let last = midnight >= until_ms;
        // Up to each midnight as a whole, so that the parts add up to the sum.
        let total = if last { micro } else { (micro as f64 * ((midnight - from) as f64 / length)).round() as i64 };
        if total > booked {
            spends.push(Spend { project: record.project.clone(), day: day(start), micro: total - booked });
        }
        if last {
            return spends;
        }
        (start, booked) = (midnight, total.max(booked));
    }
}

/// The day of a time, in UTC: `2026-01-31`.
pub fn day(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(at) => at.to_zoned(TimeZone::UTC).date().to_string(),
        // Beyond the calendar.
        Err(_) => "unknown".into(),
    }
}

fn units(micro: i64) -> f64 {
    micro as f64 / 1e6
}

/// Saturates: an amount beyond nine trillions is as good as no limit.
fn micro(units: f64) -> i64 {
    (units * 1e6).round() as i64
}

#[cfg(test)]
mod tests;
