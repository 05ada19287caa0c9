//! When a failed call is made again, and after which pause.

use std::time::Duration;

use super::{CallError, Retry};
use crate::event::FailureCode;

/// Longest pause of our own choice.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Part of the longest pause that is waited at least: a server that has just failed is not asked again at once.
const PAUSE_PART_MIN: f64 = 0.1;
/// Longest pause that a provider may ask for.
const AFTER_MAX: Duration = Duration::from_mins(1);

/// Whether a call that failed so may be made again.
pub(super) fn retry_of(code: FailureCode) -> Retry {
    match code {
        FailureCode::RateLimit
        | FailureCode::Server
        | FailureCode::Timeout
        | FailureCode::Transport
        | FailureCode::EmptyResponse
        | FailureCode::MalformedResponse => Retry::Backoff,
        FailureCode::Auth
        | FailureCode::Quota
        | FailureCode::ContextWindowExceeded
        | FailureCode::InvalidRequest
        | FailureCode::MissingCredential
        | FailureCode::UnsupportedContent
        | FailureCode::Aborted
        | FailureCode::MaxSteps
        | FailureCode::RepeatedCall
        | FailureCode::Budget
        | FailureCode::StorageFull
        | FailureCode::Unknown
        | FailureCode::Http(_) => Retry::Never,
    }
}

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
    pub fn delay(&self, error: &CallError, retry: u32) -> Option<Duration> {
        if retry == 0 || retry > self.max {
            return None;
        }
        match error.retry {
            Retry::Never => None,
            Retry::After(asked) => Some(asked.min(AFTER_MAX)),
            Retry::Backoff => {
                let part = PAUSE_PART_MIN + (1.0 - PAUSE_PART_MIN) * fraction();
                Some(self.ceiling(retry).mul_f64(part))
            }
        }
    }

    /// The longest pause before a retry.
    fn ceiling(&self, retry: u32) -> Duration {
        let doublings = (retry - 1).min(31);
        self.base.saturating_mul(1 << doublings).min(PAUSE_MAX)
    }
}

/// A random number from 0 to 1. Without the system's randomness all clients would come back at once, but they would.
fn fraction() -> f64 {
    let random = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Failure;

    const POLICY: RetryPolicy = RetryPolicy { max: 5, base: Duration::from_millis(500) };

    fn error(retry: Retry) -> CallError {
        CallError { failure: Failure::new(FailureCode::Server, "x"), retry }
    }

    #[test]
    fn pauses_double_up_to_ten_seconds_and_are_spread_over_the_whole_range() {
        for (retry, ceiling_millis) in [(1, 500), (2, 1000), (3, 2000), (4, 4000), (5, 8000)] {
            let ceiling = Duration::from_millis(ceiling_millis);
            assert_eq!(POLICY.ceiling(retry), ceiling);
            let pauses: Vec<_> =
                (0..100).filter_map(|_| POLICY.delay(&error(Retry::Backoff), retry)).collect();
            assert!(pauses.iter().all(|pause| (ceiling / 11..=ceiling).contains(pause)));
            assert!(pauses.iter().any(|pause| *pause < ceiling / 2), "no jitter");
        }
        assert_eq!(POLICY.ceiling(40), PAUSE_MAX);
    }

    #[test]
    fn a_provider_may_ask_for_a_minute_at_most() {
        let after = |seconds| POLICY.delay(&error(Retry::After(Duration::from_secs(seconds))), 1);
        assert_eq!(after(7), Some(Duration::from_secs(7)));
        assert_eq!(after(3600), Some(Duration::from_mins(1)));
    }

    #[test]
    fn retries_end_and_some_failures_have_none() {
        assert_eq!(POLICY.delay(&error(Retry::Backoff), 6), None);
        assert_eq!(POLICY.delay(&error(Retry::Never), 1), None);
        let none = RetryPolicy { max: 0, base: Duration::ZERO };
        assert_eq!(none.delay(&error(Retry::Backoff), 1), None);
    }
}
