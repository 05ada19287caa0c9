//! A server as others see it: what it offers, how it is, a way to call its tools. Its life is in `life`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorCode, JsonObject};
use rmcp::service::{Peer, ServiceError};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::definition::Definition;
use super::describe;
use super::line::Line;
use super::listing::RemoteTool;

/// Calls that one server runs at once.
const CALLS_MAX: usize = 64;
/// Starts in a row that failed, after which tools that were listed before are no longer offered.
const FAILURES_SHOWN: u32 = 3;

/// A server.
pub struct Server {
    pub(super) definition: Definition,
    pub(super) view: watch::Sender<View>,
    /// Places for calls.
    pub(super) calls: Semaphore,
    /// When a session last asked for it.
    used: Mutex<Instant>,
    /// A call was not answered: is it alive?
    pub(super) doubted: Notify,
    /// Asks it to end, giving its program so long.
    pub(super) stop: watch::Sender<Option<Duration>>,
}

/// What there is to know of it.
#[derive(Clone)]
pub(super) struct View {
    pub(super) phase: Phase,
    /// What it listed last.
    pub(super) tools: Option<Arc<[RemoteTool]>>,
    /// Starts in a row that failed.
    pub(super) failures: u32,
}

/// What it does.
#[derive(Clone)]
pub(super) enum Phase {
    /// It starts.
    Starting {
        /// Since when.
        since: Instant,
    },
    /// It serves.
    Ready {
        /// The way to it.
        peer: Peer<RoleClient>,
        /// How that is.
        line: Arc<Line>,
    },
    /// It is down, and is started again.
    Down {
        /// Why.
        why: Arc<str>,
        /// When.
        until: Instant,
    },
    /// It was ended.
    Stopped,
}

/// How a server is, in a word, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No session has asked for it.
    Idle,
    /// It starts.
    Starting,
    /// It serves.
    Ready,
    /// It is down; the text says why. It is started again.
    Down(String),
}

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The turn was cancelled; the server was told.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server does not run; nothing was asked of it.
    #[error("the MCP server {server} does not run: {why}")]
    Down {
        /// Which.
        server: String,
        /// Why, and when it is tried again.
        why: String,
    },
    /// It runs too many calls.
    #[error("the MCP server {server} runs {CALLS_MAX} calls already; call again when one has ended")]
    Busy {
        /// Which.
        server: String,
    },
    /// It refused the arguments.
    #[error("the MCP server {server} refused the arguments: {what}")]
    Arguments {
        /// Which.
        server: String,
        /// What it says.
        what: String,
    },
    /// It answered with an error, or with what is no answer.
    #[error("the MCP server {server} failed: {what}")]
    Failed {
        /// Which.
        server: String,
        /// What it says.
        what: String,
    },
    /// It did not answer in time. What it did is unknown.
    #[error("the MCP server {server} did not answer within {limit_ms} ms; what it did is unknown")]
    TimedOut {
        /// Which.
        server: String,
        /// `timeout`.
        limit_ms: u128,
    },
    /// It went away in the middle. What it did is unknown.
    #[error("the MCP server {server} went away during the call: {why}; what it did is unknown")]
    Lost {
        /// Which.
        server: String,
        /// Why.
        why: String,
    },
}

