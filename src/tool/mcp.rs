//! The tools of MCP servers, as tools of ours: named `mcp__server__tool`, called at their server.

mod name;
mod result;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use rmcp::model::JsonObject;

use self::result::Room;
use super::{Effect, Failed, Tool, ToolContext, ToolOutput, arguments};
use crate::event::{PermissionMode, ToolSpec};
use crate::mcp::{CallError, Offered, RemoteTool, Server};
use crate::policy::Need;

/// A tool of a server.
struct Remote {
    spec: ToolSpec,
    server: Arc<Server>,
    /// Its name there.
    name: String,
    effect: Effect,
    /// Of one picture.
    image_bytes: usize,
}

/// At most `room` of the servers' tools, in the order of their servers' and their own names.
pub(super) fn tools(offered: &[Offered], room: usize, image_bytes: usize) -> Vec<Arc<dyn Tool>> {
    let all: Vec<(&Arc<Server>, &RemoteTool)> =
        offered.iter().flat_map(|one| one.tools.iter().map(|tool| (&one.server, tool))).collect();
    if all.len() > room {
        say_left_out(room, all.len() - room);
    }
    let kept = &all[..all.len().min(room)];
    let named: Vec<(&str, &str)> =
        kept.iter().map(|(server, tool)| (server.name(), tool.name.as_str())).collect();
    let names = name::all(&named);
    let remote = kept.iter().zip(names).map(|((server, tool), name)| {
        let spec = ToolSpec { name, description: tool.description.clone(), parameters: tool.schema.clone() };
        let effect = if tool.reads { Effect::Reads } else { Effect::Acts };
        let (server, name) = (Arc::clone(server), tool.name.clone());
        Arc::new(Remote { spec, server, name, effect, image_bytes }) as Arc<dyn Tool>
    });
    remote.collect()
}

/// Says it at the first step, and again only when there is something new to say.
fn say_left_out(offered: usize, left_out: usize) {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    if SAID.swap(left_out, Ordering::Relaxed) != left_out {
        tracing::warn!(offered, left_out, "MCP servers have more tools than are offered (mcp.max_tools)");
    }
}

impl Remote {
    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: JsonObject = arguments::parse(&self.spec.name, raw)?;
        match self.server.call(&self.name, arguments, &context.cancel).await {
            Ok(answer) => {
                let room = Room { text: self.server.result_bytes(), image: self.image_bytes };
                Ok(result::output(answer, room, context).await)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &CallError) -> ToolOutput {
        let text = super::clip::line(&error.to_string());
        match error {
            CallError::Cancelled => ToolOutput::failed(Failed::Aborted, &text),
            CallError::Arguments { .. } => ToolOutput::failed(Failed::InvalidArguments, &text),
            CallError::TimedOut { .. } | CallError::Lost { .. } if self.effect == Effect::Acts => {
                ToolOutput::failed(Failed::OutcomeUnknown, &text)
            }
            CallError::TimedOut { .. }
            | CallError::Lost { .. }
            | CallError::Down { .. }
            | CallError::Busy { .. }
            | CallError::Failed { .. } => ToolOutput::failed_without_code(&text),
        }
    }
}

impl Tool for Remote {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn needs<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, Option<Need>> {
        let changes = self.effect == Effect::Acts && context.mode == PermissionMode::ReadOnly;
        let need = changes.then(|| Need {
            reason: format!("the session is read-only, and {} may change something", self.spec.name),
            command: Some(arguments.to_owned()),
            diff: None,
            denied: Failed::Denied.info(),
            rule: Some(self.spec.name.clone()),
        });
        Box::pin(std::future::ready(need))
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}
