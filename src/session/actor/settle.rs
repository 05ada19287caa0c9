//! Who waits for what in a session, and the one place where a turn's end is told.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Actor, Reached};
use crate::event::{AbortCause, Failure, FailureCode, Message, MessageId, Seq, SessionId, TurnEndReason};
use crate::metrics::METRICS;
use crate::session::delegate::retire;
use crate::session::mailbox::Command;
use crate::session::{Answer, Answerer, Cancelled, SessionError, Settled};
use crate::turn::{FactEvent, Outcome};

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    prompts: HashMap<MessageId, Vec<Answerer<Settled>>>,
    pub(super) cancels: Vec<Answerer<Cancelled>>,
    pub(super) closes: Vec<Answerer<()>>,
    pub(super) deletes: Vec<Answerer<bool>>,
    pub(super) idle: Vec<Answerer<()>>,
}

impl Waiters {
    /// Somebody waits for a prompt's end.
    pub(super) fn for_prompt(&mut self, message_id: MessageId, answer: Answerer<Settled>) {
        let waiting = self.prompts.entry(message_id).or_default();
        waiting.retain(|answer| !answer.is_closed());
        waiting.push(answer);
    }

    /// Whether anybody waits for a prompt's end.
    pub(super) fn has_prompts(&self) -> bool {
        !self.prompts.is_empty()
    }

    /// A prompt ended without a turn.
    pub(super) fn settle(&mut self, message_id: &MessageId, outcome: &Result<Settled, SessionError>) {
        for answer in self.prompts.remove(message_id).unwrap_or_default() {
            let _ = answer.send(outcome.clone());
        }
    }

    /// The session has nothing more to do.
    pub(super) fn tell_idle(&mut self) {
        for answer in self.idle.drain(..) {
            let _ = answer.send(Ok(()));
        }
    }

    /// The session has left memory.
    pub(super) fn tell_closed(&mut self) {
        for answer in self.closes.drain(..) {
            let _ = answer.send(Ok(()));
        }
        for answer in self.deletes.drain(..) {
            let _ = answer.send(Ok(true));
        }
    }

    /// The session could not be deleted.
    pub(super) fn refuse_deletes(&mut self, error: &SessionError) {
        for answer in self.deletes.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
    }

    /// Nobody will get what they wait for; `None`: the daemon stops.
    pub(super) fn refuse_all(&mut self, error: Option<&SessionError>) {
        for (message_id, answers) in self.prompts.drain() {
            for answer in answers {
                let stopping = || SessionError::ShuttingDown { message_id: Some(message_id.clone()) };
                let _ = answer.send(Err(error.cloned().unwrap_or_else(stopping)));
            }
        }
        let error = error.cloned().unwrap_or(SessionError::ShuttingDown { message_id: None });
        for answer in self.cancels.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
        for answer in self.idle.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
    }
}

/// A turn's end that is in the log, and who is told when it is on stable storage.
#[derive(Debug)]
pub(super) struct Ended {
    session: SessionId,
    seq: Seq,
    reason: TurnEndReason,
    answer: Option<Arc<Message>>,
    prompts: Vec<(MessageId, Vec<Answerer<Settled>>)>,
    cancels: Vec<Answerer<Cancelled>>,
    idle: Vec<Answerer<()>>,
}

impl Ended {
    /// Tells everybody.
    pub(super) fn tell(self, durable: &Result<(), SessionError>) {
        let after = vec![(self.session, self.seq)];
        for (message_id, answers) in self.prompts {
            let (reason, answer) = (self.reason.clone(), self.answer.clone());
            let settled = Settled { message_id, reason, answer, after: after.clone() };
            for answer in answers {
                let _ = answer.send(durable.clone().map(|()| settled.clone()));
            }
        }
        let cancelled = matches!(self.reason, TurnEndReason::Aborted { .. });
        for answer in self.cancels {
            let _ = answer.send(durable.clone().map(|()| Cancelled { cancelled, after: after.clone() }));
        }
        for answer in self.idle {
            let _ = answer.send(durable.clone());
        }
    }
}

