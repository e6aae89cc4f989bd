//! Words and numbers as people read and write them.

use std::borrow::Cow;
use std::time::Duration;

/// Whether colours are wanted at all; `NO_COLOR` says no.
pub(crate) fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A text that somebody else chose, made harmless for a terminal: what would move its cursor, change its title or
/// turn the direction of writing is shown as an escape instead.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if harmful(letter) { shown.extend(letter.escape_unicode()) } else { shown.push(letter) }
    }
    Cow::Owned(shown)
}

/// The same for many lines.
pub(crate) fn safe_lines(text: &str) -> String {
    text.lines().flat_map(|line| [safe(line), Cow::Borrowed("\n")]).collect()
}

fn harmful(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A span of time in one or two words: `42 s`, `3 min`, `2 h 10 min`, `5 d`.
pub(crate) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3600 => format!("{minutes} min"),
        3600..86400 if minutes == 0 => format!("{hours} h"),
        3600..86400 => format!("{hours} h {minutes} min"),
        _ if hours == 0 => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// `1 desk`, `2 desks`.
pub(crate) fn desks(count: usize) -> String {
    if count == 1 { "1 desk".into() } else { format!("{count} desks") }
}

/// `1.2 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 { format!("{value:.0} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Money, with as many digits as it takes to see it.
pub(crate) fn money(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 0.01 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

/// Seconds from now until a moment (RFC 3339); negative if it is over.
pub(crate) fn until(moment: &str) -> Option<i64> {
    let moment: jiff::Timestamp = moment.parse().ok()?;
    Some(moment.as_second() - jiff::Timestamp::now().as_second())
}

/// How long ago a moment (RFC 3339) was.
pub(crate) fn ago(moment: &str) -> String {
    match until(moment) {
        Some(seconds) => span(seconds.min(0).unsigned_abs()),
        None => "-".into(),
    }
}

/// `15m`, `1h30m`, `2d`, `90` (seconds), `never` (0).
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    if text == "never" {
        return Ok(Duration::ZERO);
    }
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let whole = humantime::parse_duration(text).map_err(|_| "write it like 90s, 15m, 2h, 1d12h or never".to_owned())?;
    match whole.as_secs() {
        0 => Err("it is shorter than a second; never means no limit".into()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// `4G`, `4GiB`, `512M`: mebibytes.
pub(crate) fn parse_mebibytes(text: &str) -> Result<u64, String> {
    let wrong = || "write it like 512M or 4G".to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "m" | "mb" | "mib" => 1.0,
        "g" | "gb" | "gib" => 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let mebibytes = number * factor;
    if (1.0..1e9).contains(&mebibytes) { Ok(mebibytes as u64) } else { Err(wrong()) }
}

/// `NAME=VALUE`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it like name=value".into()),
    }
}

/// `1920x1080`.
pub(crate) fn parse_screen(text: &str) -> Result<hotdesk_api::action::Size, String> {
    let sides = text.split_once(['x', 'X']).and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    match sides {
        Some((width, height)) => Ok(hotdesk_api::action::Size { width, height }),
        None => Err("write it like 1920x1080".into()),
    }
}

/// The known word that was probably meant.
pub(crate) fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(word, other);
    let best = known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    // What clap calls similar too.
    (likeness(best) > 0.7).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_stranger_reaches_the_terminal() {
        assert_eq!(safe("grüße ✓ 日本"), "grüße ✓ 日本");
        assert_eq!(safe("a\x1b]0;evil\x07b"), r"a\u{1b}]0;evil\u{7}b");
        assert_eq!(safe("a\u{9b}31mb\rc\u{202e}d"), r"a\u{9b}31mb\u{d}c\u{202e}d");
        assert_eq!(safe_lines("a\x1b\nb"), "a\\u{1b}\nb\n");
    }

    #[test]
    fn numbers_for_people() {
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (3600, "1 h"),
            (7800, "2 h 10 min"),
            (86400 * 5, "5 d"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!([size(0), size(1023), size(1536), size(5 << 30)], ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([money(0.0), money(0.00123), money(12.345)], ["0", "0.0012", "12.35"]);
    }

    #[test]
    fn numbers_of_people() {
        assert_eq!(parse_span("15m").unwrap().as_secs(), 900);
        assert_eq!(parse_span("1h30m").unwrap().as_secs(), 5400);
        assert_eq!(parse_span("90").unwrap().as_secs(), 90);
        assert_eq!(parse_span("never").unwrap(), Duration::ZERO);
        assert!(parse_span("soon").is_err() && parse_span("5ms").is_err() && parse_span("-1").is_err());
        assert_eq!(parse_mebibytes("4G").unwrap(), 4096);
        assert_eq!(parse_mebibytes("1.5 GiB").unwrap(), 1536);
        assert!(parse_mebibytes("4").is_err() && parse_mebibytes("0M").is_err() && parse_mebibytes("x").is_err());
        assert_eq!(parse_pair("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(parse_pair("=b").is_err() && parse_pair("a").is_err());
        assert_eq!(parse_screen("800x600").unwrap().width, 800);
        assert!(parse_screen("800").is_err());
    }

    #[test]
    fn near_misses() {
        assert_eq!(meant("runing", ["running", "stopped"]), Some("running"));
        assert_eq!(meant("x", ["running", "stopped"]), None);
    }
}
