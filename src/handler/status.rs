//! `server/status`: how the daemon is.

use std::sync::Arc;

use serde_json::value::to_raw_value;

use super::caller::Caller;
use super::{Started, wire_status};
use crate::mcp::{Health, Report};
use crate::metrics::METRICS;
use crate::protocol::{
    Approvals, ConnectionState, Counts, LastSeq, McpServerState, McpState, SessionState, SessionStatus,
    StatusResult, Totals, TurnsByEnd, Usage, VERSION,
};
use crate::rpc::{ErrorKind, RpcError};
use crate::telemetry;

/// Connections that are told of one by one; the others are counted.
const CONNECTIONS_MAX: usize = 200;

/// Tells it.
///
/// # Errors
/// None that can happen.
pub fn start(caller: &Arc<Caller>) -> Result<Started, RpcError> {
    let shared = &caller.shared;
    let sessions: Vec<SessionState> = shared.runtime.loaded().into_iter().map(state).collect();
    let mut connections = shared.connections();
    let usage = usage(caller, &connections, sessions.len());
    let count = connections.len();
    connections.sort_by_key(|one| std::cmp::Reverse((one.lag_events, one.lag_bytes)));
    connections.truncate(CONNECTIONS_MAX);
    let limits = to_raw_value(&shared.config.borrow().limits)
        .map_err(|error| RpcError::new(ErrorKind::Internal, error.to_string()))?;
    let counts = Counts {
        connections: count,
        in_flight: shared.in_flight_count(),
        sessions_loaded: sessions.len(),
        turns_running: sessions.iter().filter(|session| session.status == SessionStatus::Running).count(),
        approvals_waiting: shared.runtime.loaded_feeds().iter().map(|feed| feed.approvals().len()).sum(),
        memory_bytes: resident_bytes().unwrap_or(0),
    };
    Ok(Started::now(&StatusResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: VERSION,
        phase: shared.phase.borrow().wire(),
        pid: std::process::id(),
        uptime_ms: u64::try_from(shared.uptime().as_millis()).unwrap_or(u64::MAX),
        data_dir: shared.place.data_dir.display().to_string(),
        listeners: shared.place.listeners.clone(),
        counts,
        limits,
        usage,
        totals: totals(),
        storage_failure: shared.runtime.storage_failure(),
        keys: shared.place.keys.clone(),
        connections,
        sessions,
        mcp: shared.runtime.mcp_servers().into_iter().map(mcp_server).collect(),
    }))
}

/// How much of the limits is used.
fn usage(caller: &Caller, connections: &[ConnectionState], sessions: usize) -> Usage {
    let shared = &caller.shared;
    let peers = shared.peers();
    let (mailbox, feed_bytes) = shared.runtime.fullest();
    let most = |of: fn(&ConnectionState) -> u64| connections.iter().map(of).max().unwrap_or(0);
    Usage {
        in_flight: most(|one| one.in_flight as u64),
        in_flight_total: shared.in_flight_count() as u64,
        outbound_bytes: most(|one| one.lag_bytes),
        feed_bytes: feed_bytes as u64,
        mailbox: mailbox as u64,
        loaded_sessions: sessions as u64,
        connections: peers.all as u64,
        connections_per_uid: peers.of_one_user as u64,
        subscriptions: most(|one| one.subscriptions as u64),
        preauth_connections: peers.preauth as u64,
        children: shared.runtime.children_running() as u64,
    }
}

fn totals() -> Totals {
    let (ends, approvals) = (&METRICS.turns_by_end, &METRICS.approvals);
    Totals {
        turns: METRICS.turns.get(),
        turns_by_end: TurnsByEnd {
            completed: ends.completed.get(),
            max_tokens: ends.max_tokens.get(),
            failed: ends.failed.get(),
            aborted: ends.aborted.get(),
            blocked: ends.blocked.get(),
        },
        turn_times: METRICS.turn_times.get(),
        first_tokens: METRICS.first_tokens.get(),
        tokens_in: METRICS.tokens_in.get(),
        tokens_out: METRICS.tokens_out.get(),
        retries: METRICS.retries.get(),
        approvals: Approvals {
            allowed: approvals.allowed.get(),
            rejected: approvals.rejected.get(),
            timed_out: approvals.timed_out.get(),
            unavailable: approvals.unavailable.get(),
        },
        mcp_restarts: METRICS.mcp_restarts.get(),
        log_lines_dropped: METRICS.log_lines_dropped.get() + telemetry::file_lines_dropped(),
        events: METRICS.events.get(),
        tokens: METRICS.tokens.get(),
        deltas: METRICS.deltas.get(),
        bytes_out: METRICS.bytes_out.get(),
        connections: METRICS.connections.get(),
        refused: METRICS.refused.get(),
        cut: METRICS.cut.get(),
        syncs: METRICS.syncs.get(),
    }
}

fn state(session: crate::runtime::SessionState) -> SessionState {
    SessionState {
        session_id: session.id,
        status: wire_status(session.status),
        epoch: session.position.epoch,
        last_seq: LastSeq(session.position.last),
    }
}

fn mcp_server(report: Report) -> McpServerState {
    let (state, reason) = match report.health {
        Health::Idle => (McpState::Idle, None),
        Health::Starting => (McpState::Starting, None),
        Health::Ready => (McpState::Ready, None),
        Health::Down(why) => (McpState::Down, Some(why)),
    };
    McpServerState {
        name: report.name,
        workspace: report.workspace,
        target: report.target,
        state,
        reason,
        tools: report.tools,
    }
}

/// The process's resident memory, where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory() {
        assert!(resident_bytes().unwrap() > 100 * 1024);
    }
}
