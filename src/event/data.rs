//! What each type of event carries: one struct a type, named for it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AbortCause, Cost, Epoch, Failure, Message, Seq, ToolSpec, Totals, Usage};

macro_rules! data {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident : $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
        )*
    };
}

data! {
    /// `session/opened` (ours): a log was opened for writing.
    SessionOpened {
        /// The new life of the log.
        epoch: Epoch,
        /// What recovery did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recovered: Option<Recovered>,
    }
    /// What recovery had to do at open.
    Recovered {
        /// Bytes of a torn tail that were cut.
        cut_bytes: u64,
        /// The turn that a crash had left open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closed_turn: Option<u32>,
    }
    /// `permission/preset`.
    PermissionPreset {
        /// The mode, in DSH's spelling.
        preset: PermissionMode,
    }
    /// `sandbox/mode`.
    SandboxMode {
        /// The mode, in DSH's spelling.
        mode: PermissionMode,
    }
    /// `approval/policy`.
    ApprovalPolicy {
        /// `ask` or `never`.
        policy: AskPolicy,
    }
    /// `agent/inbox/spliced`: prompts came into or left a list.
    InboxSpliced {
        /// Which list.
        target: InboxTarget,
        /// Index in that list.
        start: u32,
        /// How many left it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        removed_count: Option<u32>,
        /// Why they left, when not to be run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<SpliceOutcome>,
        /// What came in.
        #[serde(default)]
        inserted: Vec<Message>,
        /// The client's key for this prompt (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<String>,
    }
    /// `turn/start`.
    TurnStart {
        /// Turns count from 1 and go on across resumes.
        turn: u32,
    }
    /// `turn/end`.
    TurnEnd {
        /// Which turn.
        turn: u32,
        /// How it ended.
        reason: TurnEndReason,
        /// What the session has used so far (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        totals: Option<Totals>,
        /// The session's title, where a client chose it: so a log's end tells it (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The permission mode, where it was changed: so a log's end tells it (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permission_mode: Option<PermissionMode>,
    }
    /// `step/start` and `step/end`.
    StepMark {
        /// Which turn.
        turn: u32,
        /// Steps count from 1 in each turn.
        step: u32,
    }
    /// `system/message`.
    SystemMessage {
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// The instructions.
        message: Message,
    }
    /// `assistant/message`.
    AssistantMessage {
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// What the model said.
        message: Message,
        /// What it cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The same in the provider's currency, where prices are configured (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
        /// Set on the prefix kept from a cancelled call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupted: bool,
    }
    /// `assistant/attempt`: a model call that gave no committed message.
    AssistantAttempt {
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// Why it failed.
        failure: Failure,
        /// Text that had arrived.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    }
    /// `tool/call`: a call starts.
    ToolCallStarted {
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// The call's id.
        call_id: String,
        /// The tool.
        name: String,
        /// The raw arguments.
        arguments: String,
    }
    /// `tool/result`.
    ToolResult {
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// What the model is told.
        message: Message,
        /// The failure's code for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolErrorInfo>,
        /// Facts for viewers; shape by tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meta: Option<Box<RawValue>>,
    }
    /// Name and code of a failed call.
    #[derive(PartialEq, Eq)]
    ToolErrorInfo {
        /// Family, e.g. `FsError`.
        name: String,
        /// Code, e.g. `FS_NOT_FOUND`.
        code: String,
    }
    /// `request/header`: what is constant over the model requests that follow.
    RequestHeader {
        /// The constant part.
        header: RequestHeaderBody,
        /// `initial`, `resume` or `change`.
        reason: String,
    }
    /// The constant part of model requests.
    RequestHeaderBody {
        /// Route and settings.
        config: RequestConfig,
        /// The tools offered.
        tools: Vec<ToolSpec>,
    }
    /// Route and settings of model requests.
    #[derive(PartialEq, Eq)]
    RequestConfig {
        /// The route's provider.
        provider: String,
        /// The route's model.
        model: String,
        /// Output limit in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<u64>,
        /// How hard to think.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
    }
    /// `request/context`.
    #[derive(PartialEq, Eq)]
    RequestContext {
        /// The route's provider.
        provider: String,
        /// The route's model.
        model: String,
        /// Tokens that the model reads at most.
        context_window: u64,
    }
    /// `session/title`.
    SessionTitle {
        /// The title.
        title: String,
        /// The messages that it was made of.
        message_seqs: Vec<Seq>,
        /// How it was made.
        source: TitleSource,
    }
    /// How a title was made.
    TitleSource {
        /// `fallback` or `user`.
        kind: String,
    }
    /// `llm/retry`: a call failed and will be made again.
    LlmRetry {
        /// Joins this with its `llm/retry-started`.
        retry_id: String,
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// The provider.
        provider: String,
        /// Which retry, from 1.
        retry: u32,
        /// How many at most.
        max_retries: u32,
        /// The pause before it, in milliseconds.
        delay_ms: u64,
        /// Why the call failed.
        failure: Failure,
    }
    /// `llm/retry-started`.
    LlmRetryStarted {
        /// The `llm/retry` that this belongs to.
        retry_id: String,
        /// Which turn.
        turn: u32,
        /// Which step.
        step: u32,
        /// Which retry, from 1.
        retry: u32,
    }
    /// `working-directory/change`.
    WorkingDirectoryChange {
        /// The new directory, absolute.
        cwd: String,
    }
    /// `session/update` (ours): what changed.
    #[derive(Default, PartialEq, Eq)]
    SessionUpdate {
        /// New model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// New provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// New effort.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
        /// New output limit in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<u64>,
        /// New permission mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permission_mode: Option<PermissionMode>,
        /// New title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// New budget in tokens; 0: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_tokens: Option<u64>,
        /// New budget in the provider's currency; 0: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_cost: Option<Cost>,
        /// A rule that holds no longer: the id of the approval that made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revoked_rule: Option<String>,
    }
}

/// Whether calls outside the mode are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskPolicy {
    /// They are, when somebody is there who can answer.
    Ask,
    /// They are refused.
    Never,
}

