//! Tools: what the model may ask to be run. One trait, one file a tool; parameters are typed structs whose JSON Schema
//! the model sees.
//!
//! A tool knows neither sessions nor the wire. Whatever goes wrong in a call is a text for the model.

mod arguments;
mod bash;
mod clip;
mod delegate;
mod edit;
mod glob;
mod grep;
mod guard;
mod job;
mod kind;
mod mcp;
mod notify;
mod observed;
mod offer;
mod paths;
mod read;
mod search;
mod state;
mod subagent;
#[cfg(test)]
mod test_bench;
mod todo;
mod web_fetch;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::delegate::{Delegate, DelegateError, Delegated, Delegation};
pub use self::guard::Guard;
pub use self::job::Jobs;
pub use self::notify::Notify;
pub use self::offer::{Offer, Place};
pub use self::state::ToolState;

use crate::config::Config;
use crate::event::{Block, EventBody, PermissionMode, SessionId, ToolErrorInfo};
use crate::mcp::Servers;
use crate::policy::Need;
use crate::process::{Sandbox, Spool};
use crate::store::Blobs;

/// Whether a call may change anything outside the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Looks only; needs no barrier, and runs beside others that look.
    Reads,
    /// Lets another agent act; its `tool/call` is on stable storage before it runs, and it runs beside others.
    Delegates,
    /// Acts; its `tool/call` is on stable storage before it runs.
    Acts,
}

/// Where and for whom a call runs.
#[derive(Clone)]
pub struct ToolContext {
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call_id: String,
    /// The session's working directory, absolute: its workspace.
    pub cwd: PathBuf,
    /// What the session's agent may touch.
    pub mode: PermissionMode,
    /// Whether the model takes pictures.
    pub takes_images: bool,
    /// What the session's tools keep between calls.
    pub state: Arc<ToolState>,
    /// The session's pictures.
    pub blobs: Blobs,
    /// What its tools on files never look at.
    pub guard: Guard,
    /// Runs subagents; none in a subagent.
    pub delegate: Option<Arc<dyn Delegate>>,
    /// Cancelled: end now, kill what was started, return.
    pub cancel: CancellationToken,
}

/// What a call gives back to the model.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// The text for the model, within `turn.tool_result_bytes`.
    pub text: String,
    /// Pictures for the model, after the text.
    pub images: Vec<Block>,
    /// Whether it failed.
    pub is_error: bool,
    /// The failure's code for programs.
    pub error: Option<ToolErrorInfo>,
    /// Facts for viewers.
    pub meta: Option<Box<RawValue>>,
    /// What else happened, logged just before the result.
    pub events: Vec<EventBody>,
}

/// Something that the model may ask to be run.
pub trait Tool: Send + Sync {
    /// Name, description and parameters, the same at every call.
    fn spec(&self) -> &crate::event::ToolSpec;

    /// What a call may do.
    fn effect(&self) -> Effect;

    /// What a call needs that the session's mode does not allow, and that somebody may allow. Changes nothing. A call that
    /// needs something runs only when it was allowed, then with full access.
    fn needs<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> BoxFuture<'a, Option<Need>> {
        Box::pin(std::future::ready(None))
    }

    /// Runs one call with the model's raw arguments. Returns soon after `context.cancel`, with nothing of it left running.
    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput>;
}

/// The tools of the daemon. Cheap to clone.
#[derive(Clone)]
pub struct Tools {
    /// The built-in ones, as they are offered where there are no others: to a session, and to a subagent's.
    built_in: Offer,
    built_in_delegated: Offer,
    children: Children,
    /// Others' tools, where there are any.
    servers: Option<Servers>,
    /// `mcp.max_tools`.
    max: usize,
    /// `limits.image_bytes`.
    image_bytes: usize,
    spool: Option<Spool>,
    sandbox: Sandbox,
}

/// Places for child processes, shared by all tools of the daemon. Nobody waits for one: waits never nest.
#[derive(Clone, Debug)]
struct Children {
    free: Arc<Semaphore>,
    max: usize,
}

impl Tools {
    /// The tools of a configuration.
    pub fn new(config: &Config) -> Self {
        let max = config.limits.children.min(Semaphore::MAX_PERMITS);
        let children = Children { free: Arc::new(Semaphore::new(max)), max };
        Self::with_children(config, children, None, Sandbox::of_config(config))
    }

    /// The same, and commands run in this sandbox.
    #[must_use]
    pub fn confined(self, config: &Config, sandbox: Sandbox) -> Self {
        Self { servers: self.servers, ..Self::with_children(config, self.children, self.spool, sandbox) }
    }

    /// What confines commands.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// What a session's tools on files never look at. Blocks for a few looks at the disk.
    pub fn guard(&self, session: &SessionId, mode: PermissionMode) -> Guard {
        Guard::new(&self.sandbox, self.spool.as_ref(), session, mode)
    }

    /// The same, and output that is too long goes into a spool.
    #[must_use]
    pub fn spooling(self, config: &Config, spool: Spool) -> Self {
        Self {
            servers: self.servers,
            ..Self::with_children(config, self.children, Some(spool), self.sandbox)
        }
    }

    /// Child processes of all tools that run now.
    pub fn children_running(&self) -> usize {
        self.children.max.saturating_sub(self.children.free.available_permits())
    }

    /// With the tools of MCP servers.
    #[must_use]
    pub fn with_servers(self, servers: Servers) -> Self {
        Self { servers: Some(servers), ..self }
    }

    /// The MCP servers, where there are any.
    pub fn servers(&self) -> Option<&Servers> {
        self.servers.as_ref()
    }

