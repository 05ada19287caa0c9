//! What a server is: how it is reached, how long it may take, how much it may say. Two servers with the same definition
//! are the same server.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{McpServer, Secret};
use crate::process::{self, Confinement, Program, Sandbox};

/// A server, with all that starting it needs.
#[derive(PartialEq, Eq)]
pub(super) struct Definition {
    /// Its name in the configuration.
    pub(super) name: String,
    /// The workspace whose file defines it; none: the daemon's configuration does.
    pub(super) workspace: Option<PathBuf>,
    /// How it is reached.
    pub(super) launch: Launch,
    /// Longest call.
    pub(super) timeout: Duration,
    /// Longest wait of a step for its first list.
    pub(super) start_timeout: Duration,
    /// Text of one result.
    pub(super) result_bytes: usize,
    /// One message of it.
    pub(super) message_bytes: usize,
}

/// How a server is reached.
#[derive(PartialEq, Eq)]
pub(super) enum Launch {
    /// By starting a program.
    Program(Program),
    /// By HTTP.
    Http {
        /// Where.
        url: String,
        /// Headers of every request.
        headers: Vec<(String, Secret)>,
    },
    /// Not at all; the text says why.
    Never(String),
}

/// The daemon's environment, of which servers see what tools see, and what their configuration takes by `${NAME}`.
#[derive(Clone)]
pub(super) struct Surroundings {
    all: BTreeMap<OsString, OsString>,
    allowed: Vec<(OsString, OsString)>,
    message_bytes: usize,
    sandbox: Sandbox,
}

impl Surroundings {
    /// The process's environment; `extra` names (`tools.env`) pass to programs.
    pub(super) fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        extra: &[String],
        message_bytes: usize,
        sandbox: Sandbox,
    ) -> Self {
        let all: BTreeMap<OsString, OsString> = variables.into_iter().collect();
        let allowed = process::allowed(all.clone(), extra);
        Self { all, allowed, message_bytes, sandbox }
    }

    fn home(&self) -> PathBuf {
        self.all.get(OsStr::new("HOME")).map_or_else(|| PathBuf::from("/"), PathBuf::from)
    }

    /// Replaces `${NAME}` and `${NAME:-default}`.
    fn expand(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, from)) = rest.split_once("${") {
            let (inner, after) =
                from.split_once('}').ok_or_else(|| format!("\"{text}\": `${{` without `}}`"))?;
            let (name, default) = match inner.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inner, None),
            };
            let set = self.all.get(OsStr::new(name)).and_then(|value| value.to_str());
            let value = set.filter(|value| !value.is_empty()).or(default).ok_or_else(|| {
                format!("the variable {name} is not set in the daemon's environment, or is no text")
            })?;
            out.push_str(before);
            out.push_str(value);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

impl Definition {
    /// A server of the configuration, or of a workspace's file.
    pub(super) fn new(
        name: &str,
        server: &McpServer,
        workspace: Option<&Path>,
        surroundings: &Surroundings,
    ) -> Self {
        let launch = launch(server, workspace, surroundings).unwrap_or_else(Launch::Never);
        Self {
            name: name.to_owned(),
            workspace: workspace.map(Path::to_path_buf),
            launch,
            timeout: server.timeout,
            start_timeout: server.start_timeout,
            result_bytes: server.result_bytes.bytes(),
            message_bytes: surroundings.message_bytes,
        }
    }

    /// What is started or called, for people.
    pub(super) fn target(&self) -> String {
        match &self.launch {
            Launch::Program(program) => program.program.display().to_string(),
            Launch::Http { url, .. } => without_secrets(url),
            Launch::Never(_) => String::new(),
        }
    }
}

