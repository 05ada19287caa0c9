//! `session/resume`: opens a session that is stored or in memory; never makes one.

use std::sync::Arc;

use super::approval::waiting;
use super::caller::Caller;
use super::follow::{Begin, Hold, Turn};
use super::{Following, Outcome, Started, Then};
use crate::event::SessionId;
use crate::protocol::{LastSeq, PositionResult, SessionParams};
use crate::rpc::RpcError;
use crate::session::Position;
use crate::session::feed::Start;

/// Submits the opening. The connection follows the session from the position that it is told.
///
/// # Errors
/// `limit_exceeded`.
pub fn start(caller: &Arc<Caller>, params: SessionParams) -> Result<Started, RpcError> {
    let session = params.session_id;
    caller.follows.has_place(&session)?;
    let turn = caller.follows.turn(&session);
    let answer = caller.shared.runtime.resume(&session);
    let caller = Arc::clone(caller);
    Ok(Started::later(async move {
        let position = answer.await?;
        let feed = caller.shared.runtime.loaded_feed(&session);
        let approvals = feed.map_or_else(Vec::new, |feed| waiting(&caller, &feed));
        let result = PositionResult { epoch: position.epoch, last_seq: LastSeq(position.last), approvals };
        let then = follow_from(&caller, &session, position, turn).await?;
        Ok(Outcome::of(&result)?.then(then))
    }))
}

/// Follows a session after the reply, from a position that the reply tells.
pub(super) async fn follow_from(
    caller: &Caller,
    session: &SessionId,
    position: Position,
    mut turn: Turn,
) -> Result<Then, RpcError> {
    turn.comes().await;
    let feed = caller.shared.runtime.feed(session).await?;
    if caller.follows.follows(&feed, false) {
        return Ok(Then::Nothing);
    }
    let deltas = caller.bound()?.deltas;
    let start = match position.last {
        Some(last) => Start::After(position.epoch, last),
        None => Start::Here(None),
    };
    let cursor = feed.cursor(start, deltas).or_else(|_| feed.cursor(Start::Now, deltas))?;
    Ok(Then::Follow(Box::new(Following { begin: Begin::whole(feed, cursor, Hold::Implicit), turn })))
}
