//! The `session/…` methods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Amount, ContentBlock, LastSeq, Mode, PositiveInt, SessionStatus, Since, WhenBusy};
use crate::event::{ApprovalAsked, ApprovalOutcome, Epoch, MessageId, Seq, SessionId, Totals, TurnEndReason};

macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident : $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
        )*
    };
}

wire! {
    /// Parameters of the methods that take a session and nothing else.
    SessionParams {
        /// Which.
        session_id: SessionId,
    }
    /// Parameters of `session/prompt`.
    PromptParams {
        /// Which session; made when unknown.
        session_id: SessionId,
        /// What to say; one or more.
        content_blocks: Vec<ContentBlock>,
        /// What to do while a turn runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        when_busy: Option<WhenBusy>,
        /// The same key again gets the first outcome and starts nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<String>,
    }
    /// Result of `session/prompt` in receipt mode.
    Receipt {
        /// The prompt's message.
        message_id: MessageId,
    }
    /// Result of `session/prompt` in settled mode.
    SettledPrompt {
        /// The prompt's message.
        message_id: MessageId,
        /// The outcome in a word.
        status: SettledStatus,
        /// The `reason` of its `turn/end`.
        reason: TurnEndReason,
    }
    /// Parameters of `session/cancel`.
    CancelParams {
        /// Which session.
        session_id: SessionId,
        /// Which prompt; none: the running turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<MessageId>,
    }
    /// Result of `session/cancel`.
    CancelResult {
        /// Whether anything was cancelled.
        cancelled: bool,
    }
    /// Parameters of `session/create`.
    #[derive(Default)]
    CreateParams {
        /// Its id; none: a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
        /// Its directory, absolute; none: the connection's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Its provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// Its model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Its output limit in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<PositiveInt>,
        /// How hard to think.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
        /// What its agent may touch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permission_mode: Option<Mode>,
        /// Tokens that it may use in all; 0: any number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_tokens: Option<u64>,
        /// What it may cost in all, in the provider's currency; 0: anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_cost: Option<Amount>,
    }
    /// Parameters of `session/update`: any of the rest.
    UpdateParams {
        /// Which session.
        session_id: SessionId,
        /// Its provider; without a model, that provider's default one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// Its model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Its output limit in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<PositiveInt>,
        /// How hard to think.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
        /// What its agent may touch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permission_mode: Option<Mode>,
        /// Its title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Tokens that it may use in all; 0: any number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_tokens: Option<u64>,
        /// What it may cost in all, in the provider's currency; 0: anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_cost: Option<Amount>,
    }
    /// Result of `session/create`.
    CreateResult {
        /// Its id.
        session_id: SessionId,
        /// The life of its log.
        epoch: Epoch,
        /// Its last event.
        last_seq: LastSeq,
    }
    /// Result of `session/resume`.
    PositionResult {
        /// The life of its log.
        epoch: Epoch,
        /// Its last event.
        last_seq: LastSeq,
        /// Approvals that wait, asked before this.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvals: Vec<WaitingApproval>,
    }
    /// Parameters of `session/approval/answer`.
    AnswerParams {
        /// Which session: the one whose call asks.
        session_id: SessionId,
        /// Which approval.
        approval_id: String,
        /// The answer.
        outcome: AnswerOutcome,
    }
    /// Parameters of `session/approval/rules`.
    RulesParams {
        /// Which session.
        session_id: SessionId,
        /// A rule that holds no longer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revoke: Option<String>,
    }
    /// Result of `session/approval/rules`.
    RulesResult {
        /// What later calls of the session are allowed, oldest first.
        rules: Vec<ApprovalRule>,
    }
    /// What calls are allowed without being asked for.
    ApprovalRule {
        /// The approval that made it.
        id: String,
        /// The tool.
        tool_name: String,
        /// What a call must be.
        rule: String,
    }
    /// An approval that waits.
    WaitingApproval {
        /// The session whose call asks: the one asked for, or one that works for it.
        session_id: SessionId,
        /// The `data` of its `approval/asked`.
        approval: ApprovalAsked,
    }
    /// Parameters of `session/subscribe`.
    SubscribeParams {
        /// Which session.
        session_id: SessionId,
        /// The last event that is known; -1: none; left out: from now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Since>,
        /// The life of the log that `since` is of; not needed with -1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<Epoch>,
        /// Its descendants too; left out: yes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<bool>,
        /// The last events that are known of descendants; others are told from their start, if they began after
        /// `since`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        children: BTreeMap<SessionId, ChildCursor>,
    }
    /// Where a client is in a descendant.
    ChildCursor {
        /// The life of the log that `since` is of.
        epoch: Epoch,
        /// The last event that is known; -1: none.
        since: Since,
    }
    /// Result of `session/subscribe`.
    SubscribeResult {
        /// The life of its log.
        epoch: Epoch,
        /// Its last event.
        last_seq: LastSeq,
        /// Whether its agent works.
        status: SessionStatus,
        /// Approvals that wait, asked before this.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvals: Vec<WaitingApproval>,
    }
    /// Parameters of `session/blob`.
    BlobParams {
        /// Which session.
        session_id: SessionId,
        /// The `attachmentId` of an image block.
        attachment_id: String,
    }
    /// Result of `session/blob`.
    BlobResult {
        /// Its type, e.g. `image/png`.
        mime_type: String,
        /// Its bytes as base64.
        data: String,
    }
    /// Parameters of `session/read`.
    ReadParams {
        /// Which session.
        session_id: SessionId,
        /// The last event that is known; -1 or left out: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Since>,
        /// Events at most; 1 to 1000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<PositiveInt>,
    }
    /// Result of `session/read`.
    ReadResult {
        /// The events, in order.
        events: Vec<Box<RawValue>>,
        /// The life of the log now.
        epoch: Epoch,
        /// Its last event now.
        last_seq: LastSeq,
        /// Where to read on; only when more follow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_since: Option<Seq>,
    }
    /// Parameters of `session/list`.
    ListParams {
        /// Where the last page ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        /// Sessions at most; 1 to 200.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<PositiveInt>,
        /// Only those that began here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    }
    /// Result of `session/list`.
    ListResult {
        /// Newest first.
        sessions: Vec<ListedSession>,
        /// Pass it on for the next page; only when more follow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_cursor: Option<String>,
    }
    /// A session in a list.
    ListedSession {
        /// Its id.
        session_id: SessionId,
        /// Its title.
        title: Option<String>,
        /// Its directory.
        cwd: String,
        /// When it was made, in epoch milliseconds.
        created_at: u64,
        /// When its last event was written, in epoch milliseconds.
        updated_at: u64,
        /// Whether its agent works.
        status: SessionStatus,
        /// Its last event.
        last_seq: LastSeq,
        /// What it has used, as its last turn's end says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        totals: Option<Totals>,
        /// The session that delegated to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_session_id: Option<SessionId>,
        /// What its agent may touch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permission_mode: Option<Mode>,
        /// Approvals that wait in it and in those that work for it.
        #[serde(default, skip_serializing_if = "is_zero")]
        approvals: u64,
    }
    /// Result of `session/queue`.
    QueueResult {
        /// The prompt whose turn runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        running: Option<MessageId>,
        /// Those that wait, in order.
        queued: Vec<QueuedPrompt>,
    }
    /// A prompt that waits.
    QueuedPrompt {
        /// Its message.
        message_id: MessageId,
        /// What it says.
        text: String,
    }
    /// Parameters of `session/wait`.
    WaitParams {
        /// Which session.
        session_id: SessionId,
        /// How long to wait at most, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    }
    /// Parameters of `session/working-directory/get`.
    DirectoryParams {
        /// Which session; made in memory when unknown.
        session_id: SessionId,
    }
    /// Parameters of `session/working-directory/set`.
    SetDirectoryParams {
        /// Which session; made in memory when unknown.
        session_id: SessionId,
        /// The new directory, absolute or relative to the current one.
        path: String,
    }
    /// Result of both.
    DirectoryResult {
        /// The directory, absolute.
        cwd: String,
    }
}

/// An answer to an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOutcome {
    /// This call runs.
    AllowOnce,
    /// It runs, and so do later ones of its rule.
    AllowSession,
    /// It does not run.
    Reject,
}

impl From<AnswerOutcome> for ApprovalOutcome {
    fn from(outcome: AnswerOutcome) -> Self {
        match outcome {
            AnswerOutcome::AllowOnce => Self::AllowedOnce,
            AnswerOutcome::AllowSession => Self::AllowedSession,
            AnswerOutcome::Reject => Self::Rejected,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A settled prompt's outcome in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SettledStatus {
    /// The model had said all.
    Ok,
    /// Somebody ended it.
    Aborted,
    /// Anything else.
    Error,
}
