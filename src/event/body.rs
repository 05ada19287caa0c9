//! The events themselves: one struct a type, one table that names them, one codec that validates both ways.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AbortCause, Epoch, Failure, Message, Seq, ToolSpec, Usage};

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
        policy: String,
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
    }
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

/// Why a stored or offered event is not valid.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Not JSON, or not of the type's shape.
    #[error("event of type {kind}: {source}")]
    Shape {
        /// The event's type, or `?` when even that was unreadable.
        kind: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A type that this version does not know and that does not say `ignorable`.
    #[error("unknown event type {0}")]
    UnknownType(String),
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $variant:ident($data:ty) = $name:literal, $visible:literal;)*) => {
        /// What happened: an event's `type` and `data`.
        #[derive(Clone, Debug)]
        pub enum EventBody {
            $($(#[$doc])* $variant($data),)*
            /// A type that we do not know and may skip; kept as it was read.
            Ignorable {
                /// Its `type`.
                kind: String,
                /// Its `data`.
                data: Box<RawValue>,
            },
        }

        impl EventBody {
            /// The event's `type` on the wire.
            pub fn type_name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Ignorable { kind, .. } => kind,
                }
            }

            /// Whether the model sees it, so that it carries a `surfaceOp`.
            pub fn is_model_visible(&self) -> bool {
                match self {
                    $(Self::$variant(_) => $visible,)*
                    Self::Ignorable { .. } => false,
                }
            }

            fn encode_data(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                match self {
                    $(Self::$variant(data) => serde_json::to_writer(out, data),)*
                    Self::Ignorable { data, .. } => {
                        out.extend_from_slice(data.get().as_bytes());
                        Ok(())
                    }
                }
            }

            fn decode(kind: &str, data: &RawValue, ignorable: bool) -> Result<Self, EventError> {
                let shape = |source| EventError::Shape { kind: kind.to_owned(), source };
                match kind {
                    $($name => serde_json::from_str(data.get()).map(Self::$variant).map_err(shape),)*
                    _ if ignorable => Ok(Self::Ignorable { kind: kind.to_owned(), data: data.to_owned() }),
                    _ => Err(EventError::UnknownType(kind.to_owned())),
                }
            }
        }
    };
}

bodies! {
    /// The log was opened.
    SessionOpened(SessionOpened) = "session/opened", false;
    /// The permission mode.
    PermissionPreset(PermissionPreset) = "permission/preset", false;
    /// The sandbox's mode.
    SandboxMode(SandboxMode) = "sandbox/mode", false;
    /// Whether approvals are asked for.
    ApprovalPolicy(ApprovalPolicy) = "approval/policy", false;
    /// Prompts came or went.
    InboxSpliced(InboxSpliced) = "agent/inbox/spliced", false;
    /// A turn starts.
    TurnStart(TurnStart) = "turn/start", false;
    /// A turn ended.
    TurnEnd(TurnEnd) = "turn/end", false;
    /// A step starts.
    StepStart(StepMark) = "step/start", false;
    /// A step ended.
    StepEnd(StepMark) = "step/end", false;
    /// The instructions.
    SystemMessage(SystemMessage) = "system/message", true;
    /// A user's message, or context in a user's place.
    UserMessage(Message) = "user/message", true;
    /// The model's message.
    AssistantMessage(AssistantMessage) = "assistant/message", true;
    /// A failed model call.
    AssistantAttempt(AssistantAttempt) = "assistant/attempt", false;
    /// A tool call starts.
    ToolCall(ToolCallStarted) = "tool/call", false;
    /// A tool call's result.
    ToolResult(ToolResult) = "tool/result", true;
    /// Constant part of the requests.
    RequestHeader(RequestHeader) = "request/header", false;
    /// The model's window.
    RequestContext(RequestContext) = "request/context", false;
    /// The session's title.
    SessionTitle(SessionTitle) = "session/title", false;
    /// A retry was decided.
    LlmRetry(LlmRetry) = "llm/retry", false;
    /// A retry began.
    LlmRetryStarted(LlmRetryStarted) = "llm/retry-started", false;
    /// The working directory changed.
    WorkingDirectoryChange(WorkingDirectoryChange) = "working-directory/change", false;
    /// Settings changed.
    SessionUpdate(SessionUpdate) = "session/update", false;
}

/// A numbered fact of a session.
#[derive(Clone, Debug)]
pub struct SessionEvent {
    /// Its position.
    pub seq: Seq,
    /// When, in epoch milliseconds.
    pub time_ms: u64,
    /// What.
    pub body: EventBody,
    /// How it changes what the model sees.
    pub surface_op: Option<SurfaceOp>,
    /// Events that it rests on.
    pub source_event_seqs: Vec<Seq>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    seq: Seq,
    time: u64,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(default)]
    surface_op: Option<SurfaceOp>,
    #[serde(default)]
    source_event_seqs: Vec<Seq>,
    #[serde(default)]
    ignorable: bool,
}

