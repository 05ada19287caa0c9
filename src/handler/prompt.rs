//! `session/prompt`: says something to an agent.

mod content;

use std::sync::Arc;

use super::caller::{Bound, Caller};
use super::follow::{Begin, Hold};
use super::submitted::Accepting;
use super::{Outcome, Started};
use crate::event::{Seq, SessionId, TurnEndReason};
use crate::protocol::{Completion, PromptParams, Receipt, SettledPrompt, SettledStatus, WhenBusy};
use crate::rpc::RpcError;
use crate::session::feed::Start;
use crate::session::{self, Accepted, PromptRequest, PromptTicket, Settled};

/// Submits the prompt. The reply waits for stable storage or for the turn's end, as the connection chose.
///
/// # Errors
/// `invalid_params`, `limit_exceeded`, `shutting_down`; what the session says comes later.
pub fn start(caller: &Arc<Caller>, params: PromptParams) -> Result<Started, RpcError> {
    let bound = caller.bound()?;
    let image_bytes_max = caller.shared.config.borrow().limits.image_bytes;
    let (content, pictures) = content::read(params.content_blocks, image_bytes_max)?;
    let request = PromptRequest {
        content,
        pictures,
        when_busy: when_busy(bound, params.when_busy),
        idempotency_key: params.idempotency_key,
        mode_max: caller.mode_max(),
        receipt: bound.completion == Completion::Receipt,
    };
    let session = params.session_id;
    caller.follows.has_place(&session)?;
    let mut turn = caller.follows.turn(&session);
    let creation = caller.creations.token();
    let ticket = caller.shared.runtime.prompt(&session, caller.new_session()?, request)?;
    let PromptTicket { accepted, durable, settled } = ticket;
    let accepting = Accepting::new(caller.clone(), session.clone(), accepted);
    let (completion, deltas) = (bound.completion, bound.deltas);
    let caller = Arc::clone(caller);
    Ok(Started::later(async move {
        let (watched, settled) = match completion {
            Completion::Receipt => (Some(settled), None),
            Completion::Settled => (None, Some(settled)),
        };
        let accepted = accepting.done(watched).await;
        turn.comes().await;
        let accepted = accepted?;
        follow(&caller, &session, &accepted, deltas).await;
        drop((turn, creation));
        let Some(settled) = settled else {
            durable.await?;
            return Ok(Outcome::of(&Receipt { message_id: accepted.message_id })?.after(accepted.after));
        };
        drop(durable);
        let settled = settled.await;
        caller.submitted.settled(&accepted.message_id);
        reply(&caller, settled?)
    }))
}

/// Follows the session from the first event of this request, or from now when it appended none.
async fn follow(caller: &Caller, session: &SessionId, accepted: &Accepted, deltas: bool) {
    if accepted.first_seq == Some(Seq(0)) {
        caller.created(session);
    }
    let start = accepted.first_seq.map_or(Start::Now, |first| Start::Here(first.0.checked_sub(1).map(Seq)));
    match caller.shared.runtime.feed(session).await {
        Ok(feed) => {
            if let Ok(cursor) = feed.cursor(start, deltas) {
                caller.follows.begin(Begin::whole(feed, cursor, Hold::Implicit));
            }
        }
        // It was closed meanwhile: there is nothing to follow, and the reply says so.
        Err(error) => tracing::debug!(%session, %error, "a prompted session can't be followed"),
    }
}

fn reply(caller: &Caller, settled: Settled) -> Result<Outcome, RpcError> {
    let max_tokens_as_success = caller.shared.config.borrow().sessions.max_tokens_as_success;
    let status = match settled.reason {
        TurnEndReason::Completed => SettledStatus::Ok,
        TurnEndReason::MaxTokens if max_tokens_as_success => SettledStatus::Ok,
        TurnEndReason::Aborted { .. } => SettledStatus::Aborted,
        TurnEndReason::MaxTokens
        | TurnEndReason::Error { .. }
        | TurnEndReason::Blocked
        | TurnEndReason::Interrupted => SettledStatus::Error,
    };
    let result = SettledPrompt { message_id: settled.message_id, status, reason: settled.reason };
    Ok(Outcome::of(&result)?.after(settled.after))
}

fn when_busy(bound: &Bound, asked: Option<WhenBusy>) -> session::WhenBusy {
    match asked.unwrap_or(bound.when_busy) {
        WhenBusy::Reject => session::WhenBusy::Reject,
        WhenBusy::Queue => session::WhenBusy::Queue,
        WhenBusy::Steer => session::WhenBusy::Steer,
    }
}
