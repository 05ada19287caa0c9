//! `session/create`: makes a session, in memory until its first prompt.

use std::sync::Arc;

use super::caller::Caller;
use super::initialize::{budget, directory};
use super::{Outcome, Started};
use crate::event::SessionId;
use crate::protocol::{CreateParams, CreateResult, LastSeq};
use crate::rpc::RpcError;
use crate::session::Budget;

/// Submits the creation. The connection follows the session from its start.
///
/// # Errors
/// `invalid_params`, `provider_unavailable`, `limit_exceeded`.
pub fn start(caller: &Arc<Caller>, params: CreateParams) -> Result<Started, RpcError> {
    let bound = caller.bound()?;
    let mut new = caller.new_session()?;
    if let Some(cwd) = &params.cwd {
        new.cwd = Some(directory(cwd)?);
    }
    if params.provider.is_some() || params.model.is_some() {
        let provider = params.provider.as_deref().unwrap_or(&bound.provider);
        let model = params.model.as_ref().or_else(|| (provider == bound.provider).then_some(&bound.model));
        (new.provider, new.model) = caller.shared.runtime.route(Some(provider), model.map(String::as_str))?;
    }
    new.max_tokens = params.max_tokens.map(|tokens| tokens.0).or(new.max_tokens);
    new.reasoning_effort = params.reasoning_effort.or(new.reasoning_effort);
    new.permission_mode = caller.allowed_mode(params.permission_mode)?.or(new.permission_mode);
    let budget = budget(params.budget_tokens, params.budget_cost);
    new.budget =
        Budget { tokens: budget.tokens.or(new.budget.tokens), cost: budget.cost.or(new.budget.cost) };

    let session = params.session_id.unwrap_or_else(SessionId::random);
    caller.follows.has_place(&session)?;
    let turn = caller.follows.turn(&session);
    let creation = caller.creations.token();
    let answer = caller.shared.runtime.create(&session, new);
    let caller = Arc::clone(caller);
    Ok(Started::later(async move {
        let position = answer.await?;
        caller.created(&session);
        drop(creation);
        let result = CreateResult {
            session_id: session.clone(),
            epoch: position.epoch,
            last_seq: LastSeq(position.last),
        };
        let then = super::resume::follow_from(&caller, &session, position, turn).await?;
        Ok(Outcome::of(&result)?.then(then))
    }))
}
