//! How often one may ask: per key for the fleet and for desks, per address without a good key.
//!
//! A key has 256 bits, so nobody guesses one; wrong keys are counted to keep logs and processor free. A good key is
//! let in whatever else comes from its address, so that nobody can lock others out by sending wrong ones.

use crate::config::{Rate, Rates};
use crate::refusal::{Refusal, Result};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

pub(crate) struct Limits {
    control: Limit<String>,
    desks: Limit<String>,
    keyless: Limit<IpAddr>,
    failures: Limit<IpAddr>,
}

impl Limits {
    pub(crate) fn new(rates: &Rates) -> Self {
        Self {
            control: Limit::new(rates.control),
            desks: Limit::new(rates.desks),
            keyless: Limit::new(rates.keyless),
            failures: Limit::new(rates.failures),
        }
    }

    pub(crate) fn control(&self, key: &str) -> Result<()> {
        self.control.check(&key.to_owned(), "this key asks the fleet too often")
    }

    pub(crate) fn desks(&self, key: &str) -> Result<()> {
        self.desks.check(&key.to_owned(), "this key asks desks too often")
    }

    pub(crate) fn keyless(&self, address: IpAddr) -> Result<()> {
        self.keyless.check(&address, "too many requests without a key come from this address")
    }

    pub(crate) fn failure(&self, address: IpAddr) -> Result<()> {
        self.failures.check(&address, "too many requests with a wrong key, or with none, come from this address")
    }

    /// Forgets who has not asked for a while.
    pub(crate) fn prune(&self) {
        self.control.prune();
        self.desks.prune();
        self.keyless.prune();
        self.failures.prune();
    }
}

struct Limit<K: Hash + Eq + Clone>(Option<(Rate, DefaultKeyedRateLimiter<K>)>);

impl<K: Hash + Eq + Clone> Limit<K> {
    fn new(rate: Rate) -> Self {
        let per_second = NonZeroU32::new(rate.per_second);
        Self(per_second.map(|n| {
            let burst = NonZeroU32::new(rate.burst).unwrap_or(n);
            (rate, RateLimiter::keyed(Quota::per_second(n).allow_burst(burst)))
        }))
    }

    fn check(&self, who: &K, what: &str) -> Result<()> {
        let Some((rate, limiter)) = &self.0 else { return Ok(()) };
        limiter.check_key(who).map_err(|not_yet| {
            let wait = not_yet.wait_time_from(DefaultClock::default().now());
            Refusal::too_many(format!("{what}: {} a second and {} at once are allowed", rate.per_second, rate.burst), wait)
        })
    }

    fn prune(&self) {
        if let Some((_, limiter)) = &self.0 {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit_and_zero_has_none() {
        let limit = Limit::new(Rate { per_second: 1, burst: 3 });
        for _ in 0..3 {
            limit.check(&"a", "x").unwrap();
        }
        let refusal = limit.check(&"a", "x").unwrap_err();
        assert_eq!(refusal.problem.status, 429);
        assert!(refusal.retry_after.is_some());
        limit.check(&"b", "x").unwrap();
        limit.prune();
        assert!(limit.check(&"a", "x").is_err(), "pruning forgives nothing");
        let none = Limit::new(Rate { per_second: 0, burst: 0 });
        for _ in 0..1000 {
            none.check(&"a", "x").unwrap();
        }
    }
}
