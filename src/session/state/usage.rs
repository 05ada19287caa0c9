//! What a session may use, and whether it has.

use super::State;
use crate::config::Sessions;
use crate::event::{Cost, Failure, FailureCode, SessionUpdate};

/// A budget. What is `None` is left to the configuration; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    /// In tokens of all kinds.
    pub(crate) tokens: Option<u64>,
    /// In the provider's currency.
    pub(crate) cost: Option<Cost>,
}

impl Budget {
    pub(super) fn apply(&mut self, update: &SessionUpdate) {
        self.tokens = update.budget_tokens.or(self.tokens);
        self.cost = update.budget_cost.or(self.cost);
    }
}

impl State {
    /// What is left of the budget, for a subagent: at least one token, since 0 is no budget.
    pub(in crate::session) fn remaining(&self, config: &Sessions) -> Budget {
        let (tokens, cost) = self.bounds(config);
        let spent = self.totals.cost.unwrap_or_default();
        Budget {
            tokens: tokens.map(|max| max.saturating_sub(self.totals.usage.total_tokens).max(1)),
            cost: cost.map(|max| max.less(spent)),
        }
    }

    /// The bounds that hold, if any do.
    fn bounds(&self, config: &Sessions) -> (Option<u64>, Option<Cost>) {
        let budget = self.settings.budget;
        let tokens = budget.tokens.or(config.budget_tokens).filter(|max| *max > 0);
        let cost = budget.cost.or(config.budget_cost.map(Cost::new)).filter(|max| *max > Cost::default());
        (tokens, cost)
    }

    /// Why no model may be called any more, if so.
    pub(in crate::session) fn exhausted(&self, config: &Sessions) -> Option<Failure> {
        let (tokens, cost) = self.bounds(config);
        let used = &self.totals.usage.total_tokens;
        let told = |what: String| {
            let message = format!(
                "the session's budget is used up ({what}); raise it with session/update (budgetTokens, budgetCost; 0 \
                 is none) or in the configuration ([sessions] budget_tokens, budget_cost), then prompt again"
            );
            Failure::new(FailureCode::Budget, message)
        };
        if let Some(max) = tokens.filter(|max| used >= max) {
            return Some(told(format!("{used} of {max} tokens")));
        }
        let spent = self.totals.cost.unwrap_or_default();
        let max = cost.filter(|max| spent >= *max)?;
        Some(told(format!("{:.4} of {:.4} in the provider's currency", spent.amount(), max.amount())))
    }
}
