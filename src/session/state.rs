//! What a session is, as a fold over its events. No I/O: the actor appends an event, then applies it here. Replaying a
//! log and living through it are the same code.

mod approval;
mod inbox;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub(crate) use self::inbox::QueueFold;
pub(super) use self::inbox::{Queued, view};
pub(crate) use self::usage::Budget;

use super::NewSession;
use crate::event::{
    ApprovalAsked, Block, EventBody, JobRegistered, Message, MessageId, PermissionMode, RequestContext,
    RequestHeader, Role, Seq, SessionEvent, SessionId, SessionUpdate, SurfaceOp, Totals, TurnEnd,
    TurnEndReason,
};
use crate::turn::{Measured, Told};

/// Idempotency keys that a session remembers.
const KEYS_MAX: usize = 256;

/// Digest of a prompt's content, to tell a repeat from a clash.
pub(super) type ContentHash = [u8; 32];

/// A turn that runs, or that a crash left open.
#[derive(Clone, Debug)]
pub(super) struct OpenTurn {
    pub(super) turn: u32,
    pub(super) message_id: Option<MessageId>,
    /// Messages that came while it ran and that it has taken up.
    pub(super) steered: Vec<MessageId>,
    pub(super) since_ms: u64,
    pub(super) step: Option<u32>,
    /// Calls of the last message that have no result yet.
    pub(super) calls: Vec<OpenCall>,
}

/// A call without result.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) name: String,
    /// Its `tool/call`, when it was started.
    pub(super) started: Option<Seq>,
}

/// What later calls are allowed without being asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The approval that made it.
    pub(crate) id: String,
    /// The tool.
    pub(crate) tool: String,
    /// What a call must be.
    pub(crate) allows: String,
}

/// What is remembered of a prompt with a key.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    pub(super) key: String,
    pub(super) message_id: MessageId,
    pub(super) hash: ContentHash,
    pub(super) outcome: Option<(TurnEndReason, Seq)>,
}

/// Settings that a client may choose.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) cwd: PathBuf,
    pub(super) first_cwd: PathBuf,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) max_tokens: Option<u64>,
    pub(super) reasoning_effort: Option<String>,
    pub(super) mode: PermissionMode,
    /// What it may use; of who names none, the configured one holds.
    pub(super) budget: Budget,
    /// A client changed the route since the last step began: the header of that step does not undo it.
    pub(super) updated: bool,
}

/// A session, folded from its events.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) last: Option<Seq>,
    /// Messages that wait for a turn each.
    pub(super) queue: VecDeque<Queued>,
    /// Messages that wait for the next step.
    pub(super) steering: VecDeque<Queued>,
    /// Background jobs whose end is not in the log.
    pub(super) jobs: Vec<JobRegistered>,
    pub(super) turn: Option<OpenTurn>,
    /// The prompt of the last turn.
    pub(super) claimed: Option<Arc<Message>>,
    pub(super) turns: u32,
    pub(super) keys: VecDeque<Keyed>,
    pub(super) title: Option<String>,
    /// A client chose the title.
    pub(super) renamed: bool,
    /// Its permission mode was changed since it began.
    pub(super) mode_changed: bool,
    /// What the model has seen, a system message first.
    pub(super) conversation: Vec<Told>,
    /// Sessions that work for a call of the open turn.
    pub(super) children: Vec<SessionId>,
    pub(super) header: Option<Arc<RequestHeader>>,
    pub(super) context: Option<RequestContext>,
    /// What it has used.
    pub(super) totals: Totals,
    /// The size of the conversation, as the provider told it last.
    pub(super) measured: Option<Measured>,
    /// The compaction that is under way.
    pub(super) compaction: Option<String>,
    /// Calls of the open turn that wait for an approval.
    pub(super) approvals: Vec<ApprovalAsked>,
    /// What clients have allowed for the session, oldest first.
    pub(super) rules: VecDeque<Rule>,
}

impl State {
    /// A session that has no events yet.
    pub(super) fn new(new: &NewSession, cwd: PathBuf, mode: PermissionMode) -> Self {
        Self {
            settings: Settings {
                first_cwd: cwd.clone(),
                cwd,
                provider: new.provider.clone(),
                model: new.model.clone(),
                max_tokens: new.max_tokens,
                reasoning_effort: new.reasoning_effort.clone(),
                mode: new.permission_mode.unwrap_or(mode).min(new.mode_max),
                budget: new.budget,
                updated: false,
            },
            last: None,
            queue: VecDeque::new(),
            steering: VecDeque::new(),
            jobs: Vec::new(),
            turn: None,
            claimed: None,
            turns: 0,
            keys: VecDeque::new(),
            title: None,
            renamed: false,
            mode_changed: false,
            conversation: Vec::new(),
            children: Vec::new(),
            header: None,
            context: None,
            totals: Totals::default(),
            measured: None,
            compaction: None,
            approvals: Vec::new(),
            rules: VecDeque::new(),
        }
    }