impl Server {
    pub(super) fn new(definition: Definition) -> Self {
        let phase = Phase::Starting { since: Instant::now() };
        Self {
            definition,
            view: watch::Sender::new(View { phase, tools: None, failures: 0 }),
            calls: Semaphore::new(CALLS_MAX),
            used: Mutex::new(Instant::now()),
            doubted: Notify::new(),
            stop: watch::Sender::new(None),
        }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Text of one result that the model gets, in bytes.
    pub fn result_bytes(&self) -> usize {
        self.definition.result_bytes
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When it is idle for so long; a call that runs is use.
    pub(super) fn idle_at(&self, idle: Duration) -> Instant {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let base = if self.calls.available_permits() < CALLS_MAX { Instant::now() } else { used };
        base + idle
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.view.borrow().phase, Phase::Stopped)
    }

    pub(super) fn health(&self) -> Health {
        match &self.view.borrow().phase {
            Phase::Starting { .. } => Health::Starting,
            Phase::Ready { .. } => Health::Ready,
            Phase::Down { why, .. } => Health::Down(why.to_string()),
            Phase::Stopped => Health::Idle,
        }
    }

    /// What it offers now.
    pub(super) fn tools(&self) -> Option<Arc<[RemoteTool]>> {
        let view = self.view.borrow();
        view.tools.clone().filter(|_| view.failures < FAILURES_SHOWN && !matches!(view.phase, Phase::Stopped))
    }

    /// Waits, at most `start_timeout`, for the first list, or for the one after a change. A server that is down is not
    /// waited for: what it listed before stands.
    pub(super) async fn listed(&self) {
        let mut view = self.view.subscribe();
        let started = match view.borrow().phase {
            Phase::Starting { since } => since,
            Phase::Ready { .. } | Phase::Down { .. } | Phase::Stopped => Instant::now(),
        };
        let settled = |view: &View| match &view.phase {
            Phase::Starting { .. } => view.tools.is_some() || view.failures > 0,
            Phase::Ready { line, .. } => line.is_listed(),
            Phase::Down { .. } | Phase::Stopped => true,
        };
        let deadline = started + self.definition.start_timeout;
        let may_wait = deadline > Instant::now();
        // Whoever comes too late to wait looks only.
        if timeout_at(deadline, view.wait_for(settled)).await.is_err() && may_wait {
            tracing::warn!(
                server = self.name(),
                "a step goes on without the tools of an MCP server that is slow"
            );
        }
    }

    /// Calls a tool. Cancelled, it returns at once, and the server is told.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        cancel: &CancellationToken,
    ) -> Result<CallToolResult, CallError> {
        let server = || self.name().to_owned();
        self.touch();
        let _place = self.calls.try_acquire().map_err(|_| CallError::Busy { server: server() })?;
        let limit = self.definition.timeout;
        let deadline = Instant::now() + limit;
        let work = async {
            let (peer, line) = self.connected().await?;
            let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
            // Dropped before its end, the call is cancelled at the server.
            let answer = tokio::select! {
                biased;
                answer = peer.call_tool(request) => answer,
                () = line.ended() => Err(ServiceError::TransportClosed),
            };
            answer.map_err(|error| self.failed(error, &line))
        };
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                self.doubted.notify_one();
                return Err(CallError::Cancelled);
            }
            answer = timeout_at(deadline, work) => answer,
        };
        self.touch();
        answer.unwrap_or_else(|_| {
            self.doubted.notify_one();
            Err(CallError::TimedOut { server: server(), limit_ms: limit.as_millis() })
        })
    }

    fn failed(&self, error: ServiceError, line: &Line) -> CallError {
        let server = self.name().to_owned();
        if let ServiceError::McpError(error) = error {
            let (code, what) = (error.code, error.message.into_owned());
            return if code == ErrorCode::INVALID_PARAMS {
                CallError::Arguments { server, what }
            } else {
                CallError::Failed { server, what }
            };
        }
        if matches!(error, ServiceError::UnexpectedResponse) {
            return CallError::Failed { server, what: "its answer is no result of a call".to_owned() };
        }
        let why = if matches!(error, ServiceError::TransportClosed) {
            line.why().unwrap_or_else(|| "the connection ended".to_owned())
        } else {
            self.doubted.notify_one();
            describe(&error)
        };
        CallError::Lost { server, why }
    }

    /// The way to it. One that starts is waited for as long as a step would wait; one that is down soon comes back or is
    /// told to be down.
    async fn connected(&self) -> Result<(Peer<RoleClient>, Arc<Line>), CallError> {
        let down = |why: String| CallError::Down { server: self.name().to_owned(), why };
        let deadline = Instant::now() + self.definition.start_timeout;
        let mut view = self.view.subscribe();
        loop {
            let phase = view.borrow_and_update().phase.clone();
            match phase {
                Phase::Ready { peer, line } => return Ok((peer, line)),
                Phase::Down { why, until } if until > deadline => {
                    let wait = until.saturating_duration_since(Instant::now()).as_secs();
                    return Err(down(format!("{why}; it is started again in {wait} s")));
                }
                Phase::Stopped => return Err(down("it was stopped".to_owned())),
                Phase::Starting { .. } | Phase::Down { .. } => {}
            }
            if !matches!(timeout_at(deadline, view.changed()).await, Ok(Ok(()))) {
                let why = match &view.borrow().phase {
                    Phase::Down { why, .. } => why.to_string(),
                    Phase::Starting { .. } | Phase::Ready { .. } | Phase::Stopped => {
                        "it has not started yet".to_owned()
                    }
                };
                return Err(down(why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, McpServer};
    use crate::mcp::definition::Surroundings;
    use crate::process::Sandbox;

    fn server() -> Server {
        let surroundings = Surroundings::new([], &[], 1000, Sandbox::of_config(&Config::default()));
        let server = McpServer { command: Some("x".to_owned()), ..McpServer::default() };
        Server::new(Definition::new("x", &server, None, &surroundings))
    }

    fn down(server: &Server, failures: u32, wait: Duration) {
        server.view.send_modify(|view| {
            let until = Instant::now() + wait;
            *view = View {
                phase: Phase::Down { why: "it died".into(), until },
                tools: Some(Arc::new([])),
                failures,
            };
        });
    }

    #[tokio::test(start_paused = true)]
    async fn tools_stay_through_a_restart_and_go_when_it_fails_for_the_third_time() {
        let server = server();
        assert!(server.tools().is_none());
        down(&server, 2, Duration::from_secs(2));
        assert!(server.tools().is_some());
        down(&server, 3, Duration::from_secs(4));
        assert!(server.tools().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_a_server_that_is_down_for_long_is_told_at_once() {
        let server = server();
        down(&server, 1, Duration::from_secs(30));
        let asked = Instant::now();
        let error = server.call("t", JsonObject::new(), &CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "the MCP server x does not run: it died; it is started again in 30 s");
        assert_eq!(asked.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_waits_for_the_first_list_and_no_longer_than_allowed() {
        let server = server();
        let asked = Instant::now();
        server.listed().await;
        assert_eq!(asked.elapsed(), server.definition.start_timeout);
        server.listed().await;
        assert_eq!(asked.elapsed(), server.definition.start_timeout, "the next step does not wait again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_returns_at_once_and_one_too_many_is_refused() {
        let server = server();
        let cancel = CancellationToken::new();
        let (call, ()) =
            tokio::join!(server.call("t", JsonObject::new(), &cancel), async { cancel.cancel() });
        assert!(matches!(call, Err(CallError::Cancelled)));
        let _all = server.calls.acquire_many(u32::try_from(CALLS_MAX).unwrap()).await.unwrap();
        let call = server.call("t", JsonObject::new(), &CancellationToken::new()).await;
        assert!(matches!(call, Err(CallError::Busy { .. })));
    }
}
