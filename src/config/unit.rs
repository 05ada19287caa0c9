//! Units in configuration: sizes as `"16MiB"`, durations as `"30s"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A size in bytes, written `"512B"`, `"64KiB"`, `"16MiB"` or `"1GiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl ByteSize {
    /// The size as a count of bytes in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = SIZE_UNITS
            .iter()
            .find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size))
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a size like \"16MiB\" (B, KiB, MiB, GiB), got \"{text}\"");
        let (digits, size) = SIZE_UNITS
            .iter()
            .find_map(|(unit, size)| text.strip_suffix(unit).map(|digits| (digits, *size)))
            .ok_or_else(expected)?;
        let count: u64 = digits.trim_end().parse().map_err(|_| expected())?;
        count.checked_mul(size).map(Self).ok_or_else(expected)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Durations as `"30s"`: units ms, s, m, h, d.
pub mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

    /// Reads `"30s"`.
    ///
    /// # Errors
    /// A sentence that names the text and the units.
    pub fn parse(text: &str) -> Result<Duration, String> {
        let expected = || format!("expected a duration like \"30s\" (ms, s, m, h, d), got \"{text}\"");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let (_, millis) =
            UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]).ok_or_else(expected)?;
        let count: u64 = digits.trim_end().parse().map_err(|_| expected())?;
        count.checked_mul(*millis).map(Duration::from_millis).ok_or_else(expected)
    }

    /// Writes the largest unit that is exact.
    pub fn format(duration: Duration) -> String {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (unit, size) = UNITS
            .iter()
            .rev()
            .find(|(_, size)| millis >= *size && millis.is_multiple_of(*size))
            .unwrap_or(&("ms", 1));
        format!("{}{unit}", millis / size)
    }

    /// For `#[serde(with = "duration")]`.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format(*duration))
    }

    /// For `#[serde(with = "duration")]`.
    ///
    /// # Errors
    /// When the text is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
