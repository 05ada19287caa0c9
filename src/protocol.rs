//! The wire's types: every method's parameters and result, every notification, as docs/protocol.md has them.
//!
//! Plain data that both ends read and write; no async, no I/O. Input is strict where it matters: a wrong type names its
//! field. Unknown fields are passed over.

mod content;
mod event;
mod initialize;
mod method;
mod scalar;
mod server;
mod session;

pub use self::content::ContentBlock;
pub use self::event::{
    DrainingNotice, SessionClosed, SessionEventNotice, SessionStatus, SessionStatusNotice,
    SubagentFinishedNotice, SubagentStartedNotice, notification,
};
pub use self::initialize::{
    AuthenticateParams, ClientInfo, Completion, InitializeParams, InitializeResult, OnDisconnect, RouteInfo,
    SERVER_NAME, ServerInfo, SessionScope, VERSION, WhenBusy,
};
pub use self::method::Method;
pub use self::scalar::{Amount, Empty, LastSeq, Mode, PositiveInt, Since};
pub use self::server::{
    Approvals, ConnectionState, Counts, DrainParams, McpServerState, McpState, ModelInfo, ModelsResult,
    Phase, Prices, RouteModels, SessionState, StatusResult, Totals, TurnsByEnd, Usage,
};
pub use self::session::{
    AnswerOutcome, AnswerParams, ApprovalRule, BlobParams, BlobResult, CancelParams, CancelResult,
    ChildCursor, CreateParams, CreateResult, DirectoryParams, DirectoryResult, ListParams, ListResult,
    ListedSession, PositionResult, PromptParams, QueueResult, QueuedPrompt, ReadParams, ReadResult, Receipt,
    RulesParams, RulesResult, SessionParams, SetDirectoryParams, SettledPrompt, SettledStatus,
    SubscribeParams, SubscribeResult, UpdateParams, WaitParams, WaitingApproval,
};
