//! The inbox: two lists of messages, one for turns to come, one for the next step of the turn that runs.
//!
//! A message that still waits for a step when its turn ends moves to the other list: it is inserted there first and
//! removed here after, so that a crash between the two loses nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::State;
use crate::event::{
    AbortCause, EventBody, InboxSpliced, InboxTarget, Message, MessageId, SessionEvent, SourceKind,
    SpliceOutcome, TurnEndReason,
};
use crate::session::QueueView;
use crate::store::StoredLine;

/// A message that waits.
#[derive(Clone, Debug)]
pub(in crate::session) struct Queued {
    pub(in crate::session) message: Arc<Message>,
    /// When it came, in epoch milliseconds.
    pub(in crate::session) since_ms: u64,
    /// It was found in the log: it waits for the next prompt and makes nobody busy.
    pub(in crate::session) recovered: bool,
}

impl Queued {
    /// Whether a client said it.
    pub(in crate::session) fn is_prompt(&self) -> bool {
        self.message.source.kind == SourceKind::User
    }
}

impl State {
    pub(super) fn apply_splice(&mut self, splice: &InboxSpliced, event: &SessionEvent, replayed: bool) {
        let list = match splice.target {
            InboxTarget::NextTurn => &mut self.queue,
            InboxTarget::NextStep => &mut self.steering,
        };
        let removed = cut(list, splice);
        match splice.outcome {
            Some(SpliceOutcome::Canceled) => {
                let reason = TurnEndReason::Aborted { reason: AbortCause::User };
                for queued in removed {
                    self.note_outcome(&queued.message.id, &reason, event.seq);
                }
            }
            None => self.claim(splice.target, removed),
        }
        let start = splice.start as usize;
        for (offset, message) in splice.inserted.iter().enumerate() {
            if let Some(key) = &splice.idempotency_key {
                self.remember(key, message);
            }
            let moved = self.steering.iter().find(|waiting| waiting.message.id == message.id);
            let queued = Queued {
                message: Arc::new(message.clone()),
                since_ms: moved.map_or(event.time_ms, |moved| moved.since_ms),
                recovered: moved.map_or(replayed, |moved| moved.recovered),
            };
            let list = match splice.target {
                InboxTarget::NextTurn => &mut self.queue,
                InboxTarget::NextStep => &mut self.steering,
            };
            list.insert((start + offset).min(list.len()), queued);
        }
    }

    /// Messages left a list to be run.
    fn claim(&mut self, target: InboxTarget, removed: Vec<Queued>) {
        match target {
            InboxTarget::NextTurn => {
                if let Some(claimed) = removed.into_iter().next() {
                    self.with_turn(|turn| turn.message_id = Some(claimed.message.id.clone()));
                    self.claimed = Some(claimed.message);
                }
            }
            InboxTarget::NextStep => {
                for claimed in removed {
                    // One that is in the other list has moved there.
                    if !self.is_queued(&claimed.message.id) {
                        self.with_turn(|turn| turn.steered.push(claimed.message.id.clone()));
                    }
                }
            }
        }
    }

    /// Whether a message waits for a turn of its own.
    pub(in crate::session) fn is_queued(&self, id: &MessageId) -> bool {
        self.queue.iter().any(|queued| queued.message.id == *id)
    }
}

/// Takes out of a list what a splice removes.
fn cut<T>(list: &mut VecDeque<T>, splice: &InboxSpliced) -> Vec<T> {
    let start = (splice.start as usize).min(list.len());
    let count = (splice.removed_count.unwrap_or(0) as usize).min(list.len() - start);
    list.drain(start..start + count).collect()
}

/// What waits in a log that nobody has open: a fold over its inbox events alone.
#[derive(Debug, Default)]
pub(crate) struct QueueFold {
    queue: VecDeque<Arc<Message>>,
    steering: VecDeque<Arc<Message>>,
}

impl QueueFold {
    /// Takes a stored event into account.
    pub(crate) fn take(&mut self, line: &StoredLine) {
        if !line.json.starts_with(b"{\"type\":\"agent/inbox/spliced\"") {
            return;
        }
        let Ok(SessionEvent { body: EventBody::InboxSpliced(splice), .. }) = SessionEvent::decode(&line.json)
        else {
            return;
        };
        let list = match splice.target {
            InboxTarget::NextTurn => &mut self.queue,
            InboxTarget::NextStep => &mut self.steering,
        };
        cut(list, &splice);
        for (offset, message) in splice.inserted.into_iter().enumerate() {
            list.insert((splice.start as usize + offset).min(list.len()), Arc::new(message));
        }
    }

    /// What waits.
    pub(crate) fn view(self) -> QueueView {
        view(None, self.steering.iter().chain(&self.queue))
    }
}

/// What waits, for a client: prompts in the order in which the model will hear them, without our own notices.
pub(in crate::session) fn view<'a>(
    running: Option<MessageId>,
    waiting: impl Iterator<Item = &'a Arc<Message>>,
) -> QueueView {
    let prompts = waiting.filter(|message| message.source.kind == SourceKind::User);
    QueueView { running, queued: prompts.map(|message| (message.id.clone(), message.text())).collect() }
}
