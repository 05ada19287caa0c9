//! `session/update`: changes a session's settings, from its next step on.

use std::sync::Arc;

use super::caller::Caller;
use super::{Outcome, Started, invalid};
use crate::event::SessionUpdate;
use crate::protocol::UpdateParams;
use crate::rpc::RpcError;

/// Longest title in characters; a longer one is cut.
const TITLE_CHARS_MAX: usize = 200;

/// Submits the change. The reply follows its event, for who hears of the session.
///
/// # Errors
/// `invalid_params`, `provider_unavailable`; what the session says comes later.
pub fn start(caller: &Arc<Caller>, params: UpdateParams) -> Result<Started, RpcError> {
    let runtime = &caller.shared.runtime;
    let mut update = SessionUpdate {
        model: params.model,
        provider: params.provider,
        reasoning_effort: params.reasoning_effort,
        max_tokens: params.max_tokens.map(|tokens| tokens.0),
        permission_mode: caller.allowed_mode(params.permission_mode)?,
        title: params.title.as_deref().map(title).transpose()?,
        budget_tokens: params.budget_tokens,
        budget_cost: params.budget_cost.map(|amount| amount.0),
        revoked_rule: None,
    };
    if update == SessionUpdate::default() {
        let what = "name what to change: model, provider, maxTokens, reasoningEffort, permissionMode, title, \
                    budgetTokens, budgetCost";
        return Err(invalid("sessionId", what));
    }
    if let Some(provider) = &update.provider {
        let (_, model) = runtime.route(Some(provider), update.model.as_deref())?;
        update.model = Some(model);
    }
    let session = params.session_id;
    let answer = runtime.update(&session, update);
    Ok(Started::later(async move {
        let at = answer.await?;
        Ok(Outcome::empty()?.after(at.map(|seq| (session, seq)).into_iter().collect()))
    }))
}

/// A title on one line, without blanks around it, of a bearable length.
fn title(text: &str) -> Result<String, RpcError> {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return Err(invalid("title", "expected a text that is not blank"));
    }
    Ok(line.chars().take(TITLE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_of_a_bearable_length() {
        assert_eq!(title("  a\n\tb\u{7}c ").unwrap(), "a b c");
        assert_eq!(title(&"é".repeat(500)).unwrap().chars().count(), TITLE_CHARS_MAX);
        assert!(title(" \n").is_err());
    }
}
