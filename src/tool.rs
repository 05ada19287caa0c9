//! Tools: what the model may ask to be run. One trait, one file a tool; parameters are typed structs whose JSON Schema
//! the model sees.
//!
//! A tool knows neither sessions nor the wire. Whatever goes wrong in a call is a text for the model.

mod arguments;
mod bash;
mod clip;
mod read;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
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
    offered: Arc<[Arc<dyn Tool>]>,
    specs: Arc<[ToolSpec]>,
    children: Children,
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
        Self::with_children(config, Children { free: Arc::new(Semaphore::new(max)), max })
    }

    /// The tools of a configuration that was read again. Children that run already count against the same bound;
    /// `limits.children` itself stays as it was at start.
    #[must_use]
    pub fn reconfigured(&self, config: &Config) -> Self {
        Self::with_children(config, self.children.clone())
    }

    fn with_children(config: &Config, children: Children) -> Self {
        let offered: Arc<[Arc<dyn Tool>]> = Arc::new([
            Arc::new(bash::Bash::new(config, children.clone())),
            Arc::new(read::Read::new(config)),
        ]);
        let specs = offered.iter().map(|tool| tool.spec().clone()).collect();
        Self { offered, specs, children }
    }

    /// What the model is told of them, always in the same order.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.offered.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// What a call of a tool that does not exist gives back.
    pub fn unknown(&self, name: &str) -> ToolOutput {
        let names: Vec<_> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        let name = clip::line(name);
        let text = format!("there is no tool named \"{name}\"; use one of: {}", names.join(", "));
        ToolOutput::failed(Failed::UnknownTool, &text)
    }
}

/// Codes of failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    UnknownTool,
    InvalidArguments,
    Aborted,
    NotFound,
    NotRegularFile,
    NotText,
}

impl Failed {
    fn info(self) -> ToolErrorInfo {
        let (name, code) = match self {
            Self::UnknownTool => ("ToolError", "UNKNOWN_TOOL"),
            Self::InvalidArguments => ("ToolError", "INVALID_ARGS"),
            Self::Aborted => ("ToolError", "ABORTED"),
            Self::NotFound => ("FsError", "FS_NOT_FOUND"),
            Self::NotRegularFile => ("FsError", "FS_NOT_REGULAR_FILE"),
            Self::NotText => ("FsError", "FS_NOT_TEXT"),
        };
        ToolErrorInfo { name: name.to_owned(), code: code.to_owned() }
    }
}

impl ToolOutput {
    fn ok(text: String) -> Self {
        Self { text, is_error: false, error: None, meta: None }
    }

    fn failed(code: Failed, text: &str) -> Self {
        Self { error: Some(code.info()), ..Self::failed_without_code(text) }
    }

    /// A failure of the machine, for which the format knows no code.
    fn failed_without_code(text: &str) -> Self {
        Self { text: format!("Error: {text}"), is_error: true, error: None, meta: None }
    }

    fn with_meta(mut self, meta: &impl Serialize) -> Self {
        self.meta = serde_json::value::to_raw_value(meta)
            .inspect_err(|error| tracing::error!(%error, "a tool's meta could not be written"))
            .ok();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_are_offered_in_a_stable_order_with_compact_schemas() {
        let tools = Tools::new(&Config::default());
        let seen: Vec<_> =
            tools.specs().iter().map(|s| (s.name.clone(), s.parameters.get().to_owned())).collect();
        let expected = [
            (
                "bash",
                r#"{"properties":{"command":{"description":"The command line, run by bash -c.","type":"string"},"description":{"description":"What the command is for, in 5 to 10 words.","type":"string"},"timeoutMs":{"description":"Longest run in milliseconds.","maximum":3600000,"minimum":1,"type":"integer"},"workdir":{"description":"Directory to run in instead of the working directory.","type":"string"}},"required":["command"],"type":"object"}"#,
            ),
            (
                "read",
                r#"{"properties":{"file_path":{"description":"Path of the file, absolute or relative to the working directory.","type":"string"},"limit":{"description":"How many lines to read at most.","maximum":2000,"minimum":1,"type":"integer"},"offset":{"description":"The first line to read, counted from 1.","minimum":1,"type":"integer"}},"required":["file_path"],"type":"object"}"#,
            ),
        ];
        assert_eq!(seen, expected.map(|(name, schema)| (name.to_owned(), schema.to_owned())));
        let again = Tools::new(&Config::default()).specs();
        assert_eq!(again[0].parameters.get(), tools.specs()[0].parameters.get());
    }

    #[test]
    fn a_tool_is_found_by_its_exact_name() {
        let tools = Tools::new(&Config::default());
        assert_eq!(tools.get("bash").unwrap().effect(), Effect::Acts);
        assert_eq!(tools.get("read").unwrap().effect(), Effect::Reads);
        assert!(tools.get("Bash").is_none());
    }

    #[test]
    fn an_unknown_tool_is_told_with_the_known_ones() {
        let output = Tools::new(&Config::default()).unknown("bsh\nrm");
        assert_eq!(output.text, "Error: there is no tool named \"bsh rm\"; use one of: bash, read");
        assert!(output.is_error);
        assert_eq!(output.error.unwrap().code, "UNKNOWN_TOOL");
    }
}