    /// Takes an event into account. `replayed`: it comes from the log of an earlier life.
    pub(super) fn apply(&mut self, event: &SessionEvent, replayed: bool) {
        self.last = Some(event.seq);
        match &event.body {
            EventBody::InboxSpliced(splice) => self.apply_splice(splice, event, replayed),
            EventBody::TurnStart(start) => self.apply_start(start.turn, event.time_ms),
            EventBody::TurnEnd(end) => self.apply_end(end, event.seq),
            EventBody::StepStart(mark) => {
                self.settings.updated = false;
                self.with_turn(|turn| turn.step = Some(mark.step));
            }
            EventBody::StepEnd(_) => self.with_turn(|turn| {
                turn.step = None;
                turn.calls.clear();
            }),
            EventBody::SystemMessage(system) => self.apply_system(event.seq, &system.message),
            EventBody::UserMessage(message) => self.apply_message(event, message),
            EventBody::AssistantMessage(answer) => {
                let calls = open_calls(&answer.message);
                self.with_turn(|turn| turn.calls = calls);
                self.apply_message(event, &answer.message);
                self.totals.add(answer.usage.as_ref(), answer.cost);
                self.measured = Measured::of(answer.usage.as_ref(), self.conversation.len());
            }
            EventBody::ToolCall(call) => self.with_turn(|turn| {
                if let Some(open) = turn.calls.iter_mut().find(|open| open.id == call.call_id) {
                    open.started = Some(event.seq);
                }
            }),
            EventBody::ToolResult(result) => {
                let answered = result.message.tool_call_id.clone();
                self.with_turn(|turn| turn.calls.retain(|call| Some(&call.id) != answered.as_ref()));
                self.apply_message(event, &result.message);
            }
            EventBody::RequestHeader(header) => self.apply_header(header),
            EventBody::RequestContext(context) => self.context = Some(context.clone()),
            EventBody::JobRegistered(job) => self.jobs.push(job.clone()),
            EventBody::JobSettled(settled) => self.jobs.retain(|job| job.job_id != settled.job_id),
            EventBody::SessionTitle(title) if !self.renamed => self.title = Some(title.title.clone()),
            EventBody::WorkingDirectoryChange(change) => self.settings.cwd = PathBuf::from(&change.cwd),
            EventBody::PermissionPreset(preset) => {
                // The first one stands right behind the log's opening.
                self.mode_changed |= event.seq > Seq(1);
                self.settings.mode = preset.preset;
            }
            EventBody::SessionUpdate(update) => self.apply_update(update),
            EventBody::SubagentStarted(started) => self.children.push(started.child_session_id.clone()),
            EventBody::SubagentFinished(finished) => {
                self.children.retain(|child| *child != finished.child_session_id);
                if let Some(used) = &finished.totals {
                    self.totals.add(Some(&used.usage), used.cost);
                }
            }
            EventBody::CompactionStart(start) => self.compaction = Some(start.compaction_id.clone()),
            EventBody::CompactionEnd(_) => self.compaction = None,
            EventBody::CompactionSummary(summary) => {
                self.totals.add(summary.usage.as_ref(), summary.cost);
            }
            EventBody::ApprovalAsked(asked) => self.approvals.push(asked.clone()),
            EventBody::ApprovalDecided(decided) => self.apply_decided(decided),
            EventBody::SessionOpened(_)
            | EventBody::SessionTitle(_)
            | EventBody::SandboxMode(_)
            | EventBody::ApprovalPolicy(_)
            | EventBody::AssistantAttempt(_)
            | EventBody::LlmRetry(_)
            | EventBody::LlmRetryStarted(_)
            | EventBody::TodoWrite(_)
            | EventBody::SubagentCatalog(_)
            | EventBody::Ignorable { .. } => {}
        }
    }

    /// Whether a prompt that says `reject` is refused: a turn runs or is queued by this life.
    pub(super) fn busy_with(&self) -> Option<(MessageId, u64)> {
        if let Some(turn) = &self.turn {
            return turn.message_id.clone().map(|id| (id, turn.since_ms));
        }
        self.queue
            .iter()
            .find(|queued| !queued.recovered)
            .map(|queued| (queued.message.id.clone(), queued.since_ms))
    }

    /// What the model said last since the prompt of the last turn.
    pub(super) fn last_answer(&self) -> Option<Arc<Message>> {
        let claimed = self.claimed.as_ref().map(|message| &message.id);
        let since = self.conversation.iter().rev().take_while(|told| Some(&told.message.id) != claimed);
        since.map(|told| &told.message).find(|message| message.role == Role::Assistant).cloned()
    }

    /// The remembered prompt with this key.
    pub(super) fn keyed(&self, key: &str) -> Option<&Keyed> {
        self.keys.iter().find(|keyed| keyed.key == key)
    }

