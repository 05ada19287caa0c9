//! `session/queue`: what runs and what waits in a session.

use std::sync::Arc;

use super::caller::Caller;
use super::{Outcome, Started};
use crate::protocol::{QueueResult, QueuedPrompt, SessionParams};
use crate::rpc::RpcError;

/// Asks for it.
///
/// # Errors
/// None at once.
pub fn start(caller: &Arc<Caller>, params: &SessionParams) -> Result<Started, RpcError> {
    let answer = caller.shared.runtime.queue(&params.session_id);
    Ok(Started::later(async move {
        let view = answer.await?;
        let queued = view.queued.into_iter().map(|(message_id, text)| QueuedPrompt { message_id, text });
        Outcome::of(&QueueResult { running: view.running, queued: queued.collect() })
    }))
}
