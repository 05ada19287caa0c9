//! `dshd mcp list`: what the daemon says of its servers; without one, what the configuration says. Servers of the
//! workspace that may not be used are told with the reason.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::table::Table;
use super::super::{Failure, Globals, exit, output, reach, refusal, tell};
use super::state;
use crate::config::Loaded;
use crate::mcp::{self, Workspace};
use crate::protocol::{Empty, McpServerState, McpState, Method, StatusResult};

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    servers: Vec<Line>,
}

/// A server.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<PathBuf>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    target: String,
    tools: Vec<String>,
}

pub(super) async fn run(dir: &Path, no_header: bool, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let mut lines = match reach::viewer(globals, &loaded).await {
        Ok(reached) => {
            let status: StatusResult = reached.call(Method::Status, &Empty {}).await?;
            status.mcp.into_iter().map(Line::from).collect()
        }
        Err(failure) if failure.kind == refusal::NO_DAEMON => {
            tell::say("no dshd is running; this is what the configuration here says");
            configured(&loaded)
        }
        Err(failure) => return Err(failure),
    };
    let off = loaded.config.mcp.servers.iter().filter(|(_, server)| !server.enabled);
    lines.extend(off.map(|(name, _)| Line::unused(name, None, "off", None)));
    let workspace = Workspace::of(dir, &mcp::trusting(&loaded.config));
    if let Some(workspace) = &workspace {
        add_workspace(&mut lines, workspace);
    }
    lines.sort_by(|a, b| (&a.workspace, &a.name).cmp(&(&b.workspace, &b.name)));
    if globals.args.json {
        output::print_json(&Document { schema: "dshd.mcp/1", servers: lines })?;
        return Ok(exit::OK);
    }
    output::print(&text(&lines, !no_header))?;
    if globals.args.quiet {
        return Ok(exit::OK);
    }
    if lines.is_empty() {
        tell::say("no MCP servers; add one as [mcp.servers.NAME] to the configuration (docs/tools.md)");
    }
    if let Some(workspace) = workspace
        && workspace.files.iter().any(|file| state(file).is_some_and(|state| state != "invalid"))
    {
        let directory = workspace.directory.display();
        tell::say(&format!(
            "to use this workspace's servers, read their file, then: dshd mcp trust {directory}"
        ));
    }
    Ok(exit::OK)
}

impl Line {
    fn unused(name: &str, workspace: Option<&Path>, state: &'static str, reason: Option<String>) -> Self {
        let (name, workspace) = (name.to_owned(), workspace.map(Path::to_path_buf));
        Self { name, workspace, state, reason, target: String::new(), tools: Vec::new() }
    }
}

impl From<McpServerState> for Line {
    fn from(server: McpServerState) -> Self {
        let state = match server.state {
            McpState::Idle => "idle",
            McpState::Starting => "starting",
            McpState::Ready => "ready",
            McpState::Down => "down",
        };
        Self {
            name: server.name,
            workspace: server.workspace,
            state,
            reason: server.reason,
            target: server.target,
            tools: server.tools,
        }
    }
}

fn configured(loaded: &Loaded) -> Vec<Line> {
    let enabled = loaded.config.mcp.servers.iter().filter(|(_, server)| server.enabled);
    enabled.map(|(name, _)| Line::unused(name, None, "idle", None)).collect()
}

/// Adds what the daemon does not know: servers that it has not started, or must not.
fn add_workspace(lines: &mut Vec<Line>, workspace: &Workspace) {
    let directory = workspace.directory.as_path();
    for file in &workspace.files {
        let state = state(file);
        match (&file.servers, state) {
            (Err(why), _) => {
                let name = file.path.file_name().unwrap_or_default().to_string_lossy();
                lines.push(Line::unused(&name, Some(directory), "invalid", Some(why.clone())));
            }
            (Ok(servers), Some(state)) => {
                let names = servers.keys();
                lines.extend(names.map(|name| Line::unused(name, Some(directory), state, None)));
            }
            (Ok(servers), None) => {
                for (name, server) in servers {
                    let is_known =
                        |line: &Line| line.name == *name && line.workspace.as_deref() == Some(directory);
                    if !lines.iter().any(is_known) {
                        let state = if server.enabled { "idle" } else { "off" };
                        lines.push(Line::unused(name, Some(directory), state, None));
                    }
                }
            }
        }
    }
}

fn text(lines: &[Line], has_header: bool) -> String {
    let mut table = Table::new(&["SERVER", "STATE", "FROM", "TOOLS"], has_header && !lines.is_empty());
    for line in lines {
        let from = line
            .workspace
            .as_ref()
            .map_or_else(|| "configuration".to_owned(), |workspace| workspace.display().to_string());
        let last = match &line.reason {
            Some(reason) => reason.clone(),
            None if line.tools.is_empty() => "-".to_owned(),
            None => format!("{}: {}", line.tools.len(), line.tools.join(" ")),
        };
        table.push(vec![line.name.clone(), line.state.to_owned(), from, last]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_with_its_tools_or_why_it_has_none() {
        let ready = McpServerState {
            name: "git".to_owned(),
            workspace: None,
            target: "git-mcp".to_owned(),
            state: McpState::Ready,
            reason: None,
            tools: vec!["log".to_owned(), "show".to_owned()],
        };
        let lines = [
            Line::from(ready),
            Line::unused("db", Some(Path::new("/w")), "untrusted", None),
            Line::unused("web", None, "down", Some("it closed the connection".to_owned())),
        ];
        assert_eq!(
            text(&lines, true),
            "SERVER  STATE      FROM           TOOLS\n\
             git     ready      configuration  2: log show\n\
             db      untrusted  /w             -\n\
             web     down       configuration  it closed the connection\n"
        );
        assert_eq!(text(&[], true), "");
    }
}
