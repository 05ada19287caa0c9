//! `session/approval/answer` and `session/approval/rules`: what a session's calls ask for, and what was allowed for good.

use std::sync::Arc;

use super::caller::Caller;
use super::error::above;
use super::{Outcome, Started};
use crate::event::PermissionMode;
use crate::protocol::{AnswerOutcome, AnswerParams, ApprovalRule, RulesParams, RulesResult, WaitingApproval};
use crate::rpc::{ErrorKind, RpcError};
use crate::session::feed::SharedFeed;

/// Answers for who follows the session. The first answer wins.
///
/// # Errors
/// `invalid_request` when the caller does not follow the session, `permission_denied` when it may not allow that much; what the session says comes later.
pub fn answer(caller: &Arc<Caller>, params: AnswerParams) -> Result<Started, RpcError> {
    let runtime = &caller.shared.runtime;
    let session = params.session_id;
    let followed = runtime.loaded_feed(&session).is_some_and(|feed| caller.follows.follows(&feed, false));
    if !followed {
        let message = format!("subscribe to {session} first: only who follows a session answers for it");
        return Err(RpcError::new(ErrorKind::InvalidRequest, message));
    }
    let mode_max = caller.mode_max();
    if params.outcome != AnswerOutcome::Reject && mode_max < PermissionMode::FullAccess {
        let message = format!(
            "an allowed call runs with full-access, which is above what this client may ask for, {}",
            mode_max.as_str()
        );
        return Err(above(&message, PermissionMode::FullAccess, mode_max));
    }
    let by = match caller.bound()?.client.as_ref() {
        Some(client) => client.name.clone(),
        None => super::connection_id(caller.connection),
    };
    tracing::info!(%session, approval = params.approval_id, outcome = ?params.outcome, by, "an approval is answered");
    let answer = runtime.answer(&session, params.approval_id, params.outcome.into(), by);
    Ok(Started::later(async move {
        answer.await?;
        Outcome::empty()
    }))
}

/// Tells the rules of a session; takes one away first.
///
/// # Errors
/// None at once.
pub fn rules(caller: &Arc<Caller>, params: RulesParams) -> Result<Started, RpcError> {
    let rules = caller.shared.runtime.rules(&params.session_id, params.revoke);
    Ok(Started::later(async move {
        let wire = |rule: crate::session::Rule| ApprovalRule {
            id: rule.id,
            tool_name: rule.tool,
            rule: rule.allows,
        };
        Outcome::of(&RulesResult { rules: rules.await?.into_iter().map(wire).collect() })
    }))
}

/// What waits for an approval in a session and in those that work for it.
pub(super) fn waiting(caller: &Caller, feed: &SharedFeed) -> Vec<WaitingApproval> {
    let wire = |waiting: crate::session::Waiting| WaitingApproval {
        session_id: waiting.session,
        approval: waiting.approval,
    };
    caller.shared.runtime.waiting(feed).into_iter().map(wire).collect()
}
