//! What a session does next, computed from its state. No I/O: the answers are events to append, or refusals.

use std::sync::Arc;

use super::actor::{decided_event, killed};
use super::state::{Budget, Keyed, State, content_hash};
use super::{PromptRequest, SessionError, WhenBusy};
use crate::event::{
    ApprovalOutcome, ApprovalPolicy, AskPolicy, Block, CompactionEnd, Epoch, EventBody, InboxSpliced,
    InboxTarget, Message, MessageId, PermissionMode, PermissionPreset, Recovered, Role, SandboxMode,
    SessionId, SessionOpened, SessionUpdate, Source, SourceKind, SpliceOutcome, StepMark, StopReason,
    SubagentFinished, TurnEnd, TurnEndReason, TurnStart,
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
        event: Box<EventBody>,
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
        let mode = self.settings.mode;
        if mode > request.mode_max {
            let mode_max = request.mode_max;
            return Err(SessionError::AboveCeiling { session: session.clone(), mode, mode_max });
        }
        if let (WhenBusy::Reject, Some((message_id, since_ms))) = (request.when_busy, self.busy_with()) {
            return Err(SessionError::Busy { session: session.clone(), message_id, since_ms });
        }
        let message = Message::new(Role::User, Source::of(SourceKind::User), request.content.clone());
        let message_id = message.id.clone();
        let steers = request.when_busy == WhenBusy::Steer && self.turn.is_some();
        let (target, at) = if steers {
            (InboxTarget::NextStep, self.steering.len())
        } else {
            (InboxTarget::NextTurn, self.queue.len())
        };
        let event = insertion(target, at, message, request.idempotency_key.clone());
        Ok(Verdict::Insert { message_id, event: Box::new(event) })
    }

    /// Takes a notice of ours: the running turn hears of it in its next step; an idle agent is woken by it.
    pub(super) fn decide_notice(&self, text: String) -> EventBody {
        let message = Message::new(Role::User, Source::of(SourceKind::ToolJobs), vec![Block::text(text)]);
        if self.turn.is_some() {
            insertion(InboxTarget::NextStep, self.steering.len(), message, None)
        } else {
            insertion(InboxTarget::NextTurn, self.queue.len(), message, None)
        }
    }

    /// Takes what waits for the next step: the events that say so, and the messages.
    pub(super) fn decide_claim(&self) -> (Vec<EventBody>, Vec<Arc<Message>>) {
        if self.steering.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let claimed: Vec<Arc<Message>> = self.steering.iter().map(|queued| queued.message.clone()).collect();
        let mut events = vec![removal(InboxTarget::NextStep, 0, claimed.len(), None)];
        events.extend(claimed.iter().map(|message| EventBody::UserMessage((**message).clone())));
        (events, claimed)
    }

    /// What follows a turn's end: what still waits for a step goes to the head of the queue, then the next turn starts
    /// if one waits and `goes_on`. Says whether it does.
    pub(super) fn decide_after(&self, reason: &TurnEndReason, goes_on: bool) -> (Vec<EventBody>, bool) {
        // Our own notices wake the agent when it had simply finished. After a cancel or a failure they wait.
        let mut events = self.decide_moves(*reason == TurnEndReason::Completed);
        let starts = goes_on && !(self.queue.is_empty() && events.is_empty());
        if starts {
            events.extend(self.start_events());
        }
        (events, starts)
    }

    /// Moves prompts that wait for a step that will not come to the head of the queue, notices too if they wake.
    fn decide_moves(&self, notices_wake: bool) -> Vec<EventBody> {
        let mut events = Vec::new();
        let (mut inserted, mut kept) = (0, 0);
        for waiting in &self.steering {
            if !waiting.is_prompt() && !notices_wake {
                kept += 1;
                continue;
            }
            if !self.is_queued(&waiting.message.id) {
                events.push(insertion(InboxTarget::NextTurn, inserted, (*waiting.message).clone(), None));
                inserted += 1;
            }
            events.push(removal(InboxTarget::NextStep, kept, 1, None));
        }
        events
    }

    /// Starts the turn of the prompt that waits longest, once the open one has ended. `None`: nobody waits.
    pub(super) fn decide_next_turn(&self) -> Option<Vec<EventBody>> {
        (!self.queue.is_empty()).then(|| self.start_events())
    }

    /// Starts the turn of the prompt at the head of the queue; one is there, or is inserted by the event before these.
    pub(super) fn start_events(&self) -> Vec<EventBody> {
        vec![
            EventBody::TurnStart(TurnStart { turn: self.turns + 1 }),
            removal(InboxTarget::NextTurn, 0, 1, None),
        ]
    }

    /// Takes a prompt out of the queue.
    pub(super) fn decide_withdrawal(&self, message_id: &MessageId) -> Option<EventBody> {
        let lists = [(InboxTarget::NextTurn, &self.queue), (InboxTarget::NextStep, &self.steering)];
        lists.into_iter().find_map(|(target, list)| {
            let at = list.iter().position(|queued| queued.message.id == *message_id)?;
            Some(removal(target, at, 1, Some(SpliceOutcome::Canceled)))
        })
    }

    /// Ends the open turn: calls without result get one, the step ends, then the turn.
    pub(super) fn decide_end(&self, reason: TurnEndReason) -> Vec<FactEvent> {
        let Some(open) = &self.turn else { return Vec::new() };
        let turn = open.turn;
        let mut events = Vec::new();
        for asked in &self.approvals {
            events.push(decided_event(&asked.id, ApprovalOutcome::Cancelled, None).into());
        }
        for child in &self.children {
            events.push(lost_child(child).into());
        }
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
            events.extend(self.decide_compaction_end().map(FactEvent::from));
            events.push(EventBody::StepEnd(StepMark { turn, step }).into());
        }
        let totals = Some(self.totals).filter(|totals| !totals.is_empty());
        let title = self.title.clone().filter(|_| self.renamed);
        let permission_mode = self.mode_changed.then_some(self.settings.mode);
        events.push(EventBody::TurnEnd(TurnEnd { turn, reason, totals, title, permission_mode }).into());
        events
    }

    /// Whether an event tells of what is over already: the end of a job that has ended with an earlier life.
    pub(super) fn is_stale(&self, event: &EventBody) -> bool {
        if let EventBody::JobSettled(settled) = event {
            !self.jobs.iter().any(|job| job.job_id == settled.job_id)
        } else {
            false
        }
    }

    /// What was chosen for the session before it had a log, and stands nowhere else.
    fn decide_first_update(&self) -> Option<EventBody> {
        let Budget { tokens, cost } = self.settings.budget;
        let title = self.title.clone();
        let update =
            SessionUpdate { title, budget_tokens: tokens, budget_cost: cost, ..SessionUpdate::default() };
        (update != SessionUpdate::default()).then_some(EventBody::SessionUpdate(update))
    }

    /// Changes settings: the events that say so to everybody.
    pub(super) fn decide_update(&self, update: SessionUpdate, policy: AskPolicy) -> Vec<EventBody> {
        let mode = update.permission_mode;
        let mut events = vec![EventBody::SessionUpdate(update)];
        if let Some(mode) = mode {
            events.push(EventBody::PermissionPreset(PermissionPreset { preset: mode }));
            events.push(EventBody::SandboxMode(SandboxMode { mode }));
            let asks_then = asks(policy, mode);
            if asks_then != asks(policy, self.settings.mode) {
                events.push(EventBody::ApprovalPolicy(ApprovalPolicy { policy: asks_then }));
            }
        }
        events
    }

    /// Ends a compaction that something broke off.
    fn decide_compaction_end(&self) -> Option<EventBody> {
        let compaction_id = self.compaction.clone()?;
        let error = Some("it was broken off".to_owned());
        Some(EventBody::CompactionEnd(CompactionEnd { compaction_id, error }))
    }

    /// Opens a life of the log: what was found, a new root log's settings, the end of a turn that a crash left open.
    pub(super) fn decide_opening(&self, epoch: Epoch, cut_bytes: u64, policy: AskPolicy) -> Vec<FactEvent> {
        let closed_turn = self.turn.as_ref().map(|turn| turn.turn);
        let recovered =
            (cut_bytes > 0 || closed_turn.is_some()).then_some(Recovered { cut_bytes, closed_turn });
        let mut events = vec![FactEvent::from(EventBody::SessionOpened(SessionOpened { epoch, recovered }))];
        if self.last.is_none() {
            let mode = self.settings.mode;
            events.push(EventBody::PermissionPreset(PermissionPreset { preset: mode }).into());
            events.push(EventBody::SandboxMode(SandboxMode { mode }).into());
            events.push(EventBody::ApprovalPolicy(ApprovalPolicy { policy: asks(policy, mode) }).into());
            events.extend(self.decide_first_update().map(FactEvent::from));
        }
        events.extend(self.decide_end(TurnEndReason::Interrupted));
        // Jobs live no longer than their daemon.
        let lost = |job| EventBody::JobSettled(killed(job, "the daemon ended")).into();
        events.extend(self.jobs.iter().map(lost));
        events.extend(self.decide_moves(false).into_iter().map(FactEvent::from));
        events
    }
}

