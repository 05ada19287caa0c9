//! A conversation's entries: messages, their blocks, where they came from, and what a model call cost or why it failed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Attachment, MessageId};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// A person, or context given in a person's place.
    User,
    /// The model.
    Assistant,
    /// The answer to a tool call.
    Tool,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text, byte for byte as it came.
        text: String,
    },
    /// What the model thought.
    Reasoning {
        /// The text, byte for byte as it came.
        text: String,
    },
    /// A call that the model asks for.
    ToolCall {
        /// The call's id, never empty.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
        /// The arguments' raw JSON text as the model wrote it; may be no JSON at all.
        arguments: String,
    },
    /// A picture; its bytes are a blob of the session.
    Image {
        /// Which, and what it is.
        attachment: Attachment,
    },
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// What a message's `source.kind` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// A client's prompt.
    User,
    /// Our instructions.
    SystemPrompt,
    /// Volatile facts: date, directory, mode.
    RuntimeContext,
    /// A change of the working directory.
    WorkingDirectory,
    /// A project's `AGENTS.md`.
    AgentInstructions,
    /// A model's answer.
    Model,
    /// A tool's result.
    Tool,
    /// A reminder that the same call was made again and again.
    RepeatToolReminder,
    /// The end of a background job.
    ToolJobs,
    /// The end of a subagent.
    SubagentSettled,
    /// A summary in place of what was said.
    Compaction,
}

/// Where a message came from. One struct for every kind: a tagged enum could not carry raw JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Which kind of source.
    pub kind: SourceKind,
    /// `model`: the route's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `model`: the route's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `model`: what the provider must get back verbatim (thinking signatures, raw strings).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_state: Option<Box<RawValue>>,
    /// `tool`: the call that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// `runtime-context`: `snapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// `runtime-context`: the named facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sections: Option<Box<RawValue>>,
    /// `agent-instructions`: the file, absolute (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Source {
    /// A source with nothing but its kind.
    pub fn of(kind: SourceKind) -> Self {
        Self {
            kind,
            provider: None,
            model: None,
            replay_state: None,
            call_id: None,
            form: None,
            sections: None,
            path: None,
        }
    }
}

/// One entry of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// The blocks, in order.
    pub content: Vec<Block>,
    /// Where it came from.
    pub source: Source,
    /// Who speaks.
    pub role: Role,
    /// `tool`: the call that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// `tool`: whether the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// Unique name of the message.
    pub id: MessageId,
}

impl Message {
    /// A message with a new id and no tool fields.
    pub fn new(role: Role, source: Source, content: Vec<Block>) -> Self {
        Self { content, source, role, tool_call_id: None, is_error: None, id: MessageId::random() }
    }

    /// All text blocks joined.
    pub fn text(&self) -> String {
        let mut joined = String::new();
        for block in &self.content {
            if let Block::Text { text } = block {
                joined.push_str(text);
            }
        }
        joined
    }
}

/// Tokens of one model call. The counts are disjoint: `input_tokens` is without the cached ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens read anew.
    pub input_tokens: u64,
    /// Tokens written, thinking included.
    pub output_tokens: u64,
    /// Tokens read from the provider's prefix cache.
    pub cache_read_tokens: u64,
    /// Tokens written to it.
    pub cache_write_tokens: u64,
    /// The sum.
    pub total_tokens: u64,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Box<RawValue>,
}

/// Whose wish ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum AbortCause {
    /// A client cancelled.
    User,
    /// The parent session was cancelled.
    Parent,
    /// The session or the daemon ended.
    Disposed,
}

/// Why a model call or a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One English sentence for a person.
    pub message: String,
    /// What programs match on.
    pub code: FailureCode,
    /// The HTTP status, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

impl Failure {
    /// A failure without HTTP status.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { message: message.into(), code, status: None }
    }
}

macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Codes of failures (docs/protocol.md, section 6).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FailureCode {
            $($(#[$doc])* $variant,)*
            /// An HTTP status without a name of its own.
            Http(u16),
        }

        impl FailureCode {
            /// Every named code.
            pub const NAMED: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as it stands on the wire.
            pub fn as_text(self) -> std::borrow::Cow<'static, str> {
                match self {
                    $(Self::$variant => $text.into(),)*
                    Self::Http(status) => format!("HTTP_{status}").into(),
                }
            }

            /// Reads a code; a text that we do not know is `UNKNOWN`.
            pub fn from_text(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => other
                        .strip_prefix("HTTP_")
                        .and_then(|status| status.parse().ok())
                        .map_or(Self::Unknown, Self::Http),
                }
            }
        }
    };
}

failure_codes! {
    /// The key was refused.
    Auth = "AUTH",
    /// The balance is empty.
    Quota = "QUOTA",
    /// Too many requests.
    RateLimit = "RATE_LIMIT",
    /// The conversation is longer than the model reads.
    ContextWindowExceeded = "CONTEXT_WINDOW_EXCEEDED",
    /// The provider refused the request.
    InvalidRequest = "INVALID_REQUEST",
    /// The provider failed.
    Server = "SERVER",
    /// No answer, or none in time.
    Timeout = "TIMEOUT",
    /// The connection failed or broke.
    Transport = "TRANSPORT",
    /// The model said nothing.
    EmptyResponse = "EMPTY_RESPONSE",
    /// The answer could not be read or was incomplete.
    MalformedResponse = "MALFORMED_RESPONSE",
    /// No key is configured.
    MissingCredential = "MISSING_CREDENTIAL",
    /// The route does not take this content.
    UnsupportedContent = "UNSUPPORTED_CONTENT",
    /// Cancelled.
    Aborted = "ABORTED",
    /// `turn.max_steps` was reached.
    MaxSteps = "MAX_STEPS",
    /// The same call too often.
    RepeatedCall = "REPEATED_CALL",
    /// A budget was used up.
    Budget = "BUDGET",
    /// The data directory's file system is nearly full.
    StorageFull = "STORAGE_FULL",
    /// Anything else.
    Unknown = "UNKNOWN",
}

impl Serialize for FailureCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.as_text())
    }
}

impl<'de> Deserialize<'de> for FailureCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_text(&std::borrow::Cow::<'de, str>::deserialize(deserializer)?))
    }
}
