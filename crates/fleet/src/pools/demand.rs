//! How many desks a pool should keep ready.
//!
//! While one desk is made, demand takes `rate × fill time` others; twice that many are kept, because claims come in bursts:
//!
//! `target = min + ⌈ 2 · rate · fill time ⌉`, at most `max`.
//!
//! `rate` is the number of claims (and misses) per second, each counting less with age (by half in 42 s); `fill time` is the moving average of the last creates.
//! The target rises at once and falls by one desk per cool-down, so that a pause between two bursts does not empty the pool.

use std::time::Duration;
use tokio::time::Instant;

/// The age at which a claim counts a third (1/e).
const MEMORY: f64 = 60.0;
/// How much the last create counts in the average.
const NEWEST: f64 = 0.3;
const BURST: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Demand {
    rate: f64,
    at: Instant,
    fill_s: f64,
    target: u32,
    lowered: Instant,
}

impl Demand {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { rate: 0.0, at: now, fill_s: 1.0, target: 0, lowered: now }
    }

    /// Somebody wanted a desk.
    pub(super) fn wanted(&mut self) {
        self.rate = self.rate_now() + 1.0 / MEMORY;
        self.at = Instant::now();
    }

    /// A desk was made in so long.
    pub(super) fn filled(&mut self, took: Duration) {
        self.fill_s += NEWEST * (took.as_secs_f64() - self.fill_s);
    }

    fn rate_now(&self) -> f64 {
        self.rate * (-self.at.elapsed().as_secs_f64() / MEMORY).exp()
    }

    /// The target now, between the bounds.
    pub(super) fn target(&mut self, min: u32, max: u32, cool_down: Duration) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let more = (BURST * self.rate_now() * self.fill_s - 0.01).ceil().clamp(0.0, 1e6) as u32;
        let wanted = min.saturating_add(more).min(max);
        if wanted >= self.target || self.target > max {
            self.target = wanted.max(self.target.min(max));
            self.lowered = Instant::now();
        } else if self.lowered.elapsed() >= cool_down {
            self.target -= 1;
            self.lowered = Instant::now();
        }
        self.target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOL: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn follows_demand_up_at_once_and_down_slowly() {
        let mut demand = Demand::new();
        assert_eq!(demand.target(2, 10, COOL), 2);
        demand.filled(Duration::from_secs(5));
        demand.filled(Duration::from_secs(5));
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            demand.wanted();
        }
        let busy = demand.target(2, 10, COOL);
        assert!(busy > 4, "{busy}");
        assert_eq!(demand.target(2, 3, COOL), 3, "never beyond max");
        demand.target(2, 10, COOL);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let soon = demand.target(2, 10, COOL);
        assert!(soon >= 3, "{soon}");
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(61)).await;
            demand.target(2, 10, COOL);
        }
        assert_eq!(demand.target(2, 10, COOL), 2);
    }
}
