//! `models/list` and the `server/…` methods.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{LastSeq, SessionStatus};
use crate::event::{Epoch, SessionId};

/// Result of `models/list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelsResult {
    /// The route of who names none.
    pub default_route: super::RouteInfo,
    /// The providers.
    pub routes: Vec<RouteModels>,
}

/// A provider and its configured models.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteModels {
    /// Its name.
    pub provider: String,
    /// Whether its key is there, or none is needed.
    pub ready: bool,
    /// Its models; others are sent as named.
    pub models: Vec<ModelInfo>,
    /// The one that is asked when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
}

/// A configured model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// Its name.
    pub model: String,
    /// Tokens that it reads.
    pub context_window: u64,
    /// Tokens that it writes at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// What it can do: `tools`, `thinking`, `reasoning-effort`, `images`.
    pub capabilities: Vec<String>,
    /// What it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// Prices of a million tokens each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prices {
    /// Read anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<f64>,
    /// Read from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Written to the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// Written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<f64>,
}

/// Parameters of `server/drain`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainParams {
    /// How long running turns may take; none: `shutdown.drain_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// What the daemon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It serves.
    Ready,
    /// It stops.
    Draining,
}

/// Result of `server/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusResult {
    /// The daemon's version.
    pub version: String,
    /// The protocol's.
    pub protocol_version: u32,
    /// What it does.
    pub phase: Phase,
    /// Its process.
    pub pid: u32,
    /// How long it runs.
    pub uptime_ms: u64,
    /// Where its data is.
    pub data_dir: String,
    /// Where it listens.
    pub listeners: Vec<String>,
    /// How much of everything.
    pub counts: Counts,
    /// `[limits]` in force, by name.
    pub limits: Box<RawValue>,
    /// How much of them is used now, by the same names.
    #[serde(default)]
    pub usage: Usage,
    /// What the process has done since its start.
    #[serde(default)]
    pub totals: Totals,
    /// The storage failure, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_failure: Option<String>,
    /// Environment variables of keys that it has: names only.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Connections, those that are furthest behind first; at most 200 of `counts.connections`.
    pub connections: Vec<ConnectionState>,
    /// Each session in memory.
    pub sessions: Vec<SessionState>,
    /// Each MCP server that is configured or runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServerState>,
}

/// What an MCP server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpState {
    /// No session has asked for it.
    Idle,
    /// It starts.
    Starting,
    /// It serves.
    Ready,
    /// It has failed, and is started again.
    Down,
}

/// An MCP server in `server/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerState {
    /// Its name.
    pub name: String,
    /// The workspace that brings it; none: the configuration does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Its program, or its address.
    pub target: String,
    /// What it does.
    pub state: McpState,
    /// `down`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its tools, by their names at the server.
    pub tools: Vec<String>,
}

/// How much of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Connections.
    pub connections: usize,
    /// Requests in flight on all of them.
    pub in_flight: usize,
    /// Sessions in memory.
    pub sessions_loaded: usize,
    /// Turns that run.
    pub turns_running: usize,
    /// Calls that wait for an approval.
    #[serde(default)]
    pub approvals_waiting: usize,
    /// Resident memory of the process.
    pub memory_bytes: u64,
}

/// How much of `[limits]` is used, by the names of its keys. Where a bound is one of many (connections, sessions), the
/// fullest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Requests in flight of one connection.
    pub in_flight: u64,
    /// Requests in flight of all.
    pub in_flight_total: u64,
    /// Bytes that wait to be written on one connection.
    pub outbound_bytes: u64,
    /// Bytes of recent events of one session.
    pub feed_bytes: u64,
    /// Requests that wait for one session.
    pub mailbox: u64,
    /// Sessions in memory.
    pub loaded_sessions: u64,
    /// Connections.
    pub connections: u64,
    /// Connections of one local user.
    pub connections_per_uid: u64,
    /// Subscriptions of one connection.
    pub subscriptions: u64,
    /// Connections that have not authenticated yet.
    pub preauth_connections: u64,
    /// Child processes of all tools.
    pub children: u64,
}

/// What the process has done since its start; whoever reads it twice has rates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Turns that have ended.
    pub turns: u64,
    /// How they ended.
    pub turns_by_end: TurnsByEnd,
    /// How long they took, counted as `syncs`.
    pub turn_times: Vec<u64>,
    /// From a call of a model to the first of its answer, counted as `syncs`.
    pub first_tokens: Vec<u64>,
    /// Tokens that models have read, cached ones included.
    pub tokens_in: u64,
    /// Tokens that models have written.
    pub tokens_out: u64,
    /// Calls of models that were made again.
    pub retries: u64,
    /// Approvals by how they were decided.
    pub approvals: Approvals,
    /// Starts of MCP servers that follow a death.
    pub mcp_restarts: u64,
    /// Lines of the daemon's log that found no room.
    pub log_lines_dropped: u64,
    /// Events that were appended.
    pub events: u64,
    /// Tokens that models have read and written.
    pub tokens: u64,
    /// Frames of text in flight that were queued for connections.
    pub deltas: u64,
    /// Bytes that were written to connections.
    pub bytes_out: u64,
    /// Connections that were let in.
    pub connections: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Connections that were cut because they took no byte.
    pub cut: u64,
    /// Syncs of logs: the n-th count is of those that took less than 2^n microseconds and at least half of that.
    pub syncs: Vec<u64>,
}

/// Turns by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TurnsByEnd {
    /// The model had said all.
    pub completed: u64,
    /// The model's output limit was reached.
    pub max_tokens: u64,
    /// They failed.
    pub failed: u64,
    /// Somebody ended them.
    pub aborted: u64,
    /// The provider's filter stopped them.
    pub blocked: u64,
}

/// Approvals by how they were decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Approvals {
    /// A client allowed the call.
    pub allowed: u64,
    /// A client rejected it.
    pub rejected: u64,
    /// Nobody answered in time.
    pub timed_out: u64,
    /// Nobody was there who could answer.
    pub unavailable: u64,
}

/// A connection in `server/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionState {
    /// Its id.
    pub connection_id: String,
    /// Who is at the other end.
    pub peer: String,
    /// What it said it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Sessions that it follows.
    pub subscriptions: usize,
    /// Requests of it that are in flight.
    #[serde(default)]
    pub in_flight: usize,
    /// Events of its sessions that it has not been sent.
    pub lag_events: u64,
    /// Bytes that wait to be written to it.
    pub lag_bytes: u64,
    /// Since its socket last took a byte.
    pub last_progress_ms: u64,
}

/// A session in `server/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// Its id.
    pub session_id: SessionId,
    /// Whether its agent works.
    pub status: SessionStatus,
    /// The life of its log.
    pub epoch: Epoch,
    /// Its last event.
    pub last_seq: LastSeq,
}
