//! `session/close`: cancels, waits, disposes of the agent; the log stays.

use std::sync::Arc;

use super::caller::Caller;
use super::{Outcome, Started};
use crate::protocol::SessionParams;
use crate::rpc::RpcError;
use crate::session::CloseCause;

/// Submits the close.
///
/// # Errors
/// None at once.
pub fn start(caller: &Arc<Caller>, params: &SessionParams) -> Result<Started, RpcError> {
    let answer = caller.shared.runtime.close(&params.session_id, CloseCause::Closed);
    Ok(Started::later(async move {
        answer.await?;
        Outcome::empty()
    }))
}
