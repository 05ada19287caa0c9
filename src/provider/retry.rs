//! When a failed call is made again, and after which pause.

use std::time::Duration;

use super::CallError;

/// A provider's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries at most.
    pub max: u32,
    /// First pause; doubles up to 10 s, with full jitter.
    pub base: Duration,
}

impl RetryPolicy {
    /// The pause before retry number `retry` (from 1); `None`: do not.
    pub fn delay(&self, _error: &CallError, _retry: u32) -> Option<Duration> {
        unimplemented!()
    }
}
