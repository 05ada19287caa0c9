//! What a step offers its model: the tools that there are at that moment, always in the same order.

use std::path::Path;
use std::sync::Arc;

use super::{Failed, Tool, ToolOutput, Tools, clip, mcp};
use crate::event::ToolSpec;

/// For whom an offer is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The session's working directory.
    pub cwd: &'a Path,
    /// Whether the session is a subagent's: it delegates nothing.
    pub delegated: bool,
}

/// The tools on offer. Cheap to clone.
#[derive(Clone)]
pub struct Offer {
    tools: Arc<[Arc<dyn Tool>]>,
    specs: Arc<[ToolSpec]>,
}

impl Tools {
    /// The tools for a step.
    pub async fn offer(&self, place: &Place<'_>) -> Offer {
        let built_in = if place.delegated { &self.built_in_delegated } else { &self.built_in };
        let Some(servers) = &self.servers else { return built_in.clone() };
        let room = self.max.saturating_sub(built_in.tools.len());
        let more = mcp::tools(&servers.offer(place.cwd).await, room, self.image_bytes);
        if more.is_empty() {
            return built_in.clone();
        }
        Offer::of(built_in.tools.iter().cloned().chain(more).collect())
    }
}

impl Offer {
    /// These tools, in this order.
    pub(super) fn of(tools: Vec<Arc<dyn Tool>>) -> Self {
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self { tools: tools.into(), specs }
    }

    /// No tools.
    pub fn none() -> Self {
        Self { tools: Arc::new([]), specs: Arc::new([]) }
    }

    /// What the model is told of them.
    pub fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.specs
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// What a call of a tool that does not exist gives back.
    pub fn unknown(&self, name: &str) -> ToolOutput {
        let names: Vec<_> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        let name = clip::line(name);
        let text = format!("there is no tool named \"{name}\"; use one of: {}", names.join(", "));
        ToolOutput::failed(Failed::UnknownTool, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::tool::Effect;

    async fn offer() -> Offer {
        Tools::new(&Config::default()).offer(&Place { cwd: Path::new("/"), delegated: false }).await
    }

    #[tokio::test]
    async fn the_tools_are_offered_in_a_stable_order_with_compact_schemas() {
        let offer = offer().await;
        let names: Vec<_> = offer.specs().iter().map(|spec| spec.name.as_str()).collect();
        let expected = [
            "bash",
            "read",
            "write",
            "edit",
            "glob",
            "grep",
            "todo_write",
            "subagent",
            "job_list",
            "job_output",
            "job_kill",
        ];
        assert_eq!(names, expected);
        let again = super::tests::offer().await;
        for (spec, again) in offer.specs().iter().zip(again.specs().iter()) {
            let schema = spec.parameters.get();
            assert_eq!(schema, again.parameters.get());
            assert!(
                schema.starts_with(r#"{"properties":{"#) && schema.ends_with(r#","type":"object"}"#),
                "{schema}"
            );
            assert!(
                ["\"$schema\"", "\"title\"", "\"format\"", "\"default\"", "null"]
                    .iter()
                    .all(|noise| !schema.contains(noise)),
                "{schema}"
            );
        }
    }

    #[tokio::test]
    async fn a_tool_is_found_by_its_exact_name() {
        let tools = offer().await;
        assert_eq!(tools.get("bash").unwrap().effect(), Effect::Acts);
        assert_eq!(tools.get("read").unwrap().effect(), Effect::Reads);
        assert!(tools.get("Bash").is_none());
    }

    #[tokio::test]
    async fn an_unknown_tool_is_told_with_the_known_ones() {
        let output = offer().await.unknown("bsh\nrm");
        let told = "Error: there is no tool named \"bsh rm\"; use one of: bash, read, ";
        assert!(output.text.starts_with(told), "{}", output.text);
        assert!(output.is_error);
        assert_eq!(output.error.unwrap().code, "UNKNOWN_TOOL");
    }
}
