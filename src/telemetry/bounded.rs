//! A bound on what a day's log file takes: what is beyond it is not written, and that is said once a day.

use std::io::{self, Write};

use crate::clock::now_ms;
use crate::metrics::METRICS;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// Writes to the file of the day until that has its share.
pub(super) struct Bounded<W> {
    inner: W,
    bytes_max: u64,
    /// The day (of UTC, as the file's name), and what its file holds.
    day: u64,
    bytes: u64,
    said: bool,
}

impl<W: Write> Bounded<W> {
    /// `bytes`: what the file of today holds already.
    pub(super) fn new(inner: W, bytes_max: u64, bytes: u64) -> Self {
        Self { inner, bytes_max, day: today(), bytes, said: false }
    }

    fn write_on(&mut self, day: u64, line: &[u8]) -> io::Result<usize> {
        if day != self.day {
            (self.day, self.bytes, self.said) = (day, 0, false);
        }
        if self.bytes.saturating_add(line.len() as u64) <= self.bytes_max {
            let written = self.inner.write(line)?;
            self.bytes += written as u64;
            return Ok(written);
        }
        METRICS.log_lines_dropped.add(1);
        if !std::mem::replace(&mut self.said, true) {
            // Past its share by this line, so that its end explains itself.
            self.inner
                .write_all(b"this day's log has reached log.file_bytes; what comes is not written\n")?;
        }
        Ok(line.len())
    }
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_on(today(), line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn today() -> u64 {
    now_ms() / DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_share_and_says_once_that_it_is_used_up() {
        let mut file = Bounded { day: 1, ..Bounded::new(Vec::new(), 10, 4) };
        for line in [b"12345\n", b"67890\n", b"abcde\n"] {
            assert_eq!(file.write_on(1, line).unwrap(), line.len());
        }
        let text = String::from_utf8(file.inner.clone()).unwrap();
        assert!(text.starts_with("12345\nthis day's log has reached log.file_bytes"), "{text}");
        assert_eq!(text.lines().count(), 2);
        file.write_on(2, b"the next day\n").unwrap();
        file.write_on(2, b"n\n").unwrap();
        assert_eq!(String::from_utf8(file.inner).unwrap().lines().count(), 4);
    }
}
