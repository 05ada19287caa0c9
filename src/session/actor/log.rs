//! The log in the actor's hands: append, fold into the state, publish, in this order.

use bytes::Bytes;

use super::{Actor, Leaving, Open, Reached};
use crate::clock::now_ms;
use crate::event::{Epoch, EventBody, EventError, Seq, SessionEvent, Usage};
use crate::metrics::METRICS;
use crate::session::feed::{Mark, Published};
use crate::session::{CloseCause, SessionError};
use crate::store::{Header, Line, SessionLog, StoreError};
use crate::turn::{Fact, FactEvent, Given, Logged, Lost, Wants};

/// A session's log, or what it will begin with: no file is made before the first prompt.
pub(super) enum Journal {
    /// Nothing is stored yet.
    Unwritten {
        /// The first line.
        header: Header,
        /// The life that the first event will open.
        epoch: Epoch,
    },
    /// Open for writing.
    Written(Box<dyn SessionLog>),
}

impl Journal {
    /// Whether nothing is stored yet.
    pub(super) fn is_unwritten(&self) -> bool {
        matches!(self, Self::Unwritten { .. })
    }
}

/// Why events did not get into the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum AppendError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Event(#[from] EventError),
}

impl Actor {
    /// Appends events, folds them into the state and tells them with the status that holds after them. Returns the
    /// position of the first.
    pub(super) fn append(&mut self, events: Vec<FactEvent>) -> Result<Seq, SessionError> {
        let Some(open) = &mut self.open else { return Err(SessionError::Closed(self.id.clone())) };
        let before = open.state.totals.usage;
        match open.append(events) {
            Ok((first, published)) => {
                self.feed.used(open.state.totals);
                METRICS.events.add(published.len() as u64);
                count_tokens(&before, &open.state.totals.usage);
                self.show_approvals();
                self.feed.publish(published, self.status());
                Ok(first)
            }
            Err(AppendError::Store(StoreError::Failed(reason))) => {
                self.storage_failed(&reason);
                Err(SessionError::StorageFailed(reason))
            }
            Err(error) => {
                let incident = uuid::Uuid::new_v4().to_string();
                tracing::error!(session = %self.id, %incident, %error, "an event could not be appended");
                Err(SessionError::Internal { incident })
            }
        }
    }

    /// A turn tells facts.
    pub(super) fn take_fact(&mut self, fact: Fact) {
        let Fact { mut events, wants, ack } = fact;
        if wants == Wants::Approval {
            return self.ask(events, ack);
        }
        let claims = self.open.as_ref().filter(|_| wants == Wants::Claim);
        let (claiming, claimed) = claims.map(|open| open.state.decide_claim()).unwrap_or_default();
        events.extend(claiming.into_iter().map(FactEvent::from));
        let job = events.iter().any(|fact| matches!(fact.body, EventBody::JobRegistered(_)));
        let appended = self.append(events);
        if job {
            self.jobs_changed();
        }
        let (Ok(first), Some(open)) = (appended, &self.open) else { return drop(ack.send(Err(Lost))) };
        let given = match wants {
            Wants::Position | Wants::Durability | Wants::Approval => Given::Nothing,
            Wants::Fresh => Given::Fresh(Box::new(open.fresh(&self.shared))),
            Wants::Claim => Given::Claimed(claimed),
            Wants::Conversation => Given::Conversation(open.state.conversation.clone()),
        };
        let logged = Logged { first, waiting: !open.state.steering.is_empty(), given };
        if wants == Wants::Durability {
            self.barrier(Reached::Fact { ack, logged });
        } else {
            let _ = ack.send(Ok(logged));
        }
    }

    /// Waits beside the actor until all that was appended is on stable storage.
    pub(super) fn barrier(&mut self, reached: Reached) {
        let barrier = match self.open.as_ref().map(|open| &open.journal) {
            Some(Journal::Written(log)) => log.barrier(),
            Some(Journal::Unwritten { .. }) | None => Box::pin(std::future::ready(Ok(()))),
        };
        self.barriers.push(Box::pin(async move {
            let result = barrier.await;
            (reached, result)
        }));
    }

    /// A barrier is passed, or the disk failed.
    pub(super) fn barrier_reached(&mut self, reached: Reached, result: Result<(), StoreError>) {
        let failure = result.err().map(|error| match error {
            StoreError::Failed(reason) => reason,
            other @ (StoreError::NotFound
            | StoreError::Exists
            | StoreError::Locked { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Version(_)
            | StoreError::OutOfOrder { .. }) => other.to_string(),
        });
        let outcome = failure.map_or(Ok(()), |reason| {
            self.storage_failed(&reason);
            Err(SessionError::StorageFailed(reason))
        });
        match reached {
            Reached::Durable(answer) => drop(answer.send(outcome)),
            Reached::Fact { ack, logged } => drop(ack.send(outcome.map(|()| logged).map_err(|_| Lost))),
            Reached::End(ended) => ended.tell(&outcome),
            Reached::Alone { outcome, cause } => self.turn_ended(outcome, cause),
        }
    }

    /// Nothing more can be promised: the turn ends, everybody is told, the session leaves memory.
    pub(super) fn storage_failed(&mut self, reason: &str) {
        if self.leaving.is_some() {
            return;
        }
        tracing::error!(session = %self.id, %reason, "storage failed; the session is closed");
        if let Some(running) = &self.running {
            running.cancel.cancel();
        }
        self.waiters.refuse_all(Some(&SessionError::StorageFailed(reason.to_owned())));
        self.leaving = Some(Leaving::Close(CloseCause::StorageFailed));
    }
}

fn count_tokens(before: &Usage, after: &Usage) {
    let read = |usage: &Usage| usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    METRICS.tokens.add(after.total_tokens.saturating_sub(before.total_tokens));
    METRICS.tokens_in.add(read(after).saturating_sub(read(before)));
    METRICS.tokens_out.add(after.output_tokens.saturating_sub(before.output_tokens));
}

impl Open {
    fn append(&mut self, events: Vec<FactEvent>) -> Result<(Seq, Vec<Published>), AppendError> {
        let Journal::Written(log) = &mut self.journal else {
            return Err(AppendError::Store(StoreError::NotFound));
        };
        let first = Seq::following(self.state.last);
        if events.is_empty() {
            return Ok((first, Vec::new()));
        }
        let time_ms = now_ms();
        let mut lines = Vec::with_capacity(events.len());
        let mut encoded = Vec::with_capacity(events.len());
        for (seq, fact) in (first.0..).zip(events) {
            let mut event = SessionEvent::new(Seq(seq), time_ms, fact.body);
            event.source_event_seqs = fact.sources;
            event.surface_op = fact.surface.or(event.surface_op);
            let json = Bytes::from(event.encode()?);
            lines.push(Line { seq: event.seq, json: json.clone() });
            encoded.push((event, json, fact.seals_text));
        }
        log.append(&lines)?;
        let mut published = Vec::with_capacity(encoded.len());
        for (event, json, seals_text) in encoded {
            self.state.apply(&event, false);
            published.push(Published { seq: event.seq, json, mark: Mark::of(&event.body), seals_text });
        }
        Ok((first, published))
    }
}
