//! Time, so that tests can turn it.
//!
//! Waiting is always tokio's (`tokio::time`), which a test can pause; what is written down is milliseconds since 1970. In a
//! test both come from tokio's clock, so that a day passes in a millisecond and the records agree with the timers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Where the time of day comes from.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The machine's.
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
            Self::System => system_ms(),
            Self::Tokio { base_ms, start } => base_ms + i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX),
        }
    }
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

    #[tokio::test(start_paused = true)]
    async fn a_day_passes_at_once() {
        let clock = Clock::tokio();
        let before = clock.now_ms();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert!(clock.now_ms() - before >= 86_400_000);
    }
}
