//! What a step offers its model: the tools that there are at that moment, always in the same order.

use std::path::Path;
use std::sync::Arc;

use super::{Effect, Failed, Tool, ToolOutput, Tools, clip, mcp};
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
        let offered =
            self.built_in.iter().filter(|tool| !(place.delegated && tool.effect() == Effect::Delegates));
        let mut tools: Vec<Arc<dyn Tool>> = offered.cloned().collect();
        if let Some(servers) = &self.servers {
            let room = self.max.saturating_sub(tools.len());
            tools.extend(mcp::tools(&servers.offer(place.cwd).await, room));
        }
        let tools: Arc<[Arc<dyn Tool>]> = tools.into();
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Offer { tools, specs }
    }
}

impl Offer {
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

    async fn offer() -> Offer {
        Tools::new(&Config::default()).offer(&Place { cwd: Path::new("/"), delegated: false }).await
    }

    #[tokio::test]
    async fn the_tools_are_offered_in_a_stable_order_with_compact_schemas() {
        let tools = offer().await;
        let names: Vec<_> = tools.specs().iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["bash", "read", "write", "edit", "glob", "grep", "todo_write"]);
        let schemas = [
            (
                "bash",
                r#"{"properties":{"command":{"description":"The command line, run by bash -c.","type":"string"},"description":{"description":"What the command is for, in 5 to 10 words.","type":"string"},"timeoutMs":{"description":"Longest run in milliseconds.","maximum":3600000,"minimum":1,"type":"integer"},"workdir":{"description":"Directory to run in instead of the working directory.","type":"string"}},"required":["command"],"type":"object"}"#,
            ),
            (
                "read",
                r#"{"properties":{"file_path":{"description":"Path of the file, absolute or relative to the working directory.","type":"string"},"limit":{"description":"How many lines to read at most.","maximum":2000,"minimum":1,"type":"integer"},"offset":{"description":"The first line to read, counted from 1.","minimum":1,"type":"integer"}},"required":["file_path"],"type":"object"}"#,
            ),
            (
                "write",
                r#"{"properties":{"content":{"description":"The whole new content.","type":"string"},"file_path":{"description":"Path of the file, absolute or relative to the working directory.","type":"string"}},"required":["file_path","content"],"type":"object"}"#,
            ),
            (
                "edit",
                r#"{"properties":{"file_path":{"description":"Path of the file, absolute or relative to the working directory.","type":"string"},"new_string":{"description":"The text to put in its place.","type":"string"},"old_string":{"description":"The text to replace, exactly as it stands in the file, without line numbers.","type":"string"},"replace_all":{"description":"Replace every place where the text stands, not its only one.","type":"boolean"}},"required":["file_path","old_string","new_string"],"type":"object"}"#,
            ),
            (
                "todo_write",
                r#"{"properties":{"todos":{"description":"The whole list, in order.","items":{"properties":{"content":{"description":"What is to be done.","type":"string"},"status":{"description":"How far it is.","enum":["pending","in_progress","completed"],"type":"string"}},"required":["content","status"],"type":"object"},"maxItems":100,"type":"array"}},"required":["todos"],"type":"object"}"#,
            ),
        ];
        for (name, schema) in schemas {
            assert_eq!(tools.get(name).unwrap().spec().parameters.get(), schema);
        }
        let again = offer().await;
        assert_eq!(again.specs()[0].parameters.get(), tools.specs()[0].parameters.get());
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
