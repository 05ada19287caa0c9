//! `subagent`: lets another agent work on a part, and gives back what it said last.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Delegate, DelegateError, Delegated, Delegation, Effect, Failed, Tool, ToolContext, ToolOutput, arguments,
    clip,
};
use crate::config::Config;
use crate::event::{Block, PermissionMode, SessionId, StopReason, ToolSpec};

const NAME: &str = "subagent";
const DESCRIPTION: &str = "Lets another agent work on a self-contained part, with the same tools, and returns what it \
says last. It sees nothing of this conversation, so tell it all that it needs and what to answer. Several calls in one \
answer run at the same time. It can't delegate further.";
const DESCRIPTION_CHARS_MAX: usize = 200;

/// Delegates.
pub(super) struct Subagent {
    spec: ToolSpec,
    result_bytes_max: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// What the part is, in 3 to 10 words.
    description: String,
    /// The whole task.
    prompt: String,
    /// Directory to work in instead of the working directory.
    #[serde(default)]
    cwd: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    child_session_id: &'a SessionId,
    stop_reason: StopReason,
}

impl Subagent {
    pub(super) fn new(config: &Config) -> Self {
        let parameters = arguments::schema::<Arguments>();
        Self {
            spec: ToolSpec { name: NAME.to_owned(), description: DESCRIPTION.to_owned(), parameters },
            result_bytes_max: config.turn.tool_result_bytes.bytes(),
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        if arguments.prompt.trim().is_empty() {
            return Err(arguments::invalid(NAME, "`prompt`: expected the task, got nothing"));
        }
        let delegate: &Arc<dyn Delegate> = context.delegate.as_ref().ok_or_else(|| {
            ToolOutput::failed_without_code("a subagent can't delegate; do this part yourself")
        })?;
        let cwd = match &arguments.cwd {
            Some(cwd) => Some(directory(&context.cwd.join(cwd), context).await?),
            None => None,
        };
        let description = clip::line(&arguments.description).chars().take(DESCRIPTION_CHARS_MAX).collect();
        let call_id = context.call_id.clone();
        let mode = context.mode;
        let delegation = Delegation { call_id, description, prompt: arguments.prompt, cwd, mode };
        match delegate.delegate(delegation, &context.cancel).await {
            Ok(delegated) => Ok(self.output(&delegated)),
            Err(error @ (DelegateError::Full { .. } | DelegateError::Failed(_))) => {
                Err(ToolOutput::failed_without_code(&error.to_string()))
            }
        }
    }

    fn output(&self, delegated: &Delegated) -> ToolOutput {
        let meta = Meta { child_session_id: &delegated.child, stop_reason: delegated.stop };
        let answer = text_of(delegated.answer.as_deref().unwrap_or_default());
        let mut text = String::new();
        if let Some(detail) = &delegated.detail {
            text.push_str("Error: the subagent ended early: ");
            text.push_str(&clip::line(detail));
            if !answer.is_empty() {
                text.push_str("\nIt said last:\n");
            }
        }
        let room = self.result_bytes_max.saturating_sub(text.len());
        clip::Text::whole(&answer).write(&mut text, room);
        if text.is_empty() {
            text.push_str("(the subagent said nothing)");
        }
        let mut output = ToolOutput::ok(text).with_meta(&meta);
        output.is_error = delegated.stop != StopReason::Completed;
        output.error = (delegated.stop == StopReason::Aborted).then(|| Failed::Aborted.info());
        output
    }
}

impl Tool for Subagent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Delegates
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

/// A child's workspace is its directory, so it lies in its parent's unless that one may touch anything.
async fn directory(path: &Path, context: &ToolContext) -> Result<PathBuf, ToolOutput> {
    let shown = clip::line(&path.display().to_string());
    let not_found = |error: std::io::Error| {
        ToolOutput::failed(Failed::NotFound, &format!("cannot work in the directory {shown}: {error}"))
    };
    let found = tokio::fs::canonicalize(path).await.map_err(not_found)?;
    if !tokio::fs::metadata(&found).await.map_err(not_found)?.is_dir() {
        return Err(ToolOutput::failed(Failed::NotFound, &format!("{shown} is no directory")));
    }
    let workspace = tokio::fs::canonicalize(&context.cwd).await.map_err(not_found)?;
    if context.mode != PermissionMode::FullAccess && !found.starts_with(&workspace) {
        let text = format!("{shown} is outside the workspace {}", workspace.display());
        return Err(ToolOutput::failed(Failed::SandboxDenied, &text));
    }
    Ok(found)
}

fn text_of(blocks: &[Block]) -> String {
    let mut joined = String::new();
    for block in blocks {
        if let Block::Text { text } = block {
            joined.push_str(text);
        }
    }
    joined
}