/// Whether a session of this mode asks: with full access there is nothing to ask for.
fn asks(policy: AskPolicy, mode: PermissionMode) -> AskPolicy {
    if mode == PermissionMode::FullAccess { AskPolicy::Never } else { policy }
}

/// The end of a child that its turn did not live to tell.
fn lost_child(child: &SessionId) -> EventBody {
    EventBody::SubagentFinished(SubagentFinished {
        child_session_id: child.clone(),
        child_epoch: None,
        child_last_seq: None,
        status: "error".to_owned(),
        stop_reason: StopReason::Aborted,
        last_assistant_message: None,
        totals: None,
    })
}

fn insertion(target: InboxTarget, at: usize, message: Message, key: Option<String>) -> EventBody {
    EventBody::InboxSpliced(InboxSpliced {
        target,
        start: u32::try_from(at).unwrap_or(u32::MAX),
        removed_count: None,
        outcome: None,
        inserted: vec![message],
        idempotency_key: key,
    })
}

fn removal(target: InboxTarget, at: usize, count: usize, outcome: Option<SpliceOutcome>) -> EventBody {
    EventBody::InboxSpliced(InboxSpliced {
        target,
        start: u32::try_from(at).unwrap_or(u32::MAX),
        removed_count: Some(u32::try_from(count).unwrap_or(u32::MAX)),
        outcome,
        inserted: Vec::new(),
        idempotency_key: None,
    })
}
