//! Approvals in the fold: which calls wait for one, and what was allowed for the whole session.

use super::{Rule, State};
use crate::event::{ApprovalAsked, ApprovalDecided, ApprovalOutcome};

/// Rules that a session remembers; the oldest goes first.
const RULES_MAX: usize = 256;

impl State {
    /// The approval of an id, if it waits.
    pub(in crate::session) fn approval(&self, id: &str) -> Option<&ApprovalAsked> {
        self.approvals.iter().find(|asked| asked.id == id)
    }

    /// Whether a rule allows what is asked.
    pub(in crate::session) fn is_allowed(&self, asked: &ApprovalAsked) -> bool {
        let allows = |rule: &Rule| rule.tool == asked.tool_name && Some(&rule.allows) == asked.rule.as_ref();
        self.rules.iter().any(allows)
    }

    pub(super) fn apply_decided(&mut self, decided: &ApprovalDecided) {
        let Some(at) = self.approvals.iter().position(|asked| asked.id == decided.id) else { return };
        let asked = self.approvals.remove(at);
        if decided.outcome == ApprovalOutcome::AllowedSession
            && let Some(rule) = asked.rule
        {
            if self.rules.len() >= RULES_MAX {
                self.rules.pop_front();
            }
            self.rules.push_back(Rule { id: asked.id, tool: asked.tool_name, allows: rule });
        }
    }
}
