//! How often a viewer gets an update: as often as is useful, as its line bears, and never so often
//! that it costs more than half a core.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest time between two updates: 40 a second, so that a busy machine still shows the 25 that look smooth.
const FRAME: Duration = Duration::from_millis(25);

/// After a look that found nothing to send, such as the pointer's moves that the viewer made itself.
const NOTHING: Duration = Duration::from_millis(8);

/// Updates on their way to a viewer that is far away.
const MOST_ON_THE_WAY: usize = 8;

/// Whoever lets a fence wait this long is gone.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Pace {
    ready_at: Instant,
    next_fence: u64,
    /// Fences that were not answered yet, the oldest first.
    on_the_way: VecDeque<(u64, Instant)>,
    /// The quickest answer so far: how far away the viewer is.
    distance: Option<Duration>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { ready_at: Instant::now(), next_fence: 1, on_the_way: VecDeque::new(), distance: None }
    }

    /// When the next update may begin.
    pub(super) fn ready_at(&self) -> Instant {
        self.ready_at
    }

    /// An update was sent that had begun at `start` and took `cost` of a core.
    pub(super) fn sent(&mut self, start: Instant, cost: Duration) {
        // As much rest as work keeps it at half a core.
        self.ready_at = start + FRAME.max(cost * 2);
    }

    pub(super) fn found_nothing(&mut self) {
        self.ready_at = Instant::now() + NOTHING;
    }

    /// The number of a fence that is sent now.
    pub(super) fn fence(&mut self) -> u64 {
        let number = self.next_fence;
        self.next_fence += 1;
        self.on_the_way.push_back((number, Instant::now()));
        number
    }

    /// A viewer has read everything before this fence.
    pub(super) fn answered(&mut self, number: u64) {
        while let Some((sent, at)) = self.on_the_way.front().copied().filter(|(sent, _)| *sent <= number) {
            self.on_the_way.pop_front();
            if sent == number {
                let took = at.elapsed();
                self.distance = Some(self.distance.map_or(took, |best| best.min(took)));
            }
        }
    }

    /// Whether a viewer that gets updates unasked is ready for one more. What piles up in front of
    /// a slow line is never older than one frame more than the way itself takes.
    pub(super) fn has_room(&self) -> bool {
        let way = self.distance.unwrap_or_default().as_millis() / FRAME.as_millis();
        self.on_the_way.len() < (1 + way as usize).min(MOST_ON_THE_WAY)
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.on_the_way.is_empty()
    }

    /// Whether a fence was never answered.
    pub(super) fn is_lost(&self) -> bool {
        self.on_the_way.front().is_some_and(|(_, at)| at.elapsed() > ANSWER_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn costly_updates_come_less_often() {
        let mut pace = Pace::new();
        let start = Instant::now();
        pace.sent(start, Duration::from_millis(5));
        assert_eq!(pace.ready_at(), start + FRAME);
        pace.sent(start, Duration::from_millis(50));
        assert_eq!(pace.ready_at(), start + Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_far_viewer_may_have_more_on_the_way_and_a_slow_one_not() {
        let mut pace = Pace::new();
        let first = pace.fence();
        assert!(!pace.has_room(), "one at a time as long as nothing is known");
        advance(FRAME * 3).await;
        pace.answered(first);
        for n in 0..4 {
            assert!(pace.has_room(), "{n}");
            pace.fence();
        }
        assert!(!pace.has_room());
        // Late answers do not make it farther away.
        advance(Duration::from_secs(5)).await;
        pace.answered(u64::MAX);
        assert!(!pace.is_waiting());
        for _ in 0..4 {
            pace.fence();
        }
        assert!(!pace.has_room());
        assert!(!pace.is_lost());
        advance(ANSWER_LIMIT * 2).await;
        assert!(pace.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn invented_answers_do_no_harm() {
        let mut pace = Pace::new();
        pace.answered(77);
        pace.fence();
        pace.answered(0);
        assert!(pace.is_waiting());
    }
}
