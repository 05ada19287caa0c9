//! What the events of an agent's own work carry: its list of tasks, background jobs, delegation, compaction.

use serde::{Deserialize, Serialize};

use super::{Block, Cost, Epoch, Seq, SessionId, Totals, Usage};

macro_rules! data {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident : $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
        )*
    };
}

data! {
    /// `approval/asked`: a call waits until somebody allows it.
    ApprovalAsked {
        /// Its id, the same for whoever hears of it.
        id: String,
        /// The tool.
        tool_name: String,
        /// The call.
        call_id: String,
        /// What it wants that the session's mode does not allow.
        reason: String,
        /// The command that would run, whole (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// What would change, as a unified diff (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        /// What `allow_session` would allow from then on; none: nothing more than this call (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// When it is rejected by itself, in epoch milliseconds (ours).
        deadline: u64,
    }
    /// `approval/decided`: what became of it.
    ApprovalDecided {
        /// Which.
        id: String,
        /// What.
        outcome: ApprovalOutcome,
        /// Who decided (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// `todo/write`: the whole list of tasks.
    TodoWrite {
        /// The tasks, in order.
        todos: Vec<Todo>,
    }
    /// A task of the list.
    Todo {
        /// What is to be done.
        content: String,
        /// How far it is.
        status: TodoStatus,
    }
    /// `job/registered`: a background job runs.
    JobRegistered {
        /// Its id, e.g. `bash-63ce…`.
        job_id: String,
        /// The session that it belongs to.
        owner: SessionId,
        /// The tool that started it.
        kind: String,
        /// The command.
        label: String,
        /// When it started, in epoch milliseconds.
        started_at: u64,
        /// The call that started it.
        tool_call: JobCall,
    }
    /// `job/settled`: a background job ended.
    JobSettled {
        /// Its id.
        job_id: String,
        /// The session that it belongs to.
        owner: SessionId,
        /// The tool that started it.
        kind: String,
        /// The command.
        label: String,
        /// When it started, in epoch milliseconds.
        started_at: u64,
        /// The call that started it.
        tool_call: JobCall,
        /// When it ended, in epoch milliseconds.
        finished_at: u64,
        /// How it ended.
        status: JobStatus,
        /// How, for a person, e.g. `exit code: 3`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    }
    /// The call that started a job.
    JobCall {
        /// Its id.
        call_id: String,
    }
    /// `subagent/catalog`, on the parent: a child session exists.
    SubagentCatalog {
        /// Version of this shape: 0.
        version: u32,
        /// The child session.
        child_id: SessionId,
        /// When it was created, in epoch milliseconds.
        child_created_at: u64,
        /// `continuable`: it can be prompted again.
        mode: String,
        /// What it is for.
        label: String,
    }
    /// `subagent/started` (ours), on the parent.
    SubagentStarted {
        /// The child session.
        child_session_id: SessionId,
        /// The call that it works for.
        call_id: String,
    }
    /// `subagent/finished` (ours), on the parent: the child's turn ended.
    SubagentFinished {
        /// The child session.
        child_session_id: SessionId,
        /// The life of its log; absent when a crash lost it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child_epoch: Option<Epoch>,
        /// Its last event; absent when it wrote none, or a crash lost it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child_last_seq: Option<Seq>,
        /// `ok` or `error`.
        status: String,
        /// Why it stopped.
        stop_reason: StopReason,
        /// What it said last; absent when it said nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_assistant_message: Option<Vec<Block>>,
        /// What it has used; counts to its parent's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        totals: Option<Totals>,
    }
    /// `compaction/start`.
    CompactionStart {
        /// Joins the events of one compaction.
        compaction_id: String,
        /// The turn that it happens in.
        turn: u32,
    }
    /// `compaction/summary`: what stands in place of what was said.
    CompactionSummary {
        /// Joins the events of one compaction.
        compaction_id: String,
        /// The summary.
        summary: Vec<Block>,
        /// The range that it stands for.
        shadowed_range: ShadowedRange,
        /// The model-visible events in that range.
        shadowed_seqs: Vec<Seq>,
        /// Their size in tokens, estimated.
        shadowed_token_count: u64,
        /// The route that wrote it.
        provider: String,
        /// Its model.
        model: String,
        /// What that cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The same in the provider's currency, where prices are configured (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
    }
    /// A range of events, ends included.
    ShadowedRange {
        /// The first.
        start: Seq,
        /// The last.
        end: Seq,
    }
    /// `compaction/end`.
    CompactionEnd {
        /// Joins the events of one compaction.
        compaction_id: String,
        /// Why nothing was compacted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }
    /// What an image block names: the bytes are a blob of the session.
    Attachment {
        /// Its name in the session.
        attachment_id: String,
        /// Its type, e.g. `image/png`.
        media_type: String,
        /// Its size.
        bytes: u64,
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
        /// The file's name, when it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    }
}

/// What became of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalOutcome {
    /// This call runs.
    AllowedOnce,
    /// It runs, and so does every later one of its rule in this session.
    AllowedSession,
    /// It does not run.
    Rejected,
    /// Its turn ended.
    Cancelled,
    /// Nobody was there who could answer.
    Unavailable,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Worked on.
    InProgress,
    /// Done.
    Completed,
}

/// How a background job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// By itself, with whatever exit code.
    Completed,
    /// By a signal that was not ours.
    Failed,
    /// We ended it.
    Killed,
}

/// Why a subagent stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// It had said all.
    Completed,
    /// Its output limit was reached.
    MaxTokens,
    /// Somebody ended it.
    Aborted,
    /// It failed.
    Error,
    /// Its model refused.
    Refusal,
}
