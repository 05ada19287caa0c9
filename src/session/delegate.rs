//! Delegation: a turn's calls that are worked on by another session of the same runtime, a child with its own log.
//!
//! A child has exactly one end on its parent, whatever happens: this tells it when it can, and the actor when this was
//! dropped (`decide_end`). Waits never nest: when all places are taken, the model is told.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::mailbox::{Command, PromptAnswers};
use super::registry::Shared;
use super::{Answer, NewSession, Position, PromptRequest, SessionError, Settled, WhenBusy};
use crate::clock::now_ms;
use crate::event::{
    AbortCause, Block, EventBody, FailureCode, Message, PermissionMode, Seq, SessionId, StopReason,
    SubagentCatalog, SubagentFinished, SubagentStarted, Totals, TurnEndReason,
};
use crate::tool::{Delegate, DelegateError, Delegated, Delegation};
use crate::turn::{FactEvent, Facts};

/// Of a child's last message, as JSON in the parent's log; the child's own log has all of it.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Runs the subagents of one turn.
pub(super) struct Spawner {
    pub(super) shared: Arc<Shared>,
    pub(super) parent: SessionId,
    /// What children are made with.
    pub(super) new: NewSession,
    /// Where the parent's events go.
    pub(super) facts: Facts,
    pub(super) places: Semaphore,
    pub(super) places_max: usize,
}

impl Spawner {
    /// For a turn of `parent`, whose children are made as `new` says.
    pub(super) fn of(shared: &Arc<Shared>, parent: &SessionId, new: NewSession, facts: Facts) -> Self {
        let places_max = shared.config.borrow().limits.subagents.min(Semaphore::MAX_PERMITS);
        let (shared, parent) = (shared.clone(), parent.clone());
        Self { shared, parent, new, facts, places: Semaphore::new(places_max), places_max }
    }

    async fn run(
        &self,
        delegation: Delegation,
        cancel: &CancellationToken,
    ) -> Result<Delegated, DelegateError> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(DelegateError::Full { max: self.places_max });
        };
        let child = SessionId::random();
        let cwd: Option<PathBuf> = delegation.cwd.clone().or_else(|| self.new.cwd.clone());
        let parent = Some(self.parent.clone());
        let new = NewSession { cwd, permission_mode: Some(delegation.mode), parent, ..self.new.clone() };
        let (answer_by, created) = Answer::channel();
        self.shared.submit(&child, Command::Create { new: Box::new(new.clone()), answer: answer_by });
        created.await.map_err(|error| failed(&error))?;
        // Kept, since a session that has left memory is not found any more.
        let feed = self.shared.feed(&child);
        let mut leash = Leash { shared: &self.shared, child: &child, ended: false };
        self.tell_started(&child, &delegation).await?;
        let settled = self.work(&child, new, delegation.prompt, cancel).await;
        let totals = feed.as_ref().and_then(|feed| feed.totals());
        // Its log stays, and whoever prompts it brings it back; what its commands left in the background does not.
        retire(&self.shared, &child).await;
        leash.ended = true;
        let place = Place { position: feed.map(|feed| feed.position().0), totals };
        self.tell_finished(child.clone(), settled, place).await
    }

    async fn tell_started(&self, child: &SessionId, delegation: &Delegation) -> Result<(), DelegateError> {
        let catalog = EventBody::SubagentCatalog(SubagentCatalog {
            version: 0,
            child_id: child.clone(),
            child_created_at: now_ms(),
            mode: "continuable".to_owned(),
            label: delegation.description.clone(),
        });
        let started = EventBody::SubagentStarted(SubagentStarted {
            child_session_id: child.clone(),
            call_id: delegation.call_id.clone(),
        });
        self.tell(vec![catalog.into(), started.into()]).await
    }

    /// Prompts the child and waits for its end. A cancel is passed on, and its end waited for all the same.
    async fn work(
        &self,
        child: &SessionId,
        new: NewSession,
        prompt: String,
        cancel: &CancellationToken,
    ) -> Result<Settled, SessionError> {
        let (accepted_by, accepted) = Answer::channel();
        let (durable_by, _) = Answer::channel();
        let (settled_by, settled) = Answer::channel();
        let answers = PromptAnswers { accepted: accepted_by, durable: durable_by, settled: settled_by };
        let request = PromptRequest {
            content: vec![Block::text(prompt)],
            pictures: Vec::new(),
            when_busy: WhenBusy::Queue,
            idempotency_key: None,
            mode_max: PermissionMode::FullAccess,
            receipt: false,
        };
        self.shared.submit(child, Command::Prompt { new: Box::new(new), request, answers });
        accepted.await?;
        let mut settled = settled.fuse();
        tokio::select! {
            biased;
            settled = &mut settled => return settled,
            () = cancel.cancelled() => {}
        }
        let (answer, _) = Answer::channel();
        let cancel = Command::Cancel { message_id: None, cause: AbortCause::Parent, answer };
        if self.shared.submit_loaded(child, cancel).is_err() {
            return Err(SessionError::Closed(child.clone()));
        }
        settled.await
    }

    async fn tell_finished(
        &self,
        child: SessionId,
        settled: Result<Settled, SessionError>,
        place: Place,
    ) -> Result<Delegated, DelegateError> {
        let (stop, detail) = match &settled {
            Ok(settled) => stop_of(&settled.reason),
            Err(SessionError::ShuttingDown { .. } | SessionError::Closed(_)) => {
                (StopReason::Aborted, Some("its session was closed".to_owned()))
            }
            Err(error) => (StopReason::Error, Some(error.to_string())),
        };
        let as_success = self.shared.config.borrow().sessions.max_tokens_as_success;
        let ok = stop == StopReason::Completed || (stop == StopReason::MaxTokens && as_success);
        let answer = settled.ok().and_then(|settled| settled.answer).and_then(|message| said(&message));
        let finished = EventBody::SubagentFinished(SubagentFinished {
            child_session_id: child.clone(),
            child_epoch: place.position.map(|position| position.epoch),
            child_last_seq: place.position.and_then(|position| position.last),
            status: if ok { "ok" } else { "error" }.to_owned(),
            stop_reason: stop,
            last_assistant_message: answer.clone(),
            totals: place.totals,
        });
        self.tell(vec![finished.into()]).await?;
        Ok(Delegated { child, stop, detail, answer })
    }

    async fn tell(&self, events: Vec<FactEvent>) -> Result<(), DelegateError> {
        let told: Result<Seq, _> = self.facts.tell(events).await;
        told.map(drop).map_err(|_| DelegateError::Failed("the session's storage failed".to_owned()))
    }
}

