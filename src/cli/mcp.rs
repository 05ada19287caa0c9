//! `dshd mcp`: the MCP servers that there are, and which workspaces may bring their own.

mod list;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Failure, Globals, exit, output, tell};
use crate::mcp::{self, Standing, TrustBook, TrustError, Workspace, WorkspaceFile};

/// Arguments of `dshd mcp`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd mcp list
  dshd mcp trust ~/src/app
  dshd mcp list --json | jq '.servers[] | select(.state == \"down\")'")]
pub struct McpArgs {
    /// What to do
    #[command(subcommand)]
    pub action: McpAction,
}

/// What to do with MCP servers.
#[derive(Debug, Subcommand)]
pub enum McpAction {
    /// List servers, how they are, and their tools
    List {
        /// With the servers of this workspace
        #[arg(short = 'C', long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// Print no header
        #[arg(long)]
        no_header: bool,
    },
    /// Trust a workspace's .dshd/mcp.toml and .mcp.json as they are now
    Trust {
        /// The workspace; without it the one here
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Trust them no longer
    Untrust {
        /// The workspace; without it the one here
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

pub(super) async fn run(args: McpArgs, globals: &Globals) -> Result<u8, Failure> {
    let here = globals.environment.cwd();
    match args.action {
        McpAction::List { cwd, no_header } => {
            let dir = cwd.map_or_else(|| here.to_path_buf(), |dir| here.join(dir));
            list::run(&dir, no_header, globals).await
        }
        McpAction::Trust { dir } => trust(&here.join(dir.unwrap_or_default()), globals),
        McpAction::Untrust { dir } => untrust(&here.join(dir.unwrap_or_default()), globals),
    }
}

#[derive(Serialize)]
struct TrustedDocument<'a> {
    schema: &'static str,
    workspace: &'a Path,
    files: Vec<TrustedLine<'a>>,
}

#[derive(Serialize)]
struct TrustedLine<'a> {
    file: &'a Path,
    sha256: &'a str,
    servers: Vec<&'a str>,
}

fn trust(dir: &Path, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let trusting = mcp::trusting(&loaded.config);
    let workspace = Workspace::of(dir, &trusting).ok_or_else(|| {
        let message = format!("no MCP servers in {}: neither .dshd/mcp.toml nor .mcp.json", dir.display());
        Failure::new(exit::REFUSED, "no_file", message).with_help("dshd mcp trust DIR")
    })?;
    let book = TrustBook::new(&loaded.paths.data_dir);
    let mut lines = Vec::new();
    for file in &workspace.files {
        let servers = file.servers.as_ref().map_err(|why| {
            Failure::new(exit::CONFIG, "config", why.clone()).with_help("mend the file, then trust it")
        })?;
        lines.push((file, servers));
    }
    for (file, _) in &lines {
        book.trust(&file.path, &file.digest)?;
    }
    let files = lines.iter().map(|(file, servers)| TrustedLine {
        file: &file.path,
        sha256: &file.digest,
        servers: servers.keys().map(String::as_str).collect(),
    });
    if globals.args.json {
        let files = files.collect();
        let workspace = &workspace.directory;
        output::print_json(&TrustedDocument { schema: "dshd.mcpTrusted/1", workspace, files })?;
    } else if !globals.args.quiet {
        for (file, servers) in &lines {
            tell::say(&format!(
                "trusted {}; when it changes it has to be trusted again",
                file.path.display()
            ));
            for (name, server) in *servers {
                let command = server.command.iter().chain(&server.args).map(String::as_str);
                let what = server.url.clone().unwrap_or_else(|| command.collect::<Vec<_>>().join(" "));
                tell::say(&format!("  {name}: {what}"));
            }
        }
    }
    Ok(exit::OK)
}

#[derive(Serialize)]
struct UntrustedDocument {
    schema: &'static str,
    files: Vec<PathBuf>,
}

fn untrust(dir: &Path, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let book = TrustBook::new(&loaded.paths.data_dir);
    // The files may be gone, and even the directory.
    let directory = Workspace::of(dir, &mcp::trusting(&loaded.config)).map(|workspace| workspace.directory);
    let directory = directory.or_else(|| dir.canonicalize().ok()).unwrap_or_else(|| dir.to_path_buf());
    let files = book.forget(&Workspace::file_paths(&directory))?;
    if globals.args.json {
        output::print_json(&UntrustedDocument { schema: "dshd.mcpUntrusted/1", files })?;
    } else if !globals.args.quiet {
        for file in &files {
            tell::say(&format!(
                "{} is trusted no longer; its servers end with the next step there",
                file.display()
            ));
        }
        if files.is_empty() {
            tell::say(&format!("nothing in {} was trusted", directory.display()));
        }
    }
    if loaded.config.mcp.trusted_workspaces.contains(&directory) {
        let message = format!("{} is still trusted by mcp.trusted_workspaces", directory.display());
        return Err(Failure::new(exit::REFUSED, "configured", message)
            .with_help("remove it from dshd.toml, then: systemctl --user reload dshd, or kill -HUP"));
    }
    Ok(exit::OK)
}

/// What to say of a file that is not used.
fn state(file: &WorkspaceFile) -> Option<&'static str> {
    match (file.standing, &file.servers) {
        (_, Err(_)) => Some("invalid"),
        (Standing::Changed, Ok(_)) => Some("changed"),
        (Standing::Untrusted, Ok(_)) => Some("untrusted"),
        (Standing::Configured | Standing::Trusted, Ok(_)) => None,
    }
}

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Self {
        let message = error.to_string();
        match error {
            TrustError::Io { .. } => Self::new(exit::STORAGE, "io", message),
            TrustError::Damaged { path, .. } => {
                Self::new(exit::CONFIG, "config", message).with_help(format!("rm {}", path.display()))
            }
        }
    }
}
