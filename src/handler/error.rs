//! The one place where the domain's errors become the wire's.

use super::follow::TooMany;
use super::invalid;
use crate::event::PermissionMode;
use crate::protocol::{LastSeq, Mode};
use crate::rpc::{ErrorKind, RpcError};
use crate::session::SessionError;
use crate::session::feed::CursorInvalid;
use crate::telemetry::Incident;

/// When a request that was refused for load is worth repeating.
const RETRY_AFTER_MS: u64 = 250;

impl From<SessionError> for RpcError {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        let of = |kind| RpcError::new(kind, message.as_str());
        match &error {
            SessionError::NotFound(_) | SessionError::Closed(_) => of(ErrorKind::SessionNotFound),
            SessionError::Exists(_) => of(ErrorKind::SessionExists),
            SessionError::Busy { session, message_id, since_ms } => of(ErrorKind::SessionBusy)
                .with("sessionId", session)
                .with("messageId", message_id)
                .with("sinceMs", since_ms),
            SessionError::AboveCeiling { mode, mode_max, .. } => above(&message, *mode, *mode_max),
            SessionError::Locked { pid } => of(ErrorKind::SessionLocked).with("pid", pid),
            SessionError::Corrupt { path, seq, .. } => {
                of(ErrorKind::SessionCorrupt).with("path", path).with("seq", seq)
            }
            SessionError::Overloaded(_) => of(ErrorKind::Overloaded).with("retryAfterMs", &RETRY_AFTER_MS),
            SessionError::TooManySessions { max } => {
                of(ErrorKind::LimitExceeded).with("limit", &"loaded_sessions").with("max", max)
            }
            SessionError::ShuttingDown { message_id } => match message_id {
                Some(message_id) => of(ErrorKind::ShuttingDown).with("messageId", message_id),
                None => of(ErrorKind::ShuttingDown),
            },
            SessionError::StorageFailed(_) => of(ErrorKind::StorageFailed),
            SessionError::NoRoom { free, reserve } => {
                of(ErrorKind::StorageFailed).with("freeBytes", &free.0).with("reserveBytes", &reserve.0)
            }
            SessionError::ProviderUnavailable(_) => of(ErrorKind::ProviderUnavailable),
            SessionError::NoDirectory => invalid("cwd", &message),
            SessionError::BadDirectory { .. } => invalid("path", &message),
            SessionError::PromptTooLarge { max } => {
                of(ErrorKind::LimitExceeded).with("limit", &"event_bytes").with("max", max)
            }
            SessionError::TakesNoImages { .. } => invalid("contentBlocks", &message),
            SessionError::NoSuchApproval { .. } => of(ErrorKind::InvalidRequest),
            SessionError::KeyReused => invalid("idempotencyKey", &message),
            SessionError::Internal { incident } => of(ErrorKind::Internal).with("incident", incident),
        }
    }
}

/// A client asks for more than its ceiling allows.
pub(super) fn above(message: &str, mode: PermissionMode, mode_max: PermissionMode) -> RpcError {
    RpcError::new(ErrorKind::PermissionDenied, message)
        .with("scope", &Mode::from(mode))
        .with("modeMax", &Mode::from(mode_max))
}

impl From<CursorInvalid> for RpcError {
    fn from(error: CursorInvalid) -> Self {
        let message = format!("{error}, or lies past its end; subscribe again with since -1");
        RpcError::new(ErrorKind::CursorInvalid, message)
            .with("epoch", &error.position.epoch)
            .with("lastSeq", &LastSeq(error.position.last))
    }
}

impl From<TooMany> for RpcError {
    fn from(error: TooMany) -> Self {
        RpcError::new(ErrorKind::LimitExceeded, error.to_string())
            .with("limit", &"subscriptions")
            .with("max", &error.max)
    }
}

/// A panic that was just caught on this thread; the panic hook has logged it under the same incident.
pub fn incident() -> RpcError {
    let incident = Incident::of_caught_panic();
    let message = format!("internal error; the daemon's log has it as incident {}", incident.as_str());
    RpcError::new(ErrorKind::Internal, message).with("incident", &incident.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Epoch, MessageId, Seq, SessionId};
    use crate::rpc;
    use crate::session::Position;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a literal at each call")]
    fn check(error: impl Into<RpcError>, expected: serde_json::Value) {
        let line = rpc::response::<()>(None, Err(&error.into()));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let mut data = value["error"]["data"].clone();
        data["code"] = value["error"]["code"].clone();
        assert_eq!(data, expected);
        assert!(!value["error"]["message"].as_str().unwrap().is_empty());
    }

    #[test]
    fn errors_carry_the_facts_that_programs_need() {
        let session = SessionId::new("s").unwrap();
        let message_id = MessageId::from("m");
        check(
            SessionError::Busy { session, message_id, since_ms: 5 },
            serde_json::json!({"code":-32005,"kind":"session_busy","sessionId":"s","messageId":"m","sinceMs":5}),
        );
        check(
            SessionError::Corrupt { path: "/p".into(), seq: Seq(3), detail: "d".into() },
            serde_json::json!({"code":-32007,"kind":"session_corrupt","path":"/p","seq":3}),
        );
        check(
            SessionError::ShuttingDown { message_id: Some("m".into()) },
            serde_json::json!({"code":-32000,"kind":"shutting_down","messageId":"m"}),
        );
        check(
            SessionError::NoDirectory,
            serde_json::json!({"code":-32602,"kind":"invalid_params","path":"cwd"}),
        );
        check(
            CursorInvalid { position: Position { epoch: Epoch(7), last: None } },
            serde_json::json!({"code":-32011,"kind":"cursor_invalid","epoch":7,"lastSeq":-1}),
        );
        check(
            TooMany { max: 4 },
            serde_json::json!({"code":-32009,"kind":"limit_exceeded","limit":"subscriptions","max":4}),
        );
    }
}
