//! `dshd status`: says how the daemon is.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::reach;
use super::top::moves;
use super::{Failure, Globals, exit, human, output, refusal};
use crate::config::{Limits, Loaded};
use crate::protocol::{ConnectionState, Empty, Method, Phase, StatusResult};

/// Arguments of `dshd status`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd status
  dshd status --wait=10s
  dshd status --json | jq .phase")]
pub struct StatusArgs {
    /// Wait until it is ready, at most so long (30s)
    #[arg(long, short, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "30s",
          value_parser = crate::config::duration::parse)]
    pub wait: Option<Duration>,
}

/// From so much of a bound on it is told.
const NEAR_PERCENT: u64 = 80;

/// How often to look while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    status: &'a StatusResult,
}

pub(super) async fn run(args: StatusArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let deadline = Instant::now() + args.wait.unwrap_or_default();
    let status = loop {
        let asked = ask(globals, &loaded).await;
        let is_ready = asked.as_ref().is_ok_and(|status| status.phase == Phase::Ready);
        if is_ready || args.wait.is_none() || Instant::now() >= deadline {
            break asked?;
        }
        sleep_until(deadline.min(Instant::now() + LOOK_EVERY)).await;
    };
    if globals.args.json {
        output::print_json(&Document { schema: "dshd.status/1", status: &status })?;
    } else if !globals.args.quiet {
        output::print(&text(&status, globals))?;
    }
    let is_well = status.phase == Phase::Ready && status.storage_failure.is_none();
    Ok(if is_well { exit::OK } else { exit::REFUSED })
}

async fn ask(globals: &Globals, loaded: &Loaded) -> Result<StatusResult, Failure> {
    let reached = reach::viewer(globals, loaded).await.map_err(|failure| {
        let code = if failure.kind == refusal::NO_DAEMON { exit::NO_DAEMON } else { failure.code };
        Failure { code, ..failure }
    })?;
    reached.call(Method::Status, &Empty {}).await
}

fn text(status: &StatusResult, globals: &Globals) -> String {
    let phase = match status.phase {
        Phase::Ready => "ready",
        Phase::Draining => "draining",
    };
    let colour = if status.phase == Phase::Ready && status.storage_failure.is_none() { "32" } else { "33" };
    let mut text = format!(
        "\x1b[{colour}m●\x1b[0m dshd {}  {phase}  pid {}  up {}  {}  {}\n",
        status.version,
        status.pid,
        human::elapsed(status.uptime_ms),
        human::size(status.counts.memory_bytes),
        human::short_path(&status.data_dir, &globals.environment)
    );
    let counts = &status.counts;
    let lines = [
        format!("  listening  {}", status.listeners.join(" · ")),
        format!(
            "  sessions   {} loaded, {} running{}",
            counts.sessions_loaded,
            counts.turns_running,
            waiting(counts.approvals_waiting)
        ),
        format!("  clients    {}{}", counts.connections, slowest(&status.connections)),
    ];
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str(&limits(status, globals.args.verbose > 0));
    if let Some(failure) = &status.storage_failure {
        text.push_str("# health: storage failed, only reading from here on: ");
        text.push_str(failure);
        text.push('\n');
    }
    text
}

/// Bounds that are nearly used up; with `-v` all that can be.
fn limits(status: &StatusResult, all: bool) -> String {
    // A daemon of another version may have others; they are in --json.
    let Ok(limits) = serde_json::from_str::<Limits>(status.limits.get()) else { return String::new() };
    let used = &status.usage;
    let rows = [
        ("in_flight", used.in_flight, limits.in_flight as u64),
        ("in_flight_total", used.in_flight_total, limits.in_flight_total as u64),
        ("outbound_bytes", used.outbound_bytes, limits.outbound_bytes.0),
        ("feed_bytes", used.feed_bytes, limits.feed_bytes.0),
        ("mailbox", used.mailbox, limits.mailbox as u64),
        ("loaded_sessions", used.loaded_sessions, limits.loaded_sessions as u64),
        ("connections", used.connections, limits.connections as u64),
        ("connections_per_uid", used.connections_per_uid, limits.connections_per_uid as u64),
        ("subscriptions", used.subscriptions, limits.subscriptions as u64),
        ("preauth_connections", used.preauth_connections, limits.preauth_connections as u64),
        ("children", used.children, limits.children as u64),
    ];
    let mut text = String::new();
    for (name, used, max) in rows {
        // Memory that is kept for recent events is meant to be full.
        let near = name != "feed_bytes" && used.saturating_mul(100) >= max.saturating_mul(NEAR_PERCENT);
        if all || near {
            let line = if name.ends_with("_bytes") {
                format!("  limits     {name} {} of {}", human::size(used), human::size(max))
            } else {
                format!("  limits     {name} {used} of {max}")
            };
            text.push_str(&line);
            text.push_str(if near { "  near its end\n" } else { "\n" });
        }
    }
    text
}

/// How many calls wait for somebody's word, if any do.
fn waiting(approvals: usize) -> String {
    if approvals == 0 { String::new() } else { format!(", {approvals} waiting for approval") }
}

/// Who is behind, if anybody is.
fn slowest(connections: &[ConnectionState]) -> String {
    match connections.iter().max_by_key(|connection| (connection.lag_events, connection.lag_bytes)) {
        Some(slow) if slow.lag_events > 0 => format!(
            " · slowest: {}@{} {} events, {} behind, {}",
            slow.client.as_deref().unwrap_or("a client"),
            slow.peer,
            human::count(slow.lag_events),
            human::size(slow.lag_bytes),
            moves(slow)
        ),
        Some(_) | None => String::new(),
    }
}
