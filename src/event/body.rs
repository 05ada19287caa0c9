//! The events themselves: one table that names their types, one codec that validates both ways.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::data::{
    ApprovalPolicy, AssistantAttempt, AssistantMessage, InboxSpliced, LlmRetry, LlmRetryStarted,
    PermissionPreset, RequestContext, RequestHeader, SandboxMode, SessionOpened, SessionTitle, SessionUpdate,
    StepMark, SurfaceOp, SystemMessage, ToolCallStarted, ToolResult, TurnEnd, TurnStart,
    WorkingDirectoryChange,
};
use super::work::{
    ApprovalAsked, ApprovalDecided, CompactionEnd, CompactionStart, CompactionSummary, JobRegistered,
    JobSettled, SubagentCatalog, SubagentFinished, SubagentStarted, TodoWrite,
};
use super::{Epoch, Message, PermissionMode, Seq, Totals};

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
    /// A call waits until somebody allows it.
    ApprovalAsked(ApprovalAsked) = "approval/asked", false;
    /// What became of it.
    ApprovalDecided(ApprovalDecided) = "approval/decided", false;
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
    /// The list of tasks.
    TodoWrite(TodoWrite) = "todo/write", false;
    /// A background job runs.
    JobRegistered(JobRegistered) = "job/registered", false;
    /// A background job ended.
    JobSettled(JobSettled) = "job/settled", false;
    /// A child session exists.
    SubagentCatalog(SubagentCatalog) = "subagent/catalog", false;
    /// A child session works.
    SubagentStarted(SubagentStarted) = "subagent/started", false;
    /// A child session's turn ended.
    SubagentFinished(SubagentFinished) = "subagent/finished", false;
    /// The conversation is being shortened.
    CompactionStart(CompactionStart) = "compaction/start", false;
    /// What stands in place of what was said.
    CompactionSummary(CompactionSummary) = "compaction/summary", false;
    /// The conversation was shortened, or not.
    CompactionEnd(CompactionEnd) = "compaction/end", false;
    /// The working directory changed.
    WorkingDirectoryChange(WorkingDirectoryChange) = "working-directory/change", false;
    /// Settings changed.
    SessionUpdate(SessionUpdate) = "session/update", false;
}

impl EventBody {
    /// The life of the log that this event opens, if it does.
    pub fn opened_epoch(&self) -> Option<Epoch> {
        if let Self::SessionOpened(opened) = self { Some(opened.epoch) } else { None }
    }

    /// The title that this event gives the session, if it does.
    pub fn title(&self) -> Option<&str> {
        if let Self::SessionTitle(title) = self {
            Some(&title.title)
        } else if let Self::SessionUpdate(update) = self {
            update.title.as_deref()
        } else if let Self::TurnEnd(end) = self {
            end.title.as_deref()
        } else {
            None
        }
    }

    /// The permission mode that holds from this event on, if it says so.
    pub fn mode(&self) -> Option<PermissionMode> {
        if let Self::PermissionPreset(preset) = self {
            Some(preset.preset)
        } else if let Self::TurnEnd(end) = self {
            end.permission_mode
        } else {
            None
        }
    }

    /// What the session has used when this event was written, if it says so.
    pub fn totals(&self) -> Option<Totals> {
        if let Self::TurnEnd(end) = self { end.totals } else { None }
    }
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
    use crate::event::{AbortCause, TurnEndReason};

    #[test]
    fn encode_then_decode_keeps_the_event() {
        let body = EventBody::TurnEnd(TurnEnd {
            turn: 3,
            reason: TurnEndReason::Aborted { reason: AbortCause::User },
            totals: None,
            title: None,
            permission_mode: None,
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
