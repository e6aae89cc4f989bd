//! Time, so that tests can turn it.
//!
//! Waiting is always tokio's (`tokio::time`), which a test can pause; what is written down is milliseconds since 1970. In a
//! test both come from tokio's clock, so that a day passes in a millisecond and the records agree with the timers.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A machine's clock may be set forward by so much at once and is followed; more would end desks' lives at once.
const STEP_MS: i64 = 60_000;

/// Where the time of day comes from.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The machine's. A large step forward is not followed: what has not passed since the machine started ends nobody's life.
    System,
    /// tokio's, counted from `base_ms` at `start`.
    Tokio { base_ms: i64, start: Instant },
}

impl Clock {
    /// A clock that stands still and jumps with tokio's, as of now.
    pub fn tokio() -> Self {
        Self::Tokio { base_ms: system_ms(), start: Instant::now() }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match self {
            Self::System => {
                static STEADY: Steady = Steady::new();
                STEADY.now_ms(system_ms(), uptime_ms())
            }
            Self::Tokio { base_ms, start } => base_ms + i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// The time of day, as far as the time since the machine started bears it out.
struct Steady {
    /// The latest start of the machine that the two have agreed on, in milliseconds since 1970; the least number before they have.
    started_ms: AtomicI64,
}

impl Steady {
    const fn new() -> Self {
        Self { started_ms: AtomicI64::new(i64::MIN) }
    }

    fn now_ms(&self, day_ms: i64, uptime_ms: i64) -> i64 {
        let (started, known) = (day_ms - uptime_ms, self.started_ms.load(Ordering::Relaxed));
        if known == i64::MIN || started.saturating_sub(known) <= STEP_MS {
            self.started_ms.fetch_max(started, Ordering::Relaxed);
            return day_ms;
        }
        static TOLD: std::sync::Once = std::sync::Once::new();
        TOLD.call_once(|| {
            let seconds = (started - known) / 1000;
            tracing::warn!(seconds, "the clock was set forward, which is not followed; if it is right now, restart hotdesk");
        });
        known + uptime_ms
    }
}

/// With the time that the machine slept.
fn uptime_ms() -> i64 {
    let since = clock_gettime(ClockId::Boottime);
    since.tv_sec * 1000 + since.tv_nsec / 1_000_000
}

fn system_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// RFC 3339, in UTC, with milliseconds.
pub fn rfc3339(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::from("unknown"), |t| format!("{t:.3}"))
}

/// Milliseconds since 1970 of an RFC 3339 time.
pub fn from_rfc3339(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|t| t.as_millisecond())
}

/// The milliseconds of a duration, as the records count them.
pub fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Seconds for people: `45 s`, `15 min`, `24 h`, `3 d`.
pub fn spoken(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_to_text_and_back() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(from_rfc3339("1970-01-01T00:00:01.5Z"), Some(1500));
        assert_eq!(from_rfc3339("soon"), None);
        assert_eq!([spoken(45), spoken(900), spoken(86_400), spoken(260_000)], ["45 s", "15 min", "24 h", "3 d"]);
    }

    #[test]
    fn a_clock_that_is_set_forward_is_not_followed_far() {
        let clock = Steady::new();
        let day = 24 * 3600 * 1000;
        assert_eq!(clock.now_ms(day, 1000), day);
        assert_eq!(clock.now_ms(day + 50_000, 2000), day + 50_000, "a little is followed");
        assert_eq!(clock.now_ms(9 * day, 3000), day + 51_000, "eight days did not pass in a second");
        assert_eq!(clock.now_ms(9 * day + 5000, 8000), day + 56_000, "but time goes on");
        assert_eq!(clock.now_ms(day, 9000), day, "a step back is followed");
        assert_eq!(clock.now_ms(day + 58_000, 10_000), day + 58_000, "and the way back from it");
        assert_eq!(clock.now_ms(2 * day + 48_000, day), 2 * day + 48_000, "a day that passed has passed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_day_passes_at_once() {
        let clock = Clock::tokio();
        let before = clock.now_ms();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert!(clock.now_ms() - before >= 86_400_000);
    }
}
