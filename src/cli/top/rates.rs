//! What happened between two looks, a second.

use std::time::Duration;

use serde::Serialize;

use crate::protocol::{StatusResult, Totals};

/// Rates a second, and the 99th percentile of syncs in the meantime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rates {
    pub(super) turns: f64,
    pub(super) events: f64,
    pub(super) deltas: f64,
    pub(super) tokens: f64,
    pub(super) bytes_out: f64,
    /// No sync took longer but one of a hundred; none: there was none.
    pub(super) sync_p99_micros: Option<u64>,
}

impl Rates {
    /// Without a look before there are none.
    pub(super) fn between(before: Option<&StatusResult>, now: &StatusResult, planned: Duration) -> Self {
        let Some(before) = before.filter(|before| before.pid == now.pid) else { return Self::default() };
        // The daemon's own clock says how long it was.
        let passed = Duration::from_millis(now.uptime_ms.saturating_sub(before.uptime_ms));
        let seconds = if passed.is_zero() { planned } else { passed }.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "shown to people")]
        let rate =
            |of: fn(&Totals) -> u64| of(&now.totals).saturating_sub(of(&before.totals)) as f64 / seconds;
        Self {
            turns: rate(|totals| totals.turns),
            events: rate(|totals| totals.events),
            deltas: rate(|totals| totals.deltas),
            tokens: rate(|totals| totals.tokens),
            bytes_out: rate(|totals| totals.bytes_out),
            sync_p99_micros: p99(&before.totals.syncs, &now.totals.syncs),
        }
    }
}

/// The upper end of the bucket in which the 99th percentile lies.
fn p99(before: &[u64], now: &[u64]) -> Option<u64> {
    let counts: Vec<u64> = now
        .iter()
        .enumerate()
        .map(|(at, count)| count.saturating_sub(before.get(at).copied().unwrap_or(0)))
        .collect();
    let all: u64 = counts.iter().sum();
    let mut left = (all * 99).div_ceil(100);
    for (bits, count) in counts.iter().enumerate() {
        left = left.saturating_sub(*count);
        if left == 0 && all > 0 {
            return 1u64.checked_shl(u32::try_from(bits).unwrap_or(u32::MAX));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_of_what_came_in_the_meantime() {
        assert_eq!(p99(&[], &[]), None);
        assert_eq!(p99(&[5, 5], &[5, 5]), None);
        assert_eq!(p99(&[0, 0, 1000], &[0, 0, 1000, 0, 1]), Some(16));
        assert_eq!(p99(&[], &[0, 0, 990, 0, 0, 10]), Some(4));
        assert_eq!(p99(&[], &[0, 0, 980, 0, 0, 20]), Some(32));
    }
}
