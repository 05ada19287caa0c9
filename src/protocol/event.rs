//! The notifications.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::{Block, Epoch, SessionId, StopReason};

/// Names of notifications.
pub mod notification {
    /// An event, or text in flight.
    pub const SESSION_EVENT: &str = "session.event";
    /// Another agent works for a session.
    pub const SUBAGENT_STARTED: &str = "subagent.started";
    /// It has ended.
    pub const SUBAGENT_FINISHED: &str = "subagent.finished";
    /// An agent began or stopped working.
    pub const SESSION_STATUS: &str = "session.status";
    /// A session ended for its subscribers.
    pub const SESSION_CLOSED: &str = "session.closed";
    /// The daemon stops.
    pub const SERVER_DRAINING: &str = "server.draining";
}

/// Parameters of `session.event`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEventNotice {
    /// Which session.
    pub session_id: SessionId,
    /// The life of its log.
    pub epoch: Epoch,
    /// The event.
    pub event: Box<RawValue>,
}

/// Whether an agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// It does.
    Running,
    /// It does not.
    Idle,
}

/// Parameters of `session.status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatusNotice {
    /// Which session.
    pub session_id: SessionId,
    /// What it does.
    pub status: SessionStatus,
}

/// Parameters of `subagent.started`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentStartedNotice {
    /// For whom it works.
    pub parent_session_id: SessionId,
    /// Its session.
    pub child_session_id: SessionId,
}

/// Parameters of `subagent.finished`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentFinishedNotice {
    /// Who ran it: `spawn`, this process.
    pub provider: String,
    /// Its agent; the same as its session.
    pub agent_id: SessionId,
    /// For whom it worked.
    pub parent_session_id: SessionId,
    /// Its session.
    pub child_session_id: SessionId,
    /// `ok` or `error`.
    pub status: String,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// What it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_assistant_message: Option<Vec<Block>>,
}

/// Parameters of `session.closed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionClosed {
    /// Which session.
    pub session_id: SessionId,
    /// Why.
    pub cause: String,
}

/// Parameters of `server.draining`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainingNotice {
    /// How long running turns may take.
    pub deadline_ms: u64,
    /// When to come back.
    pub reconnect_after_ms: u64,
}
