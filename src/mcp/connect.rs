//! Coming to terms with a server: start or call it, shake hands, ask for its tools. And letting go of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::service::{Peer, RunningService};
use rmcp::transport::Transport;
use rmcp::{RoleClient, ServiceExt as _};
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::process::ChildStderr;
use tokio::time::timeout;

use super::definition::{Definition, Launch};
use super::line::{Line, Watched};
use super::listing::{self, RemoteTool};
use super::stdio::Stdio;
use super::us::Us;
use super::{describe, http};
use crate::process::{End, Service};
use crate::shutdown::Scope;

/// How long a program may go on after a start that failed.
const FAILED_GRACE: Duration = Duration::from_millis(200);
/// How long rmcp may take to let go of a connection.
const CLOSE_MAX: Duration = Duration::from_secs(3);
/// The end of stderr that explains a death.
const STDERR_KEPT: usize = 1000;
/// Stderr of one life that is logged; the rest is read and dropped.
const STDERR_LOGGED: usize = 64 * 1024;

/// A connection to a server.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) line: Arc<Line>,
    service: RunningService<RoleClient, Us>,
    program: Option<Running>,
}

/// A server's program.
struct Running {
    service: Service,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Connection {
    /// Connects and lists, each within `limit`. What was started for it is gone again when this fails.
    ///
    /// # Errors
    /// Why it failed.
    pub(super) async fn open(
        definition: &Definition,
        limit: Duration,
        scope: &Scope,
    ) -> Result<(Self, Vec<RemoteTool>), String> {
        let line = Arc::new(Line::default());
        let connection = match &definition.launch {
            Launch::Never(why) => return Err(why.clone()),
            Launch::Http { url, headers } => {
                let transport = http::transport(url, headers, definition.message_bytes, limit)?;
                let service = shake_hands(definition, transport, &line, limit).await?;
                Self { peer: service.peer().clone(), line, service, program: None }
            }
            Launch::Program(program) => {
                let (service, pipes) = Service::start(program).await.map_err(|error| describe(&error))?;
                let running =
                    Running { service, stderr: watch_stderr(pipes.stderr, definition, &line, scope) };
                let max = definition.message_bytes;
                let transport = Stdio::new(pipes.stdin, pipes.stdout, max, &line, scope);
                match shake_hands(definition, transport, &line, limit).await {
                    Ok(service) => {
                        Self { peer: service.peer().clone(), line, service, program: Some(running) }
                    }
                    Err(why) => {
                        line.end(why.clone());
                        return Err(running.end(FAILED_GRACE).await.explain(&why));
                    }
                }
            }
        };
        // Some servers speak of changes before they are asked for the first time.
        let changes = connection.line.changes();
        match listing::list(&definition.name, &connection.peer, limit).await {
            Ok(tools) => {
                connection.line.set_listed(changes);
                Ok((connection, tools))
            }
            Err(why) => Err(connection.close(&why, FAILED_GRACE).await),
        }
    }

    /// Ends it, and the program with it. Why it ended, for people.
    pub(super) async fn close(mut self, why: &str, grace: Duration) -> String {
        self.line.end(why);
        match self.service.close_with_timeout(CLOSE_MAX).await {
            Ok(Some(_)) => {}
            Ok(None) => tracing::warn!("a connection to an MCP server did not close in time"),
            Err(error) => tracing::error!(%error, "a connection to an MCP server broke"),
        }
        let why = self.line.why().unwrap_or_else(|| why.to_owned());
        match self.program {
            Some(program) => program.end(grace).await.explain(&why),
            None => why,
        }
    }
}

async fn shake_hands<T: Transport<RoleClient> + 'static>(
    definition: &Definition,
    transport: T,
    line: &Arc<Line>,
    limit: Duration,
) -> Result<RunningService<RoleClient, Us>, String> {
    let us = Us::new(definition.workspace.as_deref());
    let shaking = us.serve(Watched::new(transport, Arc::clone(line)));
    match timeout(limit, shaking).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(error)) => Err(line.why().unwrap_or_else(|| describe(&error))),
        Err(_) => Err(format!("it did not answer `initialize` within {} ms", limit.as_millis())),
    }
}

/// Reads stderr to its end: the start is logged, the end is kept.
fn watch_stderr(
    stderr: ChildStderr,
    definition: &Definition,
    line: &Arc<Line>,
    scope: &Scope,
) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (keep, line, server) = (Arc::clone(&kept), Arc::clone(line), definition.name.clone());
    let aborted = scope.aborting().clone();
    scope.spawn(async move {
        let mut stderr = BufReader::new(stderr);
        let (mut chunk, mut room) = (vec![0; 4096], STDERR_LOGGED);
        // Others may hold the pipe after the server's end.
        let mut over = std::pin::pin!(async {
            line.ended().await;
            tokio::time::sleep(CLOSE_MAX).await;
        });
        loop {
            let read = tokio::select! {
                () = aborted.cancelled() => return,
                read = stderr.read(&mut chunk) => read,
                () = &mut over => return,
            };
            let Ok(count @ 1..) = read else { return };
            let part = &chunk[..count];
            if room > 0 {
                let text = String::from_utf8_lossy(&part[..count.min(room)]);
                text.lines().for_each(|text| tracing::debug!(server, text, "an MCP server says"));
                room = room.saturating_sub(count);
            }
            let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(part);
            let surplus = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..surplus);
        }
    });
    kept
}

/// How a program ended, and what it said last.
struct Ended {
    end: End,
    said: String,
}

impl Running {
    async fn end(self, grace: Duration) -> Ended {
        let end = self.service.end(grace).await;
        let said = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = String::from_utf8_lossy(&said);
        Ended {
            end,
            said: said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned(),
        }
    }
}

impl Ended {
    fn explain(&self, why: &str) -> String {
        let end = match self.end {
            End::Exited(code) => format!(" (exit code {code})"),
            // By us.
            End::Signalled(9 | 15) => String::new(),
            End::Signalled(signal) => format!(" (killed by signal {signal})"),
            End::Stuck => " (it hangs in the kernel)".to_owned(),
        };
        let said: String = self.said.chars().filter(|c| !c.is_control()).take(300).collect();
        if said.is_empty() { format!("{why}{end}") } else { format!("{why}{end}; it said: {said}") }
    }
}