    fn apply_start(&mut self, turn: u32, since_ms: u64) {
        self.turns = turn;
        let (message_id, steered, step, calls) = (None, Vec::new(), None, Vec::new());
        self.turn = Some(OpenTurn { turn, message_id, steered, since_ms, step, calls });
    }

    fn apply_end(&mut self, end: &TurnEnd, seq: Seq) {
        let Some(turn) = self.turn.take() else { return };
        for message_id in turn.message_id.iter().chain(&turn.steered) {
            self.note_outcome(message_id, &end.reason, seq);
        }
    }

    fn apply_system(&mut self, seq: Seq, message: &Message) {
        let told = Told { seq, message: Arc::new(message.clone()) };
        match self.conversation.first_mut() {
            Some(first) if first.message.role == Role::System => *first = told,
            _ => self.conversation.insert(0, told),
        }
    }

    /// A message is added at the end, or stands in place of those that it cites. (Positions of messages do not grow
    /// along the conversation once one was replaced, so a range of them says less.) The instructions always stay.
    fn apply_message(&mut self, event: &SessionEvent, message: &Message) {
        let told = Told { seq: event.seq, message: Arc::new(message.clone()) };
        let Some(SurfaceOp::Replace { start, end }) = event.surface_op else {
            return self.conversation.push(told);
        };
        self.measured = None;
        let cited: HashSet<Seq> = event.source_event_seqs.iter().copied().collect();
        let shadowed = |old: &Told| {
            let hit =
                if cited.is_empty() { (start..=end).contains(&old.seq) } else { cited.contains(&old.seq) };
            hit && old.message.role != Role::System
        };
        let at = self.conversation.iter().position(shadowed).unwrap_or(self.conversation.len());
        self.conversation.retain(|old| !shadowed(old));
        self.conversation.insert(at, told);
    }

    fn apply_header(&mut self, header: &RequestHeader) {
        let config = &header.header.config;
        if !self.settings.updated {
            self.settings.provider.clone_from(&config.provider);
            self.settings.model.clone_from(&config.model);
            self.settings.max_tokens = config.max_tokens;
            self.settings.reasoning_effort.clone_from(&config.reasoning_effort);
        }
        self.header = Some(Arc::new(header.clone()));
    }

    pub(super) fn apply_update(&mut self, update: &SessionUpdate) {
        let settings = &mut self.settings;
        settings.updated = true;
        settings.budget.apply(update);
        if let Some(model) = &update.model {
            settings.model.clone_from(model);
        }
        if let Some(provider) = &update.provider {
            settings.provider.clone_from(provider);
        }
        if let Some(effort) = &update.reasoning_effort {
            settings.reasoning_effort = Some(effort.clone());
        }
        if let Some(max_tokens) = update.max_tokens {
            settings.max_tokens = Some(max_tokens);
        }
        if let Some(mode) = update.permission_mode {
            settings.mode = mode;
        }
        if let Some(revoked) = &update.revoked_rule {
            self.rules.retain(|rule| rule.id != *revoked);
        }
        if let Some(title) = &update.title {
            self.title = Some(title.clone());
            self.renamed = true;
        }
    }

    fn with_turn(&mut self, change: impl FnOnce(&mut OpenTurn)) {
        if let Some(turn) = &mut self.turn {
            change(turn);
        }
    }

    fn remember(&mut self, key: &str, message: &Message) {
        self.keys.retain(|keyed| keyed.key != key);
        if self.keys.len() >= KEYS_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back(Keyed {
            key: key.to_owned(),
            message_id: message.id.clone(),
            hash: content_hash(&message.content),
            outcome: None,
        });
    }

    fn note_outcome(&mut self, message_id: &MessageId, reason: &TurnEndReason, seq: Seq) {
        if let Some(keyed) = self.keys.iter_mut().find(|keyed| keyed.message_id == *message_id) {
            keyed.outcome = Some((reason.clone(), seq));
        }
    }
}

/// A digest of a prompt's content.
pub(super) fn content_hash(content: &[Block]) -> ContentHash {
    let mut hasher = Sha256::new();
    for block in content {
        let (tag, text) = match block {
            Block::Text { text } => (b't', text),
            Block::Reasoning { text } => (b'r', text),
            Block::ToolCall { arguments, .. } => (b'c', arguments),
            Block::Image { attachment } => (b'i', &attachment.attachment_id),
        };
        hasher.update([tag]);
        hasher.update(text.len().to_be_bytes());
        hasher.update(text);
    }
    hasher.finalize().into()
}

fn open_calls(message: &Message) -> Vec<OpenCall> {
    let mut calls = Vec::new();
    for block in &message.content {
        if let Block::ToolCall { id, name, .. } = block {
            calls.push(OpenCall { id: id.clone(), name: name.clone(), started: None });
        }
    }
    calls
}
