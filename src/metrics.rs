//! What this process has done, counted since its start: totals that only grow, so that whoever reads them twice has a rate.
//!
//! Counting is one relaxed addition a batch. Read by `server/status` and the exporter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a histogram: the n-th holds what took less than 2^n microseconds.
const BUCKETS: usize = 32;

/// A total.
#[derive(Debug, Default)]
pub struct Total(AtomicU64);

impl Total {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long something took, in powers of two of a microsecond.
#[derive(Debug)]
pub struct Durations {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

impl Durations {
    const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], micros: AtomicU64::new(0) }
    }

    /// Counts one.
    pub fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        let bits = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bits.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How long all took together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// Counts by bucket: the n-th took less than 2^n microseconds, and at least half of that.
    pub fn get(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        while counts.last() == Some(&0) {
            counts.pop();
        }
        counts
    }
}

/// Turns by how they ended.
#[derive(Debug)]
pub struct Turns {
    /// The model had said all.
    pub completed: Total,
    /// The model's output limit was reached.
    pub max_tokens: Total,
    /// It failed.
    pub failed: Total,
    /// Somebody ended it.
    pub aborted: Total,
    /// The provider's filter stopped it.
    pub blocked: Total,
}

/// Approvals by how they were decided.
#[derive(Debug)]
pub struct Approvals {
    /// A client allowed the call.
    pub allowed: Total,
    /// A client rejected it.
    pub rejected: Total,
    /// Nobody answered in time.
    pub timed_out: Total,
    /// Nobody was there who could answer.
    pub unavailable: Total,
}

/// All counts of the process.
#[derive(Debug)]
pub struct Metrics {
    /// Turns that have ended.
    pub turns: Total,
    /// How they ended.
    pub turns_by_end: Turns,
    /// How long they took.
    pub turn_times: Durations,
    /// From a call of a model to the first of its answer.
    pub first_tokens: Durations,
    /// Tokens that models have read, cached ones included.
    pub tokens_in: Total,
    /// Tokens that models have written.
    pub tokens_out: Total,
    /// Calls of models that were made again.
    pub retries: Total,
    /// Approvals.
    pub approvals: Approvals,
    /// Starts of MCP servers that follow a death.
    pub mcp_restarts: Total,
    /// Lines of the daemon's log that found no room.
    pub log_lines_dropped: Total,
    /// Events that were appended to logs.
    pub events: Total,
    /// Tokens that models have read and written.
    pub tokens: Total,
    /// Frames of text that were queued for connections.
    pub deltas: Total,
    /// Bytes that were written to connections.
    pub bytes_out: Total,
    /// Connections that were let in.
    pub connections: Total,
    /// Connections that were refused.
    pub refused: Total,
    /// Connections that were cut because they took no byte.
    pub cut: Total,
    /// Syncs of logs, by how long they took.
    pub syncs: Durations,
}

/// The counts of this process.
pub static METRICS: Metrics = Metrics {
    turns: Total::new(),
    turns_by_end: Turns {
        completed: Total::new(),
        max_tokens: Total::new(),
        failed: Total::new(),
        aborted: Total::new(),
        blocked: Total::new(),
    },
    turn_times: Durations::new(),
    first_tokens: Durations::new(),
    tokens_in: Total::new(),
    tokens_out: Total::new(),
    retries: Total::new(),
    approvals: Approvals {
        allowed: Total::new(),
        rejected: Total::new(),
        timed_out: Total::new(),
        unavailable: Total::new(),
    },
    mcp_restarts: Total::new(),
    log_lines_dropped: Total::new(),
    events: Total::new(),
    tokens: Total::new(),
    deltas: Total::new(),
    bytes_out: Total::new(),
    connections: Total::new(),
    refused: Total::new(),
    cut: Total::new(),
    syncs: Durations::new(),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_their_power_of_two() {
        let durations = Durations::new();
        for micros in [0, 1, 2, 3, 1000] {
            durations.add(Duration::from_micros(micros));
        }
        assert_eq!(durations.get(), [1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(durations.sum(), Duration::from_micros(1006));
        durations.add(Duration::from_hours(24));
        assert_eq!(durations.get().len(), BUCKETS);
    }
}