impl Actor {
    /// A turn's task ended. Children that it left running are ended first.
    pub(super) fn turn_stopped(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        let cause = self.running.take().map_or(AbortCause::Disposed, |running| {
            METRICS.turn_times.add(running.began.elapsed());
            running.cause
        });
        self.feed.text().discard();
        let children = self.open.as_ref().map_or(&[][..], |open| &open.state.children);
        let mut ends = Vec::new();
        for child in children {
            let (answer, ended) = Answer::channel();
            let cancel = Command::Cancel { message_id: None, cause: AbortCause::Parent, answer };
            if self.shared.submit_loaded(child, cancel).is_ok() {
                let (shared, child) = (self.shared.clone(), child.clone());
                ends.push(async move {
                    let _ = ended.await;
                    retire(&shared, &child).await;
                });
            }
        }
        if ends.is_empty() {
            return self.turn_ended(outcome, cause);
        }
        self.barriers.push(Box::pin(async move {
            futures_util::future::join_all(ends).await;
            (Reached::Alone { outcome, cause }, Ok(()))
        }));
    }

    /// A turn's task ended and nothing of it runs: log the turn's end, start the next one, tell who waits once it is on stable storage.
    pub(super) fn turn_ended(&mut self, outcome: Result<Outcome, tokio::task::JoinError>, cause: AbortCause) {
        let reason = match outcome {
            Ok(Outcome::Ended(reason)) => reason,
            Ok(Outcome::Cancelled) => TurnEndReason::Aborted { reason: cause },
            Ok(Outcome::Lost) => return self.storage_failed("a turn's facts were not taken"),
            Err(error) if error.is_cancelled() => TurnEndReason::Aborted { reason: cause },
            Err(error) => TurnEndReason::Error { error: panicked(&self.id, &error) },
        };
        // What its calls still ask for ends with it, in the events below.
        self.asked.clear();
        let Some(open) = &self.open else { return };
        count(&reason);
        open.tools.jobs().end_unlogged();
        let served: Vec<MessageId> = open
            .state
            .turn
            .as_ref()
            .map_or_else(Vec::new, |turn| turn.message_id.iter().chain(&turn.steered).cloned().collect());
        let answer = open.state.last_answer();
        let mut events = open.state.decide_end(reason.clone());
        let ends_at = events.len().saturating_sub(1);
        let goes_on = self.leaving.is_none() && !self.shared.is_stopping();
        let (after, starts) = open.state.decide_after(&reason, goes_on);
        events.extend(after.into_iter().map(FactEvent::from));
        let Ok(first) = self.append(events) else { return };
        let ended = Ended {
            session: self.id.clone(),
            seq: Seq(first.0 + ends_at as u64),
            reason,
            answer,
            prompts: served
                .into_iter()
                .filter_map(|id| self.waiters.prompts.remove(&id).map(|answers| (id, answers)))
                .collect(),
            cancels: std::mem::take(&mut self.waiters.cancels),
            idle: if self.is_idle() { std::mem::take(&mut self.waiters.idle) } else { Vec::new() },
        };
        self.barrier(Reached::End(ended));
        if starts {
            self.start_turn();
        }
    }

    /// Whether nothing runs and nothing of this life waits.
    pub(super) fn is_idle(&self) -> bool {
        self.open.as_ref().is_none_or(|open| {
            open.state.turn.is_none() && (self.shared.is_stopping() || open.state.busy_with().is_none())
        })
    }
}

fn count(reason: &TurnEndReason) {
    METRICS.turns.add(1);
    let ends = &METRICS.turns_by_end;
    match reason {
        TurnEndReason::Completed => ends.completed.add(1),
        TurnEndReason::MaxTokens => ends.max_tokens.add(1),
        TurnEndReason::Error { .. } => ends.failed.add(1),
        TurnEndReason::Aborted { .. } | TurnEndReason::Interrupted => ends.aborted.add(1),
        TurnEndReason::Blocked => ends.blocked.add(1),
    }
}

fn panicked(session: &SessionId, error: &tokio::task::JoinError) -> Failure {
    let incident = uuid::Uuid::new_v4().to_string();
    tracing::error!(%session, %incident, %error, "a turn panicked");
    Failure::new(FailureCode::Unknown, format!("internal error in the turn (incident {incident})"))
}
