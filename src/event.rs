//! The domain's facts: numbered session events, the messages they carry, and the ids that name them.
//!
//! Everything here is plain data without I/O. The wire, the store and the model adapters all speak these types.
//! Shapes follow the DSH session format v4 (docs/protocol.md, section 6).

mod body;
mod data;
mod id;
mod message;
mod totals;
mod work;

pub use self::body::{EventBody, EventError, SessionEvent, escape_line_separators};
pub use self::data::{
    ApprovalPolicy, AskPolicy, AssistantAttempt, AssistantMessage, InboxSpliced, InboxTarget, LlmRetry,
    LlmRetryStarted, PermissionMode, PermissionPreset, Recovered, RequestConfig, RequestContext,
    RequestHeader, RequestHeaderBody, SandboxMode, SessionOpened, SessionTitle, SessionUpdate, SpliceOutcome,
    StepMark, SurfaceOp, SystemMessage, TitleSource, ToolCallStarted, ToolErrorInfo, ToolResult, TurnEnd,
    TurnEndReason, TurnStart, WorkingDirectoryChange,
};
pub use self::id::{Epoch, InvalidSessionId, MessageId, Seq, SessionId};
pub use self::message::{
    AbortCause, Block, Failure, FailureCode, Message, Role, Source, SourceKind, ToolSpec, Usage,
};
pub use self::totals::{Cost, Totals};
pub use self::work::{
    ApprovalAsked, ApprovalDecided, ApprovalOutcome, Attachment, CompactionEnd, CompactionStart,
    CompactionSummary, JobCall, JobRegistered, JobSettled, JobStatus, ShadowedRange, StopReason,
    SubagentCatalog, SubagentFinished, SubagentStarted, Todo, TodoStatus, TodoWrite,
};
