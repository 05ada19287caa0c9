//! MCP servers: programs and addresses that offer tools. Who they are, how they live, what they offer, how they are
//! called. `tool` makes their tools a model's; this module knows neither models nor sessions.
//!
//! A server is started when a step first asks for it, and shared by all sessions with the same definition. It is ended
//! when it is no longer defined, when nobody has asked for it for `mcp.idle_stop`, and with the daemon.

mod connect;
mod definition;
mod http;
mod life;
mod line;
mod listing;
mod server;
mod stdio;
mod trust;
mod us;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use rmcp::model as wire;

pub use self::listing::RemoteTool;
pub use self::server::{CallError, Health, Server};
pub use self::trust::{TrustBook, TrustError, TrustedFile};
pub use self::workspace::{Standing, Trusting, Workspace, WorkspaceFile};

use self::definition::{Definition, Surroundings};
use crate::config::{Config, Mcp, McpServer};
use crate::process::Sandbox;
use crate::shutdown::Scope;

/// Files of which was said that they are not trusted; a word each is enough.
const TOLD_MAX: usize = 256;
/// What a server's program gets to end by itself when it is no longer defined.
const REPLACED_GRACE: Duration = Duration::from_secs(2);
/// How long the end of all of them may take beyond twice what their programs get.
const END_MAX: Duration = Duration::from_millis(100);

/// All servers of the daemon. Cheap to clone.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    /// Where their lives are spent.
    scope: Scope,
    state: Mutex<State>,
}

struct State {
    config: Arc<Mcp>,
    surroundings: Arc<Surroundings>,
    trusting: Trusting,
    running: BTreeMap<Key, Arc<Server>>,
    /// Files, by content, of which something was said.
    told: BTreeSet<(PathBuf, String)>,
    ending: bool,
}

/// A server's place: the workspace that defines it, or none, and its name.
type Key = (Option<PathBuf>, String);

/// A server's tools for a step.
pub struct Offered {
    /// The server.
    pub server: Arc<Server>,
    /// What it offers, by name.
    pub tools: Arc<[RemoteTool]>,
}

/// How a server is, for people.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// The workspace that defines it; none: the configuration does.
    pub workspace: Option<PathBuf>,
    /// The program, or the address.
    pub target: String,
    /// How it is.
    pub health: Health,
    /// The names of its tools.
    pub tools: Vec<String>,
}

impl Servers {
    /// The servers of a configuration. None is started yet; those that will be live in the scope.
    pub fn new(config: &Config, scope: &Scope, sandbox: Sandbox) -> Self {
        let state = State {
            config: Arc::new(config.mcp.clone()),
            surroundings: Arc::new(surroundings(config, sandbox)),
            trusting: trusting(config),
            running: BTreeMap::new(),
            told: BTreeSet::new(),
            ending: false,
        };
        Self { inner: Arc::new(Inner { scope: scope.child(), state: Mutex::new(state) }) }
    }

    /// Puts a configuration that was read again in force: servers that it defines otherwise, or no longer, are ended.
    /// The next step that asks starts them anew.
    pub fn reconfigure(&self, config: &Config, sandbox: Sandbox) {
        {
            let mut state = self.lock();
            state.config = Arc::new(config.mcp.clone());
            state.surroundings = Arc::new(surroundings(config, sandbox));
            state.trusting = trusting(config);
            let defined = definitions(&state.config.servers, None, &state.surroundings);
            state.keep(None, &defined);
        }
        let servers = self.clone();
        self.inner.scope.spawn(async move {
            // What the configuration no longer trusts ends now, not with the next step there.
            servers.look(None).await;
        });
    }

    /// The tools for a step in a directory. Servers that it needs are started, and each is waited for at most its
    /// `start_timeout`.
    pub async fn offer(&self, cwd: &Path) -> Vec<Offered> {
        let wanted = self.define(cwd).await;
        futures_util::future::join_all(wanted.iter().map(|server| server.listed())).await;
        let offered = wanted.into_iter().filter_map(|server| {
            let tools = server.tools()?;
            Some(Offered { server, tools })
        });
        offered.collect()
    }

    /// How all of them are: those of the configuration, and those of workspaces that run.
    pub fn report(&self) -> Vec<Report> {
        let state = self.lock();
        let mut reports: BTreeMap<Key, Report> =
            definitions(&state.config.servers, None, &state.surroundings)
                .into_iter()
                .map(|definition| {
                    let report = Report {
                        name: definition.name.clone(),
                        workspace: None,
                        target: definition.target(),
                        health: Health::Idle,
                        tools: Vec::new(),
                    };
                    ((None, definition.name), report)
                })
                .collect();
        for (key, server) in &state.running {
            let tools = server.tools().unwrap_or_default();
            let report = Report {
                name: server.name().to_owned(),
                workspace: key.0.clone(),
                target: server.definition.target(),
                health: server.health(),
                tools: tools.iter().map(|tool| tool.name.clone()).collect(),
            };
            reports.insert(key.clone(), report);
        }
        reports.into_values().collect()
    }

    /// Ends all of them and starts no other; each program gets `grace` to end by itself, and as long after SIGTERM.
    /// Says whether all ended.
    pub async fn end(&self, grace: Duration) -> bool {
        {
            let mut state = self.lock();
            state.ending = true;
            for server in std::mem::take(&mut state.running).into_values() {
                server.stop.send_replace(Some(grace));
            }
        }
        let ended = self.inner.scope.wait(4 * grace + END_MAX).await;
        // Whatever is left is killed.
        self.inner.scope.abort();
        ended
    }

