//! `session/subscribe` and `session/unsubscribe`: following a session, live and from its past.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::approval::waiting;
use super::caller::Caller;
use super::follow::{Begin, Hold, Tree};
use super::{Following, Outcome, Started, Then, invalid, wire_status};
use crate::event::{Epoch, SessionId};
use crate::protocol::{ChildCursor, LastSeq, SessionParams, Since, SubscribeParams, SubscribeResult};
use crate::rpc::RpcError;
use crate::session::feed::{Cursor, SharedFeed, Start};

/// Begins a subscription once the reply is queued. On a session that is followed already, `since` starts over from
/// there; without it nothing changes.
///
/// # Errors
/// `invalid_params`, `limit_exceeded`.
pub fn start(caller: &Arc<Caller>, params: SubscribeParams) -> Result<Started, RpcError> {
    let deltas = caller.bound()?.deltas;
    let from = from(params.since, params.epoch)?;
    let session = params.session_id;
    let max = caller.shared.config.borrow().limits.subscriptions;
    if params.children.len() > max {
        return Err(invalid("children", &format!("expected at most {max} (limits.subscriptions)")));
    }
    let tree = params.tree.unwrap_or(true).then_some(params.children);
    caller.follows.has_place(&session)?;
    let mut turn = caller.follows.turn(&session);
    let feed = caller.shared.runtime.feed(&session);
    let caller = Arc::clone(caller);
    Ok(Started::later(async move {
        let feed = feed.await?;
        turn.comes().await;
        if from == Start::Now && caller.follows.follows(&feed, true) {
            let (position, status) = feed.position();
            let result = SubscribeResult {
                epoch: position.epoch,
                last_seq: LastSeq(position.last),
                status: wire_status(status),
                approvals: waiting(&caller, &feed),
            };
            return Outcome::of(&result);
        }
        // Checked before the old subscription ends: a wrong cursor changes nothing.
        feed.cursor(from, deltas)?;
        let tree = match tree {
            Some(children) => Tree::With(cursors(&caller, children, deltas).await?),
            None => Tree::Alone,
        };
        caller.follows.stop(&session).await;
        let cursor = feed.cursor(from, deltas)?;
        let position = feed.position().0;
        let last = if from == Start::Now { cursor.after() } else { position.last };
        let result = SubscribeResult {
            epoch: position.epoch,
            last_seq: LastSeq(last),
            status: wire_status(cursor.told()),
            approvals: waiting(&caller, &feed),
        };
        let begin = Begin { feed, cursor, hold: Hold::Explicit, tree };
        let following = Following { begin, turn };
        Ok(Outcome::of(&result)?.then(Then::Follow(Box::new(following))))
    }))
}

/// Ends a subscription.
///
/// # Errors
/// None at once.
pub fn stop(caller: &Arc<Caller>, params: SessionParams) -> Result<Started, RpcError> {
    let mut turn = caller.follows.turn(&params.session_id);
    let caller = Arc::clone(caller);
    Ok(Started::later(async move {
        turn.comes().await;
        caller.follows.stop(&params.session_id).await;
        Outcome::empty()
    }))
}

/// Where the client is in descendants.
async fn cursors(
    caller: &Caller,
    children: BTreeMap<SessionId, ChildCursor>,
    deltas: bool,
) -> Result<Vec<(SharedFeed, Cursor)>, RpcError> {
    let mut cursors = Vec::with_capacity(children.len());
    for (child, known) in children {
        let start = match known.since {
            LastSeq(None) => Start::Here(None),
            LastSeq(Some(seq)) => Start::After(known.epoch, seq),
        };
        let feed = caller.shared.runtime.feed(&child).await?;
        let cursor = feed.cursor(start, deltas)?;
        cursors.push((feed, cursor));
    }
    Ok(cursors)
}

fn from(since: Option<Since>, epoch: Option<Epoch>) -> Result<Start, RpcError> {
    match (since, epoch) {
        (None, _) => Ok(Start::Now),
        (Some(LastSeq(None)), _) => Ok(Start::Beginning),
        (Some(LastSeq(Some(seq))), Some(epoch)) => Ok(Start::After(epoch, seq)),
        (Some(LastSeq(Some(_))), None) => Err(invalid("epoch", "required with since, unless since is -1")),
    }
}
