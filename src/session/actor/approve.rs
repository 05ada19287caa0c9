//! Approvals in the actor's hands: who is asked, whose answer counts, which rules hold.

use tokio::sync::oneshot;

use super::Actor;
use crate::event::{ApprovalAsked, ApprovalDecided, ApprovalOutcome, EventBody, SessionId, SessionUpdate};
use crate::metrics::METRICS;
use crate::session::state::Rule;
use crate::session::{Answerer, SessionError};
use crate::turn::{Decided, FactEvent, Given, Logged, Lost};

impl Actor {
    /// A call of the running turn asks.
    pub(super) fn ask(&mut self, asked: Vec<FactEvent>, ack: oneshot::Sender<Result<Logged, Lost>>) {
        let Some((EventBody::ApprovalAsked(approval), open)) =
            asked.first().map(|fact| &fact.body).zip(self.open.as_ref()).filter(|_| asked.len() == 1)
        else {
            return drop(ack.send(Err(Lost)));
        };
        let id = approval.id.clone();
        if open.state.is_allowed(approval) {
            tracing::info!(session = %self.id, tool = approval.tool_name, "allowed by a rule of the session");
            let decided = Decided { outcome: ApprovalOutcome::AllowedSession, by: None };
            let first = crate::event::Seq::following(open.state.last);
            return drop(ack.send(Ok(Logged { first, waiting: false, given: Given::Decided(decided) })));
        }
        let answerable = self.is_answerable();
        let mut events = asked;
        if !answerable {
            events.push(decided_event(&id, ApprovalOutcome::Unavailable, None).into());
        }
        let Ok(first) = self.append(events) else { return drop(ack.send(Err(Lost))) };
        let given = if answerable {
            let (told, answer) = oneshot::channel();
            self.asked.insert(id, told);
            Given::Pending(answer)
        } else {
            METRICS.approvals.unavailable.add(1);
            Given::Decided(Decided { outcome: ApprovalOutcome::Unavailable, by: None })
        };
        let _ = ack.send(Ok(Logged { first, waiting: false, given }));
    }

    /// Whether somebody follows the session, or the one that delegated to it, who can answer.
    fn is_answerable(&self) -> bool {
        let parent = self.open.as_ref().and_then(|open| open.parent.as_ref());
        let parents = parent.and_then(|parent| self.shared.feed(parent));
        self.feed.has_answerers() || parents.is_some_and(|feed| feed.has_answerers())
    }

    /// Somebody answers, or the time for it is over (`by` none). The first answer wins.
    pub(super) fn answer(
        &mut self,
        id: &str,
        outcome: ApprovalOutcome,
        by: Option<String>,
        answer: Answerer<()>,
    ) {
        let pending = self.open.as_ref().is_some_and(|open| open.state.approval(id).is_some());
        let told = self.asked.remove(id).filter(|_| pending);
        let Some(told) = told else {
            let error = SessionError::NoSuchApproval { session: self.id.clone(), approval: id.to_owned() };
            return drop(answer.send(Err(error)));
        };
        let appended = self.append(vec![decided_event(id, outcome, by.clone()).into()]);
        let counts = &METRICS.approvals;
        let count = match outcome {
            ApprovalOutcome::AllowedOnce | ApprovalOutcome::AllowedSession => &counts.allowed,
            ApprovalOutcome::Rejected if by.is_none() => &counts.timed_out,
            ApprovalOutcome::Rejected | ApprovalOutcome::Cancelled | ApprovalOutcome::Unavailable => {
                &counts.rejected
            }
        };
        count.add(1);
        let _ = told.send(Decided { outcome, by });
        let _ = answer.send(appended.map(drop));
    }

    /// The rules that hold, after `revoke` was taken from them.
    pub(super) fn rules(&mut self, revoke: Option<String>) -> Result<Vec<Rule>, SessionError> {
        let Some(open) = &self.open else { return Err(SessionError::Closed(self.id.clone())) };
        if let Some(id) = revoke {
            if !open.state.rules.iter().any(|rule| rule.id == id) {
                return Err(SessionError::NoSuchApproval { session: self.id.clone(), approval: id });
            }
            let update = SessionUpdate { revoked_rule: Some(id), ..SessionUpdate::default() };
            self.append(vec![EventBody::SessionUpdate(update).into()])?;
        }
        Ok(self.open.as_ref().map_or_else(Vec::new, |open| open.state.rules.iter().cloned().collect()))
    }

    /// What waits for an answer is told to those who come late.
    pub(super) fn show_approvals(&self) {
        if let Some(open) = &self.open {
            self.feed.set_approvals(&open.state.approvals);
        }
    }
}

/// An approval that waits, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The session.
    pub(crate) session: SessionId,
    /// What is asked.
    pub(crate) approval: ApprovalAsked,
}

/// The event that says what became of an approval.
pub(in crate::session) fn decided_event(id: &str, outcome: ApprovalOutcome, by: Option<String>) -> EventBody {
    EventBody::ApprovalDecided(ApprovalDecided { id: id.to_owned(), outcome, by })
}
