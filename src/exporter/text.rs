//! The metrics as text, in the format that Prometheus reads.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::handler::shared::Shared;
use crate::metrics::{Durations, METRICS};
use crate::protocol::Phase;
use crate::session::Status;
use crate::telemetry;

/// Buckets of a histogram: from 2^6 microseconds (64 µs) to 2^30 (18 min), each twice the one before; then any.
const FIRST_BUCKET: usize = 6;
const LAST_BUCKET: usize = 30;

/// How the process is right now.
#[derive(Debug)]
struct Now {
    ready: bool,
    connections: usize,
    in_flight: usize,
    sessions_loaded: usize,
    turns_running: usize,
    children: usize,
    lag_events: u64,
    lag_bytes: u64,
    storage_failed: bool,
    mcp_servers: usize,
    uptime_seconds: f64,
}

/// All metrics.
///
/// # Errors
/// None that can happen: writing to a text never fails.
pub(super) fn of(shared: &Shared) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("dshd");
    registry.register_collector(Box::new(Now::of(shared)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Now {
    fn of(shared: &Shared) -> Self {
        let sessions = shared.runtime.loaded();
        let connections = shared.connections();
        let most =
            |of: fn(&crate::protocol::ConnectionState) -> u64| connections.iter().map(of).max().unwrap_or(0);
        Self {
            ready: shared.phase.borrow().wire() == Phase::Ready,
            connections: connections.len(),
            in_flight: shared.in_flight_count(),
            turns_running: sessions.iter().filter(|session| session.status == Status::Running).count(),
            sessions_loaded: sessions.len(),
            children: shared.runtime.children_running(),
            lag_events: most(|one| one.lag_events),
            lag_bytes: most(|one| one.lag_bytes),
            storage_failed: shared.runtime.storage_failure().is_some(),
            mcp_servers: shared.runtime.mcp_servers().len(),
            uptime_seconds: shared.uptime().as_secs_f64(),
        }
    }

    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let gauges: [(&str, &str, u64); 9] = [
            ("ready", "Whether it takes prompts (it is not stopping)", u64::from(self.ready)),
            ("connections", "Connections now", self.connections as u64),
            ("requests_in_flight", "Requests in flight on all connections", self.in_flight as u64),
            ("sessions_loaded", "Sessions in memory", self.sessions_loaded as u64),
            ("turns_running", "Turns that run", self.turns_running as u64),
            ("children", "Child processes of all tools", self.children as u64),
            ("queue_lag_events", "Events that the connection furthest behind was not sent", self.lag_events),
            ("mcp_servers", "MCP servers that are configured or run", self.mcp_servers as u64),
            (
                "storage_failed",
                "Whether storage has failed and only reads are served",
                u64::from(self.storage_failed),
            ),
        ];
        for (name, help, value) in gauges {
            gauge(encoder, (name, help), None, value)?;
        }
        let lag = ("queue_lag", "Bytes that wait to be written to the connection furthest behind");
        gauge(encoder, lag, Some(&Unit::Bytes), self.lag_bytes)?;
        let metric = encoder.encode_descriptor(
            "uptime",
            "How long it has served",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        ConstGauge::new(self.uptime_seconds).encode(metric)
    }
}

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        self.gauges(encoder)?;
        counters(encoder)?;
        histogram(
            encoder,
            "first_token",
            "From a call of a model to the first of its answer",
            &METRICS.first_tokens,
        )?;
        histogram(encoder, "turn", "How long turns took", &METRICS.turn_times)?;
        histogram(encoder, "fsync", "How long syncs of logs took", &METRICS.syncs)
    }
}

fn counters(encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let (ends, approvals) = (&METRICS.turns_by_end, &METRICS.approvals);
    let outcomes = [
        ("completed", ends.completed.get()),
        ("max_tokens", ends.max_tokens.get()),
        ("failed", ends.failed.get()),
        ("aborted", ends.aborted.get()),
        ("blocked", ends.blocked.get()),
    ];
    family(encoder, ("turns", "Turns that have ended"), "outcome", &outcomes)?;
    let directions = [("in", METRICS.tokens_in.get()), ("out", METRICS.tokens_out.get())];
    family(encoder, ("tokens", "Tokens that models have read and written"), "direction", &directions)?;
    let decided = [
        ("allowed", approvals.allowed.get()),
        ("rejected", approvals.rejected.get()),
        ("timed_out", approvals.timed_out.get()),
        ("unavailable", approvals.unavailable.get()),
    ];
    family(encoder, ("approvals", "Approvals by how they were decided"), "outcome", &decided)?;
    let let_in = [
        ("accepted", METRICS.connections.get()),
        ("refused", METRICS.refused.get()),
        ("cut", METRICS.cut.get()),
    ];
    let help = "Connections that were let in, that were refused, and that were cut since they took no byte";
    family(encoder, ("connections_seen", help), "outcome", &let_in)?;
    let dropped = METRICS.log_lines_dropped.get() + telemetry::file_lines_dropped();
    let counters = [
        ("events", "Events that were appended to logs", METRICS.events.get()),
        ("provider_retries", "Calls of models that were made again", METRICS.retries.get()),
        ("mcp_restarts", "Starts of MCP servers that follow a death", METRICS.mcp_restarts.get()),
        ("log_lines_dropped", "Lines of the daemon's log that found no room", dropped),
        ("written_bytes", "Bytes that were written to connections", METRICS.bytes_out.get()),
    ];
    for (name, help, value) in counters {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)?;
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    unit: Option<&Unit>,
    value: u64,
) -> Result<(), Error> {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    label: &str,
    values: &[(&str, u64)],
) -> Result<(), Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in values {
        ConstCounter::new(*count).encode(metric.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    durations: &Durations,
) -> Result<(), Error> {
    let counts = durations.get();
    let buckets = buckets(&counts);
    let all = counts.iter().sum();
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(durations.sum().as_secs_f64(), all, &buckets, None)
}

/// Upper bounds in seconds, and how many are below each and not below the one before.
fn buckets(counts: &[u64]) -> Vec<(f64, u64)> {
    let mut buckets = Vec::new();
    let mut count = 0;
    for at in 0..=LAST_BUCKET {
        count += counts.get(at).copied().unwrap_or(0);
        if at >= FIRST_BUCKET {
            let micros = 1_u64 << at;
            buckets
                .push((std::time::Duration::from_micros(micros).as_secs_f64(), std::mem::take(&mut count)));
        }
    }
    buckets.push((f64::INFINITY, counts.iter().skip(LAST_BUCKET + 1).sum()));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_one_bucket() {
        let counts: Vec<u64> = (0..32).map(|at| at + 1).collect();
        let buckets = buckets(&counts);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), counts.iter().sum::<u64>());
        assert_eq!(buckets[0], (64e-6, (1..=7).sum()));
        assert_eq!(buckets[1], (128e-6, 8));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 32)));
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