impl SessionEvent {
    /// An event with the `surfaceOp` that its type asks for.
    pub fn new(seq: Seq, time_ms: u64, body: EventBody) -> Self {
        let surface_op = body.is_model_visible().then_some(SurfaceOp::Append);
        Self { seq, time_ms, body, surface_op, source_event_seqs: Vec::new() }
    }

    /// The event as one compact JSON object, the same bytes on the wire and (before the checksum) in the log.
    ///
    /// # Errors
    /// [`EventError::Shape`] when the data can't be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, EventError> {
        use std::io::Write as _;
        let kind = self.body.type_name();
        let shape = |source| EventError::Shape { kind: kind.to_owned(), source };
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(b"{\"type\":");
        serde_json::to_writer(&mut out, kind).map_err(shape)?;
        write!(out, ",\"seq\":{},\"time\":{},\"data\":", self.seq, self.time_ms)
            .map_err(|error| shape(serde_json::Error::io(error)))?;
        self.body.encode_data(&mut out).map_err(shape)?;
        if let Some(op) = &self.surface_op {
            out.extend_from_slice(b",\"surfaceOp\":");
            serde_json::to_writer(&mut out, op).map_err(shape)?;
        }
        if !self.source_event_seqs.is_empty() {
            out.extend_from_slice(b",\"sourceEventSeqs\":");
            serde_json::to_writer(&mut out, &self.source_event_seqs).map_err(shape)?;
        }
        if matches!(self.body, EventBody::Ignorable { .. }) {
            out.extend_from_slice(b",\"ignorable\":true");
        }
        out.push(b'}');
        Ok(escape_line_separators(out))
    }

    /// Reads and validates an event. Members that this version does not know are passed over.
    ///
    /// # Errors
    /// [`EventError`] when the bytes are no event of a known shape.
    pub fn decode(json: &[u8]) -> Result<Self, EventError> {
        let envelope: Envelope<'_> = serde_json::from_slice(json)
            .map_err(|source| EventError::Shape { kind: "?".to_owned(), source })?;
        let body = EventBody::decode(&envelope.kind, envelope.data, envelope.ignorable)?;
        Ok(Self {
            seq: envelope.seq,
            time_ms: envelope.time,
            body,
            surface_op: envelope.surface_op,
            source_event_seqs: envelope.source_event_seqs,
        })
    }
}

/// Replaces raw U+2028 and U+2029, which line readers of other languages split on, by their JSON escapes.
pub fn escape_line_separators(json: Vec<u8>) -> Vec<u8> {
    let is_separator = |at: usize| matches!(json.get(at..at + 3), Some([0xE2, 0x80, 0xA8 | 0xA9]));
    let mut hits = memchr::memchr_iter(0xE2, &json).filter(|&at| is_separator(at)).peekable();
    if hits.peek().is_none() {
        drop(hits);
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 16);
    let mut from = 0;
    for at in hits {
        out.extend_from_slice(&json[from..at]);
        out.extend_from_slice(if json[at + 2] == 0xA8 { b"\\u2028" } else { b"\\u2029" });
        from = at + 3;
    }
    out.extend_from_slice(&json[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_then_decode_keeps_the_event() {
        let body = EventBody::TurnEnd(TurnEnd {
            turn: 3,
            reason: TurnEndReason::Aborted { reason: AbortCause::User },
        });
        let bytes = SessionEvent::new(Seq(7), 99, body).encode().unwrap();
        assert_eq!(
            String::from_utf8(bytes.clone()).unwrap(),
            r#"{"type":"turn/end","seq":7,"time":99,"data":{"turn":3,"reason":{"kind":"aborted","reason":{"kind":"user"}}}}"#
        );
        assert_eq!(SessionEvent::decode(&bytes).unwrap().encode().unwrap(), bytes);
    }

    #[test]
    fn an_unknown_type_is_refused_unless_it_may_be_ignored() {
        let line = |extra| format!(r#"{{"type":"x/y","seq":0,"time":1,"data":{{"a":1.50}}{extra}}}"#);
        assert!(matches!(SessionEvent::decode(line("").as_bytes()), Err(EventError::UnknownType(_))));
        let kept = line(r#","ignorable":true"#);
        assert_eq!(SessionEvent::decode(kept.as_bytes()).unwrap().encode().unwrap(), kept.as_bytes());
    }

    #[test]
    fn line_separators_are_escaped() {
        let escaped = escape_line_separators("\"a\u{2028}b\u{2029}é\u{2020}\"".as_bytes().to_vec());
        assert_eq!(String::from_utf8(escaped).unwrap(), "\"a\\u2028b\\u2029é\u{2020}\"");
    }
}
