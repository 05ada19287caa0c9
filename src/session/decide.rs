//! What a session does next, computed from its state. No I/O: the answers are events to append, or refusals.

use super::state::{Keyed, State, content_hash};
use super::{PromptRequest, SessionError, WhenBusy};
use crate::event::{
    ApprovalPolicy, Epoch, EventBody, InboxSpliced, InboxTarget, Message, MessageId, PermissionPreset,
    Recovered, Role, SandboxMode, SessionId, SessionOpened, Source, SourceKind, SpliceOutcome, StepMark,
    TurnEnd, TurnEndReason, TurnStart,
};
use crate::turn::{FactEvent, lost_result};

/// What becomes of a prompt.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Its key is known: it gets the first one's outcome and starts nothing.
    Repeat(Keyed),
    /// It joins the queue.
    Insert {
        /// Its message.
        message_id: MessageId,
        /// The event that says so.
        event: EventBody,
    },
}

impl State {
    /// Takes a prompt or refuses it.
    pub(super) fn decide_prompt(
        &self,
        session: &SessionId,
        request: &PromptRequest,
    ) -> Result<Verdict, SessionError> {
        if let Some(keyed) = request.idempotency_key.as_deref().and_then(|key| self.keyed(key)) {
            return if keyed.hash == content_hash(&request.content) {
                Ok(Verdict::Repeat(keyed.clone()))
            } else {
                Err(SessionError::KeyReused)
            };
        }
        if let (WhenBusy::Reject, Some((message_id, since_ms))) = (request.when_busy, self.busy_with()) {
            return Err(SessionError::Busy { session: session.clone(), message_id, since_ms });
        }
        let message = Message::new(Role::User, Source::of(SourceKind::User), request.content.clone());
        let message_id = message.id.clone();
        let event = EventBody::InboxSpliced(InboxSpliced {
            target: InboxTarget::NextTurn,
            start: u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
            removed_count: None,
            outcome: None,
            inserted: vec![message],
            idempotency_key: request.idempotency_key.clone(),
        });
        Ok(Verdict::Insert { message_id, event })
    }

    /// Starts the turn of the prompt that waits longest, once the open one has ended. `None`: nobody waits.
    pub(super) fn decide_next_turn(&self) -> Option<Vec<EventBody>> {
        (!self.queue.is_empty()).then(|| self.start_events())
    }

    /// Starts the turn of the prompt at the head of the queue; one is there, or is inserted by the event before these.
    pub(super) fn start_events(&self) -> Vec<EventBody> {
        vec![EventBody::TurnStart(TurnStart { turn: self.turns + 1 }), removal(0, None)]
    }

    /// Takes a prompt out of the queue.
    pub(super) fn decide_withdrawal(&self, message_id: &MessageId) -> Option<EventBody> {
        let at = self.queue.iter().position(|queued| queued.message.id == *message_id)?;
        Some(removal(at, Some(SpliceOutcome::Canceled)))
    }

    /// Ends the open turn: calls without result get one, the step ends, then the turn.
    pub(super) fn decide_end(&self, reason: TurnEndReason) -> Vec<FactEvent> {
        let Some(open) = &self.turn else { return Vec::new() };
        let turn = open.turn;
        let mut events = Vec::new();
        if let Some(step) = open.step {
            for call in &open.calls {
                let body = EventBody::ToolResult(lost_result(
                    turn,
                    step,
                    &call.id,
                    &call.name,
                    call.started.is_some(),
                ));
                events.push(FactEvent { sources: call.started.into_iter().collect(), ..body.into() });
            }
            events.push(EventBody::StepEnd(StepMark { turn, step }).into());
        }
        events.push(EventBody::TurnEnd(TurnEnd { turn, reason }).into());
        events
    }

    /// Opens a life of the log: what was found, a new root log's settings, the end of a turn that a crash left open.
    pub(super) fn decide_opening(&self, epoch: Epoch, cut_bytes: u64) -> Vec<FactEvent> {
        let closed_turn = self.turn.as_ref().map(|turn| turn.turn);
        let recovered =
            (cut_bytes > 0 || closed_turn.is_some()).then_some(Recovered { cut_bytes, closed_turn });
        let mut events = vec![FactEvent::from(EventBody::SessionOpened(SessionOpened { epoch, recovered }))];
        if self.last.is_none() {
            let mode = self.settings.mode;
            events.push(EventBody::PermissionPreset(PermissionPreset { preset: mode }).into());
            events.push(EventBody::SandboxMode(SandboxMode { mode }).into());
            events.push(EventBody::ApprovalPolicy(ApprovalPolicy { policy: "never".to_owned() }).into());
        }
        events.extend(self.decide_end(TurnEndReason::Interrupted));
        events
    }
}

fn removal(at: usize, outcome: Option<SpliceOutcome>) -> EventBody {
    EventBody::InboxSpliced(InboxSpliced {
        target: InboxTarget::NextTurn,
        start: u32::try_from(at).unwrap_or(u32::MAX),
        removed_count: Some(1),
        outcome,
        inserted: Vec::new(),
        idempotency_key: None,
    })
}
