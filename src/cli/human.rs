//! Numbers as people read them: how long, how much, how long ago, where.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config::Environment;

/// A duration in whole milliseconds.
pub(super) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A moment given in epoch milliseconds as ISO 8601, UTC, with milliseconds.
pub(super) fn iso(epoch_ms: u64) -> String {
    let moment = i64::try_from(epoch_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    moment.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A moment given in epoch milliseconds on the user's clock.
pub(super) fn local(epoch_ms: u64) -> String {
    let moment = i64::try_from(epoch_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let moment = moment.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::system());
    moment.strftime("%Y-%m-%d %H:%M:%S.%3f").to_string()
}

/// A path with the home written as `~`.
pub(super) fn short_path(path: &str, environment: &Environment) -> String {
    match environment.get("HOME").and_then(|home| path.strip_prefix(home)) {
        Some("") => "~".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        Some(_) | None => path.to_owned(),
    }
}

/// A duration: `12 ms`, `3.1 s`, `2 min 5 s`, `2 h 14 min`, `3 d 2 h`.
pub(super) fn elapsed(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..=59 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// How long ago something was, roughly: `now`, `3 min`, `1 h`, `5 d`.
pub(super) fn ago(ms: u64) -> String {
    let minutes = ms / 60_000;
    match minutes {
        0 => "now".to_owned(),
        1..=59 => format!("{minutes} min"),
        60..=1439 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1440),
    }
}

/// A count with its thousands apart: `3,120`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size: `512 B`, `14 MiB`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes / 1_048_576),
        _ => format!("{} GiB", bytes / 1_073_741_824),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [
            (12, "12 ms"),
            (3_100, "3.1 s"),
            (59_999, "59.9 s"),
            (125_000, "2 min 5 s"),
            (8_040_000, "2 h 14 min"),
            (266_400_000, "3 d 2 h"),
        ];
        for (ms, expected) in cases {
            assert_eq!(elapsed(ms), expected);
        }
    }

    #[test]
    fn ages_are_rough() {
        for (ms, expected) in [(59_999, "now"), (180_000, "3 min"), (3_600_000, "1 h"), (432_000_000, "5 d")]
        {
            assert_eq!(ago(ms), expected);
        }
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        for (n, expected) in [(0, "0"), (412, "412"), (3_120, "3,120"), (1_234_567, "1,234,567")] {
            assert_eq!(count(n), expected);
        }
    }

    #[test]
    fn moments_are_iso_8601_with_milliseconds() {
        assert_eq!(iso(1_796_078_478_976), "2026-11-30T22:41:18.976Z");
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn the_home_is_a_tilde() {
        let environment = Environment::of([("HOME", "/home/me")]);
        assert_eq!(short_path("/home/me/src", &environment), "~/src");
        assert_eq!(short_path("/home/me", &environment), "~");
        assert_eq!(short_path("/home/mela", &environment), "/home/mela");
    }

    #[test]
    fn sizes_are_whole_units() {
        for (bytes, expected) in [(512, "512 B"), (2048, "2 KiB"), (14_680_064, "14 MiB")] {
            assert_eq!(size(bytes), expected);
        }
    }
}
