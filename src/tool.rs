//! Tools: what the model may ask to be run. One trait, one file a tool; parameters are typed structs whose JSON Schema
//! the model sees.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::event::{SessionId, ToolErrorInfo, ToolSpec};

/// Whether a call may change anything outside the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Looks only; needs no barrier.
    Reads,
    /// Acts; its `tool/call` is on stable storage before it runs.
    Acts,
}

/// Where and for whom a call runs.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call_id: String,
    /// The session's working directory, absolute.
    pub cwd: PathBuf,
    /// Cancelled: end now, kill what was started, return.
    pub cancel: CancellationToken,
}

/// What a call gives back to the model.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// The text for the model, within `turn.tool_result_bytes`.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
    /// The failure's code for programs.
    pub error: Option<ToolErrorInfo>,
    /// Facts for viewers.
    pub meta: Option<Box<RawValue>>,
}

/// Something that the model may ask to be run.
pub trait Tool: Send + Sync {
    /// Name, description and parameters, the same at every call.
    fn spec(&self) -> &ToolSpec;

    /// What a call may do.
    fn effect(&self) -> Effect;

    /// Runs one call with the model's raw arguments. Returns soon after `context.cancel`, with nothing of it left running.
    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput>;
}

/// The tools on offer. Cheap to clone.
#[derive(Clone)]
pub struct Tools {
    specs: std::sync::Arc<[ToolSpec]>,
}

impl Tools {
    /// s
    pub fn new(_config: &crate::config::Config) -> Self {
        Self { specs: Vec::new().into() }
    }
    /// s
    pub fn specs(&self) -> std::sync::Arc<[ToolSpec]> {
        self.specs.clone()
    }
    /// s
    pub fn get(&self, _name: &str) -> Option<std::sync::Arc<dyn Tool>> {
        None
    }
    /// s
    pub fn unknown(&self, name: &str) -> ToolOutput {
        ToolOutput { text: format!("Error: unknown tool {name}"), is_error: true, error: None, meta: None }
    }
}