    /// The tools of a configuration that was read again. Children that run already count against the same bound;
    /// `limits.children` itself stays as it was at start.
    #[must_use]
    pub fn reconfigured(&self, config: &Config, sandbox: Sandbox) -> Self {
        let servers = self.servers.clone().inspect(|servers| servers.reconfigure(config, sandbox.clone()));
        let (children, spool) = (self.children.clone(), self.spool.clone());
        Self { servers, ..Self::with_children(config, children, spool, sandbox) }
    }

    fn with_children(config: &Config, children: Children, spool: Option<Spool>, sandbox: Sandbox) -> Self {
        let mut built_in: Vec<Arc<dyn Tool>> = vec![
            Arc::new(bash::Bash::new(config, children.clone(), spool.clone(), sandbox.clone())),
            Arc::new(read::Read::new(config)),
            Arc::new(write::Write::new(config)),
            Arc::new(edit::Edit::new(config)),
            Arc::new(glob::Glob::new(config)),
            Arc::new(grep::Grep::new(config)),
            Arc::new(todo::TodoList::new()),
            Arc::new(subagent::Subagent::new(config)),
            Arc::new(job::JobList::new()),
            Arc::new(job::JobOutput::new()),
            Arc::new(job::JobKill::new()),
        ];
        if config.tools.web_fetch {
            built_in.push(Arc::new(web_fetch::WebFetch::new(config)));
        }
        let delegated = built_in.iter().filter(|tool| tool.effect() != Effect::Delegates).cloned();
        Self {
            built_in_delegated: Offer::of(delegated.collect()),
            built_in: Offer::of(built_in),
            children,
            spool,
            sandbox,
            servers: None,
            max: config.mcp.max_tools,
            image_bytes: config.limits.image_bytes.bytes(),
        }
    }
}

/// Codes of failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    UnknownTool,
    InvalidArguments,
    Aborted,
    OutcomeUnknown,
    NotFound,
    NotRegularFile,
    NotText,
    NotObserved,
    Changed,
    AmbiguousEdit,
    EditNotFound,
    InvalidPattern,
    SandboxDenied,
    Denied,
    SandboxUnavailable,
}

impl Failed {
    fn info(self) -> ToolErrorInfo {
        let (name, code) = match self {
            Self::UnknownTool => ("ToolError", "UNKNOWN_TOOL"),
            Self::InvalidArguments => ("ToolError", "INVALID_ARGS"),
            Self::Aborted => ("ToolError", "ABORTED"),
            Self::OutcomeUnknown => ("ToolError", "TOOL_OUTCOME_UNKNOWN"),
            Self::NotFound => ("FsError", "FS_NOT_FOUND"),
            Self::NotRegularFile => ("FsError", "FS_NOT_REGULAR_FILE"),
            Self::NotText => ("FsError", "FS_NOT_TEXT"),
            Self::NotObserved => ("FsError", "FS_NOT_OBSERVED"),
            Self::Changed => ("FsError", "FS_CHANGED"),
            Self::AmbiguousEdit => ("FsError", "FS_AMBIGUOUS_EDIT"),
            Self::EditNotFound => ("FsError", "FS_EDIT_NOT_FOUND"),
            Self::InvalidPattern => ("SearchError", "SEARCH_INVALID_PATTERN"),
            Self::Denied => ("ToolError", "TOOL_DENIED"),
            Self::SandboxDenied => ("FsError", "FS_SANDBOX_DENIED"),
            Self::SandboxUnavailable => ("SandboxError", "SANDBOX_UNAVAILABLE"),
        };
        ToolErrorInfo { name: name.to_owned(), code: code.to_owned() }
    }
}

impl ToolOutput {
    fn ok(text: String) -> Self {
        Self { text, images: Vec::new(), is_error: false, error: None, meta: None, events: Vec::new() }
    }

    fn failed(code: Failed, text: &str) -> Self {
        Self { error: Some(code.info()), ..Self::failed_without_code(text) }
    }

    /// The output of a call that did not run to its end, by the session's word.
    pub fn refused(text: &str, error: ToolErrorInfo) -> Self {
        Self { error: Some(error), ..Self::failed_without_code(text) }
    }

    /// A failure of the machine, for which the format knows no code.
    fn failed_without_code(text: &str) -> Self {
        Self { is_error: true, ..Self::ok(format!("Error: {text}")) }
    }

    fn with_meta(mut self, meta: &impl Serialize) -> Self {
        self.meta = serde_json::value::to_raw_value(meta)
            .inspect_err(|error| tracing::error!(%error, "a tool's meta could not be written"))
            .ok();
        self
    }
}

#[cfg(test)]
impl Tools {
    /// The built-in tool of a name.
    fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.built_in.get(name)
    }
}

/// The blobs of a session in memory.
#[cfg(test)]
fn blobs_of_test() -> Blobs {
    use crate::store::{Header, SessionStore as _, memory::MemoryStore};
    use futures_util::FutureExt as _;

    let (store, id) = (MemoryStore::default(), SessionId::new("s1").unwrap());
    let header = Header { id: id.clone(), created_at: 0, cwd: "/".to_owned(), parent_session: None };
    drop(store.create(header).now_or_never());
    Blobs::new(Arc::new(store), id)
}

#[cfg(test)]
impl ToolContext {
    /// A context in a directory, with all rights and nothing kept.
    fn of_test(cwd: PathBuf) -> Self {
        Self {
            session: SessionId::new("s1").unwrap(),
            call_id: "call_1".to_owned(),
            cwd,
            mode: PermissionMode::FullAccess,
            takes_images: false,
            state: Arc::default(),
            blobs: blobs_of_test(),
            guard: Guard::default(),
            delegate: None,
            cancel: CancellationToken::new(),
        }
    }
}
