//! Asking for approvals: the arrow from a turn's calls to whoever follows the session, turned around.
//!
//! Pending ones are the session's state: the actor logs the question and the answer, and the first answer wins. What is
//! here waits for it, no longer than `sessions.approval_timeout`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Answer;
use super::mailbox::{Command, Mailbox};
use crate::clock::now_ms;
use crate::config::Config;
use crate::event::{ApprovalAsked, ApprovalOutcome, AskPolicy, EventBody, SessionId};
use crate::policy::{Approver, Ask, Verdict};
use crate::turn::{Decided, Facts, Given};

/// Asks for one turn.
pub(super) struct Asker {
    pub(super) session: SessionId,
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) facts: Facts,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Approver for Asker {
    fn ask<'a>(&'a self, ask: Ask, cancel: &'a CancellationToken) -> BoxFuture<'a, Verdict> {
        Box::pin(self.ask(ask, cancel))
    }
}

impl Asker {
    async fn ask(&self, ask: Ask, cancel: &CancellationToken) -> Verdict {
        let (policy, timeout) = {
            let config = self.config.borrow();
            (config.sessions.approval_policy, config.sessions.approval_timeout)
        };
        if policy == AskPolicy::Never {
            return Verdict::Never;
        }
        let id = uuid::Uuid::now_v7().to_string();
        let need = ask.need;
        let asked = EventBody::ApprovalAsked(ApprovalAsked {
            id: id.clone(),
            tool_name: ask.tool,
            call_id: ask.call_id,
            reason: need.reason,
            command: need.command,
            diff: need.diff,
            rule: need.rule,
            deadline: now_ms().saturating_add(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        });
        let decided = match self.facts.ask(asked).await {
            Ok(Given::Decided(decided)) => Some(decided),
            Ok(Given::Pending(answer)) => self.wait(id, answer, timeout, cancel).await,
            Ok(_) | Err(_) => None,
        };
        decided.map_or(Verdict::Cancelled, verdict)
    }

    async fn wait(
        &self,
        id: String,
        mut answer: oneshot::Receiver<Decided>,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Option<Decided> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            decided = &mut answer => return decided.ok(),
            () = tokio::time::sleep(timeout) => {}
        }
        // Somebody may answer at this moment: the session knows who was first.
        let (told, _) = Answer::channel();
        let outcome = ApprovalOutcome::Rejected;
        self.mailbox.push(&self.session, Command::Answer { id, outcome, by: None, answer: told });
        tokio::select! {
            () = cancel.cancelled() => None,
            decided = answer => decided.ok(),
        }
    }
}

fn verdict(decided: Decided) -> Verdict {
    match decided.outcome {
        ApprovalOutcome::AllowedOnce | ApprovalOutcome::AllowedSession => Verdict::Allowed,
        ApprovalOutcome::Rejected => Verdict::Rejected { by: decided.by },
        ApprovalOutcome::Cancelled => Verdict::Cancelled,
        ApprovalOutcome::Unavailable => Verdict::Unavailable,
    }
}
