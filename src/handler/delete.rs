//! `session/delete`: closes the session, then removes all that is stored of it and of its subagents.

use std::sync::Arc;

use super::caller::Caller;
use super::{Outcome, Started};
use crate::protocol::SessionParams;
use crate::rpc::RpcError;

/// Submits the deletion.
///
/// # Errors
/// None at once.
pub fn start(caller: &Arc<Caller>, params: &SessionParams) -> Result<Started, RpcError> {
    let answer = caller.shared.runtime.delete(&params.session_id);
    Ok(Started::later(async move {
        answer.await?;
        Outcome::empty()
    }))
}