    /// The servers for a directory, started if they were not, in the order of their names.
    async fn define(&self, cwd: &Path) -> Vec<Arc<Server>> {
        let workspace = self.look(Some(cwd)).await;
        let mut state = self.lock();
        let (config, surroundings) = (Arc::clone(&state.config), Arc::clone(&state.surroundings));
        let own = workspace.as_ref().map(Workspace::trusted_servers).unwrap_or_default();
        let directory = workspace.as_ref().map(|workspace| workspace.directory.as_path());
        let mut defined = definitions(&own, directory, &surroundings);
        // What a workspace names too is the workspace's.
        let global = definitions(&config.servers, None, &surroundings);
        defined.extend(global.into_iter().filter(|one| !own.contains_key(&one.name)));
        defined.sort_by(|a, b| a.name.cmp(&b.name));
        defined.into_iter().filter_map(|one| state.running(one, &self.inner.scope)).collect()
    }

    /// Looks at the files of workspaces again, that of a directory and those whose servers run there, or all whose
    /// servers run; ends servers that they define no longer, or may not. The directory's workspace.
    async fn look(&self, cwd: Option<&Path>) -> Option<Workspace> {
        let (trusting, running) = {
            let state = self.lock();
            let running = state.running.keys().filter_map(|(workspace, _)| workspace.clone());
            (state.trusting.clone(), running.collect::<BTreeSet<PathBuf>>())
        };
        let cwd = cwd.map(Path::to_path_buf);
        let looking = self.inner.scope.spawn_blocking(move || {
            let concerned =
                running.into_iter().filter(|one| cwd.as_ref().is_none_or(|cwd| cwd.starts_with(one)));
            let looked = |directory: PathBuf| {
                let now = Workspace::of(&directory, &trusting).filter(|now| now.directory == directory);
                (directory, now)
            };
            let others: Vec<_> = concerned.map(looked).collect();
            (cwd.and_then(|cwd| Workspace::of(&cwd, &trusting)), others)
        });
        let (own, others) = match looking.await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "the MCP servers of workspaces could not be looked for");
                return None;
            }
        };
        let mut state = self.lock();
        let surroundings = Arc::clone(&state.surroundings);
        for (directory, workspace) in others {
            let servers = workspace.as_ref().map(Workspace::trusted_servers).unwrap_or_default();
            let defined = definitions(&servers, Some(&directory), &surroundings);
            state.keep(Some(&directory), &defined);
        }
        if let Some(workspace) = &own {
            state.tell(workspace);
        }
        own
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends the servers of a workspace, or of the configuration, that are not defined like this.
    fn keep(&mut self, workspace: Option<&Path>, defined: &[Definition]) {
        self.running.retain(|(owner, _), server| {
            let kept = owner.as_deref() != workspace || defined.contains(&server.definition);
            if !kept {
                server.stop.send_replace(Some(REPLACED_GRACE));
            }
            kept
        });
    }

    /// The server of a definition, started if it does not run. None when there are too many.
    fn running(&mut self, definition: Definition, scope: &Scope) -> Option<Arc<Server>> {
        let key = (definition.workspace.clone(), definition.name.clone());
        if let Some(server) = self.running.get(&key).filter(|server| !server.is_stopped()) {
            server.touch();
            return Some(Arc::clone(server));
        }
        self.running.retain(|_, server| !server.is_stopped());
        let max = self.config.max_servers;
        if self.ending || self.running.len() >= max {
            if !self.ending && self.first_time(PathBuf::from(&key.1), String::new()) {
                tracing::warn!(
                    server = key.1,
                    max,
                    "an MCP server is not started: too many run (mcp.max_servers)"
                );
            }
            return None;
        }
        let server = Arc::new(Server::new(definition));
        scope.spawn(life::live(Arc::clone(&server), self.config.idle_stop, scope.clone()));
        self.running.insert(key, Arc::clone(&server));
        Some(server)
    }

    /// Whether nothing was said of this yet.
    fn first_time(&mut self, what: PathBuf, digest: String) -> bool {
        self.told.len() < TOLD_MAX && self.told.insert((what, digest))
    }

    /// Says once of each file what keeps it from being used.
    fn tell(&mut self, workspace: &Workspace) {
        for file in &workspace.files {
            let path = file.path.display();
            let why = match (&file.servers, file.standing) {
                (Err(why), _) => format!("its MCP servers are not used: {why}"),
                (Ok(_), Standing::Configured | Standing::Trusted) => continue,
                (Ok(_), standing) => {
                    let what = if standing == Standing::Changed {
                        "has changed since it was trusted"
                    } else {
                        "is not trusted"
                    };
                    let directory = workspace.directory.display();
                    format!(
                        "{path} {what}, so its MCP servers are not used; read it, then: dshd mcp trust {directory}"
                    )
                }
            };
            if self.first_time(file.path.clone(), file.digest.clone()) {
                tracing::warn!(%path, "{why}");
            }
        }
    }
}

fn surroundings(config: &Config, sandbox: Sandbox) -> Surroundings {
    let message_bytes = config.mcp.message_bytes.bytes();
    Surroundings::new(std::env::vars_os(), &config.tools.env, message_bytes, sandbox)
}

/// What a configuration trusts; the book is in its data directory.
pub fn trusting(config: &Config) -> Trusting {
    Trusting {
        workspaces: config.mcp.trusted_workspaces.clone(),
        book: config.data_dir.as_deref().map(TrustBook::new),
    }
}

/// The servers that are switched on.
fn definitions(
    servers: &BTreeMap<String, McpServer>,
    workspace: Option<&Path>,
    surroundings: &Surroundings,
) -> Vec<Definition> {
    let enabled = servers.iter().filter(|(_, server)| server.enabled);
    enabled.map(|(name, server)| Definition::new(name, server, workspace, surroundings)).collect()
}

/// An error with its sources, on one line.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            // Writing to a string never fails.
            let _ = write!(text, ": {said}");
        }
        source = error.source();
    }
    text
}
