//! Notifications as finished lines.

use bytes::Bytes;
use serde::Serialize;

use crate::event::{Epoch, SessionId, SubagentFinished};
use crate::handler::wire_status;
use crate::protocol::{
    DrainingNotice, SessionClosed, SessionStatusNotice, SubagentFinishedNotice, SubagentStartedNotice,
    notification,
};
use crate::rpc;
use crate::session::feed::Framing;
use crate::session::{CloseCause, Status};

const SUFFIX: &[u8] = b"}}\n";

/// What DSH calls a subagent that the same process runs.
const SPAWN: &str = "spawn";

/// How events become `session.event` notifications: what stands before and after an event's JSON.
pub fn framing() -> Framing {
    Framing { prefix, suffix: SUFFIX }
}

fn prefix(session: &SessionId, epoch: Epoch) -> Vec<u8> {
    const HEAD: &[u8] = br#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"#;
    let mut out = Vec::with_capacity(HEAD.len() + session.as_str().len() + 64);
    out.extend_from_slice(HEAD);
    // A string always can be written, and a Vec always takes it.
    let _ = serde_json::to_writer(&mut out, session);
    let mut out = crate::event::escape_line_separators(out);
    out.extend_from_slice(format!(",\"epoch\":{epoch},\"event\":").as_bytes());
    out
}

/// `session.status`.
pub(super) fn status(session: &SessionId, status: Status) -> Bytes {
    let params = SessionStatusNotice { session_id: session.clone(), status: wire_status(status) };
    line(notification::SESSION_STATUS, &params)
}

/// `subagent.started`.
pub(super) fn subagent_started(parent: &SessionId, child: &SessionId) -> Bytes {
    let (parent_session_id, child_session_id) = (parent.clone(), child.clone());
    line(notification::SUBAGENT_STARTED, &SubagentStartedNotice { parent_session_id, child_session_id })
}

/// `subagent.finished`.
pub(super) fn subagent_finished(parent: &SessionId, finished: SubagentFinished) -> Bytes {
    let params = SubagentFinishedNotice {
        provider: SPAWN.to_owned(),
        agent_id: finished.child_session_id.clone(),
        parent_session_id: parent.clone(),
        child_session_id: finished.child_session_id,
        status: finished.status,
        stop_reason: finished.stop_reason,
        last_assistant_message: finished.last_assistant_message,
    };
    line(notification::SUBAGENT_FINISHED, &params)
}

/// The event's JSON in a line that was framed by [`framing`].
pub(super) fn event_of(line: &[u8]) -> &[u8] {
    const HEAD: &[u8] = b",\"event\":";
    // No text can hold these bytes: its quotes are escaped.
    let start = memchr::memmem::find(line, HEAD).map_or(0, |at| at + HEAD.len());
    line.get(start..line.len().saturating_sub(SUFFIX.len())).unwrap_or_default()
}

/// `session.closed`.
pub(super) fn closed(session: &SessionId, cause: CloseCause) -> Bytes {
    let params = SessionClosed { session_id: session.clone(), cause: cause.as_text().to_owned() };
    line(notification::SESSION_CLOSED, &params)
}

/// `server.draining`.
pub(super) fn draining(deadline_ms: u64, reconnect_after_ms: u64) -> Bytes {
    line(notification::SERVER_DRAINING, &DrainingNotice { deadline_ms, reconnect_after_ms })
}

/// An empty line when the parameters can't be written, which strings and numbers always can.
fn line(method: &str, params: &impl Serialize) -> Bytes {
    rpc::notification(method, params).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framed_event_is_one_valid_notification() {
        let framing = framing();
        let session = SessionId::new("a \"b\" \u{2028}").unwrap();
        let mut line = (framing.prefix)(&session, Epoch(7));
        line.extend_from_slice(br#"{"type":"turn/start"}"#);
        line.extend_from_slice(framing.suffix);
        let text = String::from_utf8(line).unwrap();
        assert!(text.ends_with('\n') && !text.contains('\u{2028}'), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["method"], "session.event");
        assert_eq!(value["params"]["sessionId"], session.as_str());
        assert_eq!(value["params"]["epoch"], 7);
        assert_eq!(value["params"]["event"]["type"], "turn/start");
        assert_eq!(event_of(text.as_bytes()), br#"{"type":"turn/start"}"#);
    }

    #[test]
    fn notices_name_their_session() {
        let session = SessionId::new("s").unwrap();
        assert_eq!(
            status(&session, Status::Running),
            &br#"{"jsonrpc":"2.0","method":"session.status","params":{"sessionId":"s","status":"running"}}
"#[..]
        );
        assert_eq!(
            closed(&session, CloseCause::Disposed),
            &br#"{"jsonrpc":"2.0","method":"session.closed","params":{"sessionId":"s","cause":"disposed"}}
"#[..]
        );
    }
}
