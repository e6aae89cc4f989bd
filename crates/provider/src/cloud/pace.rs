//! A pace for requests: so many at once, then one after another.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Lets requests through at a pace. Waiting is in turn: whoever asks first goes first.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    /// How far ahead of the pace a burst may run.
    ahead: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// `per_second` in the long run, `burst` at once.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let every = Duration::from_secs_f64(1.0 / per_second.max(0.001));
        Self { every, ahead: every * burst.saturating_sub(1), next: Mutex::new(None) }
    }

    /// Waits for its turn.
    pub async fn turn(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + self.every);
            at.checked_sub(self.ahead).unwrap_or(now)
        };
        tokio::time::sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_through_and_the_rest_in_turn() {
        let pace = Pace::new(2.0, 3);
        let begun = Instant::now();
        for _ in 0..3 {
            pace.turn().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..4 {
            pace.turn().await;
        }
        assert_eq!(begun.elapsed().as_millis(), 2000);
    }
}