/// The lists that prompts wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InboxTarget {
    /// Prompts, each its own turn.
    NextTurn,
    /// Steering for the running turn.
    NextStep,
}

/// Why prompts left the inbox without being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpliceOutcome {
    /// A client cancelled it.
    Canceled,
}

/// What an agent may touch, in the spelling of DSH's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// Nothing may change.
    ReadOnly,
    /// The workspace may change.
    WorkspaceWrite,
    /// Anything; `full-access` on our own wire and command line.
    #[serde(rename = "danger-full-access", alias = "full-access")]
    FullAccess,
}

impl PermissionMode {
    /// Its name on our own wire, on the command line and in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::FullAccess => "full-access",
        }
    }

    /// The mode of such a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::ReadOnly, Self::WorkspaceWrite, Self::FullAccess]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TurnEndReason {
    /// The model had said all.
    Completed,
    /// The model's output limit was reached.
    MaxTokens,
    /// It failed.
    Error {
        /// Why.
        error: Failure,
    },
    /// Somebody ended it.
    Aborted {
        /// Who.
        reason: AbortCause,
    },
    /// The provider's filter stopped it.
    Blocked,
    /// A crash ended it; written at the next open.
    Interrupted,
}

/// How an event changes what the model sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurfaceOp {
    /// Added at the end.
    Append,
    /// Stands in place of a range.
    Replace {
        /// First event replaced.
        start: Seq,
        /// Last event replaced.
        end: Seq,
    },
}

impl Serialize for SurfaceOp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Replace {
            op: &'static str,
            start_seq: Seq,
            end_seq: Seq,
        }
        match *self {
            Self::Append => serializer.serialize_str("append"),
            Self::Replace { start, end } => {
                Replace { op: "replace", start_seq: start, end_seq: end }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for SurfaceOp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Replace {
            start_seq: Seq,
            end_seq: Seq,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get() == "\"append\"" {
            return Ok(Self::Append);
        }
        let range: Replace = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(Self::Replace { start: range.start_seq, end: range.end_seq })
    }
}
