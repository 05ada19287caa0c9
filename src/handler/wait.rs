//! `session/wait`: answers once a session is idle.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::caller::Caller;
use super::{Outcome, Started};
use crate::protocol::WaitParams;
use crate::rpc::RpcError;

/// The session was not idle in time.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimedOut {
    timed_out: bool,
}

/// Waits, at most `timeoutMs`.
///
/// # Errors
/// None at once.
pub fn start(caller: &Arc<Caller>, params: &WaitParams) -> Result<Started, RpcError> {
    let idle = caller.shared.runtime.wait(&params.session_id);
    let limit = params.timeout_ms.map(Duration::from_millis);
    Ok(Started::later(async move {
        match limit {
            Some(limit) => match tokio::time::timeout(limit, idle).await {
                Ok(idle) => idle?,
                Err(_) => return Outcome::of(&TimedOut { timed_out: true }),
            },
            None => idle.await?,
        }
        Outcome::empty()
    }))
}
