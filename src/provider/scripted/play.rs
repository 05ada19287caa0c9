//! Plays an answer into a sink, delta by delta.

use super::script::{Answer, Part};
use crate::event::{Failure, FailureCode};
use crate::provider::retry::retry_of;
use crate::provider::{BlockKind, CallError, ChunkSink, Completion, Finish, Retry};

/// Deltas between two chances for other tasks.
const DELTAS_AT_ONCE: u32 = 256;

/// Plays an answer.
///
/// # Errors
/// What the script says.
pub(super) async fn play(answer: &Answer, sink: &mut dyn ChunkSink) -> Result<Completion, CallError> {
    let enough = || Completion { finish: Finish::Length, usage: answer.usage, replay_state: None };
    for part in &answer.parts {
        match part {
            Part::Say { .. } => {
                if say(part, sink).await.is_break() {
                    return Ok(enough());
                }
            }
            Part::Call { id, name, arguments } => {
                let block = sink.start(BlockKind::ToolCall);
                let id = id.clone().unwrap_or_else(|| format!("call_{}", uuid::Uuid::new_v4().simple()));
                sink.name(block, &id, name);
                let flow = sink.push(block, arguments);
                sink.end(block);
                if flow.is_break() {
                    return Ok(enough());
                }
            }
            Part::Wait(time) => tokio::time::sleep(*time).await,
            Part::Stall => std::future::pending().await,
            Part::Fail { code, message, status, after } => {
                let failure = Failure { message: message.clone(), code: *code, status: *status };
                return Err(CallError {
                    failure,
                    retry: after.map_or_else(|| retry_of(*code), Retry::After),
                });
            }
            Part::Cut => {
                let failure = Failure::new(FailureCode::Transport, "the script cuts the connection here");
                return Err(CallError { failure, retry: Retry::Backoff });
            }
        }
    }
    Ok(Completion { finish: answer.finish, usage: answer.usage, replay_state: None })
}

async fn say(part: &Part, sink: &mut dyn ChunkSink) -> std::ops::ControlFlow<crate::provider::Enough> {
    let Part::Say { kind, deltas, repeat, pause } = part else { return std::ops::ControlFlow::Continue(()) };
    let block = sink.start(*kind);
    let mut said: u32 = 0;
    for _ in 0..*repeat {
        for delta in deltas {
            if said > 0
                && let Some(pause) = pause
            {
                tokio::time::sleep(*pause).await;
            }
            if let cut @ std::ops::ControlFlow::Break(_) = sink.push(block, delta) {
                sink.end(block);
                return cut;
            }
            said = said.wrapping_add(1);
            if said.is_multiple_of(DELTAS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }
    sink.end(block);
    std::ops::ControlFlow::Continue(())
}