impl Delegate for Spawner {
    fn delegate<'a>(
        &'a self,
        delegation: Delegation,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Delegated, DelegateError>> {
        Box::pin(self.run(delegation, cancel))
    }
}

/// Where a child's log ends, and what it used.
struct Place {
    position: Option<Position>,
    totals: Option<Totals>,
}

/// Ends what a child's commands left, and lets it leave memory.
pub(super) async fn retire(shared: &Arc<Shared>, child: &SessionId) {
    let (answer, retired) = Answer::channel();
    if shared.submit_loaded(child, Command::Retire { answer }).is_ok() {
        // A session that is gone has nothing left.
        let _ = retired.await;
    }
}

/// Ends a child whose turn was dropped before it ended.
struct Leash<'a> {
    shared: &'a Arc<Shared>,
    child: &'a SessionId,
    ended: bool,
}

impl Drop for Leash<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (answer, _) = Answer::channel();
            let cancel = Command::Cancel { message_id: None, cause: AbortCause::Parent, answer };
            let _ = self.shared.submit_loaded(self.child, cancel);
            // One that was not prompted yet has nothing to cancel, and nobody else knows it.
            let _ = self.shared.submit_loaded(self.child, Command::Unload);
        }
    }
}

fn failed(error: &SessionError) -> DelegateError {
    DelegateError::Failed(error.to_string())
}

fn stop_of(reason: &TurnEndReason) -> (StopReason, Option<String>) {
    match reason {
        TurnEndReason::Completed => (StopReason::Completed, None),
        TurnEndReason::MaxTokens => {
            (StopReason::MaxTokens, Some("its model reached the output limit".to_owned()))
        }
        TurnEndReason::Error { error } if error.code == FailureCode::Aborted => {
            (StopReason::Aborted, Some(error.message.clone()))
        }
        TurnEndReason::Error { error } => (StopReason::Error, Some(error.message.clone())),
        TurnEndReason::Aborted { .. } => (StopReason::Aborted, Some("it was cancelled".to_owned())),
        TurnEndReason::Blocked => (StopReason::Refusal, Some("its provider's filter stopped it".to_owned())),
        TurnEndReason::Interrupted => (StopReason::Error, Some("it was interrupted".to_owned())),
    }
}

/// What a message says to others: its blocks without calls; as much as an event has room for.
fn said(message: &Message) -> Option<Vec<Block>> {
    let mut blocks = message.content.clone();
    blocks.retain(|block| !matches!(block, Block::ToolCall { .. }));
    let bytes = serde_json::to_vec(&blocks).map_or(usize::MAX, |json| json.len());
    if bytes > ANSWER_BYTES_MAX {
        let text = message.text();
        // An escape takes at most six bytes a byte.
        let cut = &text[..text.floor_char_boundary(ANSWER_BYTES_MAX / 6)];
        blocks = vec![Block::text(format!("{cut}\n[... cut; the session has all of it ...]"))];
    }
    (!blocks.is_empty()).then_some(blocks)
}