fn launch(
    server: &McpServer,
    workspace: Option<&Path>,
    surroundings: &Surroundings,
) -> Result<Launch, String> {
    if let Some(url) = &server.url {
        let expand = |(name, value): (&String, &String)| {
            let value = Secret::new(&surroundings.expand(value)?);
            let value = value.ok_or_else(|| format!("the header {name} is empty"))?;
            Ok::<_, String>((name.clone(), value))
        };
        let headers = server.headers.iter().map(expand).collect::<Result<_, _>>()?;
        return Ok(Launch::Http { url: surroundings.expand(url)?, headers });
    }
    let Some(command) = &server.command else { return Err("neither a program nor an address".to_owned()) };
    let home = surroundings.home();
    let base = workspace.unwrap_or(&home);
    let directory = server.cwd.as_ref().map_or_else(|| base.to_path_buf(), |cwd| base.join(cwd));
    let mut environment = surroundings.allowed.clone();
    for (name, value) in &server.env {
        environment.retain(|(known, _)| known != name.as_str());
        environment.push((name.into(), surroundings.expand(value)?.into()));
    }
    let arguments = server.args.iter().map(|text| Ok::<_, String>(surroundings.expand(text)?.into()));
    Ok(Launch::Program(Program {
        program: surroundings.expand(command)?.into(),
        arguments: arguments.collect::<Result<_, _>>()?,
        confinement: confinement(server, workspace, &directory, &surroundings.sandbox),
        directory,
        environment,
    }))
}

/// A program works on its workspace, else on the directory that was chosen for it; the home was not.
fn confinement(
    server: &McpServer,
    workspace: Option<&Path>,
    directory: &Path,
    sandbox: &Sandbox,
) -> Confinement {
    let chosen = server.cwd.as_ref().map(|_| directory);
    let works_on = workspace.or(chosen).map(Path::to_path_buf);
    let workspaces = works_on.into_iter().chain(server.writable.iter().cloned()).collect();
    let confinement =
        sandbox.confine(server.permission_mode, directory).on(workspaces).showing(directory.to_path_buf());
    match server.network {
        Some(network) => confinement.network(network),
        None => confinement,
    }
}

/// An address without what may be secret in it: user, password, query.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        let variables = [("HOME", "/home/me"), ("PATH", "/bin"), ("TOKEN", "t0k"), ("EMPTY", "")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        Surroundings::new(variables, &[], 1000, Sandbox::of_config(&crate::config::Config::default()))
    }

    fn program(server: &McpServer, workspace: Option<&Path>) -> Program {
        match Definition::new("x", server, workspace, &surroundings()).launch {
            Launch::Program(program) => program,
            Launch::Http { .. } | Launch::Never(_) => panic!("no program"),
        }
    }

    #[test]
    fn variables_are_taken_from_the_daemons_environment() {
        let expand = |text| surroundings().expand(text);
        assert_eq!(expand("Bearer ${TOKEN}!").unwrap(), "Bearer t0k!");
        assert_eq!(expand("${NONE:-a}${EMPTY:-b}${TOKEN:-c}").unwrap(), "abt0k");
        assert_eq!(expand("$TOKEN {x}").unwrap(), "$TOKEN {x}");
        assert!(expand("${NONE}").unwrap_err().starts_with("the variable NONE is not set"));
        assert!(expand("${TOKEN").unwrap_err().contains("without `}`"));
    }

    #[test]
    fn a_program_sees_what_tools_see_and_what_is_configured() {
        let env = BTreeMap::from([("KEY".to_owned(), "${TOKEN}".to_owned())]);
        let server = McpServer { command: Some("srv".to_owned()), env, ..McpServer::default() };
        let mut environment = program(&server, None).environment;
        environment.sort();
        let expected = [("HOME", "/home/me"), ("KEY", "t0k"), ("PATH", "/bin")];
        assert_eq!(environment, expected.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn a_program_runs_in_its_workspace_or_at_home() {
        let mut server = McpServer { command: Some("srv".to_owned()), ..McpServer::default() };
        assert_eq!(program(&server, None).directory, Path::new("/home/me"));
        assert_eq!(program(&server, Some(Path::new("/w"))).directory, Path::new("/w"));
        server.cwd = Some("tools".into());
        assert_eq!(program(&server, Some(Path::new("/w"))).directory, Path::new("/w/tools"));
    }

    #[test]
    fn a_variable_that_is_not_set_is_why_a_server_never_starts() {
        let args = vec!["${NONE}".to_owned()];
        let server = McpServer { command: Some("srv".to_owned()), args, ..McpServer::default() };
        let definition = Definition::new("x", &server, None, &surroundings());
        assert!(matches!(definition.launch, Launch::Never(why) if why.contains("NONE")));
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        assert_eq!(without_secrets("https://me:pw@host/mcp?key=s"), "https://host/mcp");
    }
}
