//! `session/cancel`: stops the running turn, or takes a queued prompt back.

use std::sync::Arc;

use super::caller::Caller;
use super::{Outcome, Started};
use crate::protocol::{CancelParams, CancelResult};
use crate::rpc::RpcError;

/// Submits the cancel. The reply comes when the turn has settled and its processes are gone.
///
/// # Errors
/// None at once.
pub fn start(caller: &Arc<Caller>, params: CancelParams) -> Result<Started, RpcError> {
    let answer = caller.shared.runtime.cancel(&params.session_id, params.message_id);
    Ok(Started::later(async move {
        let cancelled = answer.await?;
        let result = CancelResult { cancelled: cancelled.cancelled };
        Ok(Outcome::of(&result)?.after(cancelled.after))
    }))
}
