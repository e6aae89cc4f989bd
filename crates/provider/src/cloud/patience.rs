//! Asking again: how often, and with which pauses.

use super::Fault;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;
use tokio::time::Instant;

/// How long a vendor may keep us waiting by its own word. Longer, and the fleet has better things to do with its turn.
const LONGEST_WISH: Duration = Duration::from_secs(60);

/// How a vendor that stumbles is asked again.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Pauses, so one question more.
    pub times: usize,
    pub first: Duration,
    pub longest: Duration,
    /// No new try is begun after this.
    pub total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            times: 6,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(10),
            // The fleet gives a step minutes and asks again by itself.
            total: Duration::from_secs(90),
        }
    }
}

impl Patience {
    /// The first of some tries begins now.
    pub fn begin(self) -> Tries {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .with_max_times(self.times)
            .with_jitter()
            .build();
        Tries { end: Instant::now() + self.total, pauses }
    }

    /// Asks until there is an answer, a refusal for good, or no patience left.
    pub async fn ask<T, F>(self, mut question: impl FnMut() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut tries = self.begin();
        loop {
            match question().await {
                Err(fault) if fault.passes() => tries.pause(fault).await?,
                other => return other,
            }
        }
    }
}

/// Tries that are under way.
pub struct Tries {
    end: Instant,
    pauses: ExponentialBackoff,
}

impl Tries {
    /// Waits for the next try after a fault; returns the fault if there is none.
    pub async fn pause(&mut self, fault: Fault) -> Result<(), Fault> {
        let Some(pause) = self.pauses.next() else { return Err(fault) };
        // The vendor's own word is the least, ours is on top: all that were told the same time would come back at once.
        let pause = fault.retry_after.map_or(pause, |wish| wish.min(LONGEST_WISH) + pause / 4);
        if Instant::now() + pause > self.end {
            return Err(fault);
        }
        tracing::debug!(provider = fault.provider, %fault, ?pause, "asking again");
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::Kind;

    async fn asked(patience: Patience, fault: Fault, good_at: usize) -> (usize, Duration, Result<usize, Fault>) {
        let begun = Instant::now();
        let mut count = 0;
        let result = patience
            .ask(|| {
                count += 1;
                std::future::ready(if count >= good_at { Ok(count) } else { Err(fault.clone()) })
            })
            .await;
        (count, begun.elapsed(), result)
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_asked_again_and_what_does_not_is_not() {
        let of = |kind| Fault::new("e2b", kind, "why");
        assert_eq!(asked(Patience::default(), of(Kind::Fault), 3).await.2, Ok(3));
        for kind in [Kind::Quota, Kind::Auth, Kind::NotFound, Kind::Conflict, Kind::Refused] {
            assert_eq!(asked(Patience::default(), of(kind), 3).await.0, 1, "{kind:?}");
        }
        assert_eq!(asked(Patience::default(), of(Kind::Slow), 100).await.0, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn the_vendor_says_how_long() {
        let mut fault = Fault::new("e2b", Kind::Slow, "too many");
        fault.retry_after = Some(Duration::from_secs(7));
        let (_, took, _) = asked(Patience::default(), fault.clone(), 2).await;
        assert!((7..9).contains(&took.as_secs()), "{took:?}");
        fault.retry_after = Some(Duration::from_secs(3600));
        let (count, took, _) = asked(Patience { total: Duration::from_secs(50), ..Patience::default() }, fault, 2).await;
        assert_eq!((count, took), (1, Duration::ZERO), "an hour is not waited");
    }
}
