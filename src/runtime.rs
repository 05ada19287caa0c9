//! The runtime that all connections share: sessions, models, tools, store. It knows no wire.
//!
//! Requests are submitted in the caller's order and never wait; what waits is the [`Answer`].

mod look;
mod retain;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Loaded;
use crate::event::{AbortCause, ApprovalOutcome, MessageId, Seq, SessionId, SessionUpdate};
use crate::mcp;
use crate::process::Sandbox;
use crate::provider::registry::{Route, RouteError};
pub use crate::session::Parts;
use crate::session::feed::SharedFeed;
use crate::session::registry::Shared;
use crate::session::{
    Answer, Cancelled, CloseCause, Command, NewSession, Position, PromptAnswers, PromptRequest, PromptTicket,
    Rule, SessionError, Status, Waiting,
};
use crate::store::Summary;

/// A session in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What the store knows.
    pub summary: Summary,
    /// Whether its agent works.
    pub status: Status,
}

/// What `server/status` tells of a session in memory.
#[derive(Clone, Debug)]
pub struct SessionState {
    /// Which.
    pub id: SessionId,
    /// Whether its agent works.
    pub status: Status,
    /// Where its log is.
    pub position: Position,
}

/// The runtime. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

/// What of `shutdown.cancel_grace` an MCP server gets to end by itself, and again after SIGTERM.
const SERVERS_SHARE: u32 = 2;

/// How long the end of a cancelled session may take beyond `shutdown.cancel_grace`.
const DISPOSE_MAX: Duration = Duration::from_secs(6);

impl Runtime {
    /// Builds it; nothing is opened yet.
    pub fn new(parts: Parts) -> Self {
        Self { shared: Arc::new(Shared::new(parts)) }
    }

    /// Checks a route that a client named, filling in the configured defaults: (provider, model). Who names no provider
    /// is let in whatever the default one lacks: to look and to stop needs no model, and a turn says what is missing.
    ///
    /// # Errors
    /// [`SessionError::ProviderUnavailable`] when the provider that was named is unknown, lacks its key, or needs a model
    /// to be named.
    pub fn route(
        &self,
        provider: Option<&str>,
        model: Option<&str>,
    ) -> Result<(String, String), SessionError> {
        let providers = self.shared.providers();
        if let Some(named) = provider {
            providers.check(named).map_err(|error| SessionError::ProviderUnavailable(error.to_string()))?;
        }
        let unavailable = |error: RouteError| SessionError::ProviderUnavailable(error.to_string());
        match (provider, model) {
            (Some(provider), Some(model)) => Ok((provider.to_owned(), model.to_owned())),
            (Some(provider), None) => {
                Ok((provider.to_owned(), providers.default_model(provider).map_err(unavailable)?))
            }
            (None, Some(model)) => Ok((providers.default_route().0, model.to_owned())),
            (None, None) => Ok(providers.default_route()),
        }
    }

    /// The route of who names none: (provider, model).
    pub fn default_route(&self) -> (String, String) {
        self.shared.providers().default_route()
    }

    /// The first storage failure, if there was one.
    pub fn storage_failure(&self) -> Option<String> {
        self.shared.store.failure()
    }

    /// Why no turn begins for want of room on the disk, if so.
    pub fn no_room(&self) -> Option<String> {
        self.shared.check_room().err().map(|error| error.to_string())
    }

    /// The configured models, for `models/list`.
    pub fn routes(&self) -> Vec<Route> {
        self.shared.providers().routes()
    }

    /// How the MCP servers are.
    pub fn mcp_servers(&self) -> Vec<mcp::Report> {
        self.shared.tools().servers().map_or_else(Vec::new, mcp::Servers::report)
    }

    /// Puts a reloaded configuration's providers and tools in force, for turns that start from here on.
    pub fn reload(&self, loaded: &Loaded) {
        self.shared.reload(self.shared.providers().succeeded(loaded), Sandbox::new(loaded));
    }

    /// Submits a prompt to a session, which is resumed or made when needed.
    ///
    /// # Errors
    /// At once when stopping; everything else comes through the ticket.
    pub fn prompt(
        &self,
        id: &SessionId,
        new: NewSession,
        request: PromptRequest,
    ) -> Result<PromptTicket, SessionError> {
        if self.shared.is_stopping() {
            return Err(SessionError::ShuttingDown { message_id: None });
        }
        let (accepted_by, accepted) = Answer::channel();
        let (durable_by, durable) = Answer::channel();
        let (settled_by, settled) = Answer::channel();
        let answers = PromptAnswers { accepted: accepted_by, durable: durable_by, settled: settled_by };
        self.shared.submit(id, Command::Prompt { new: Box::new(new), request, answers });
        Ok(PromptTicket { accepted, durable, settled })
    }

    /// Makes a session, in memory until its first prompt.
    pub fn create(&self, id: &SessionId, new: NewSession) -> Answer<Position> {
        self.submit(id, |answer| Command::Create { new: Box::new(new), answer })
    }

    /// Opens a session that is on disk or in memory.
    pub fn resume(&self, id: &SessionId) -> Answer<Position> {
        if self.shared.is_stopping() {
            return Answer::ready(Err(SessionError::ShuttingDown { message_id: None }));
        }
        self.submit(id, |answer| Command::Resume { answer })
    }

    /// Cancels the running turn, or the turn or queued prompt of one message.
    pub fn cancel(&self, id: &SessionId, message_id: Option<MessageId>) -> Answer<Cancelled> {
        let (answer_by, answer) = Answer::channel();
        let cancel = Command::Cancel { message_id, cause: AbortCause::User, answer: answer_by };
        match self.shared.submit_loaded(id, cancel) {
            Ok(()) => answer,
            Err(_) => self.if_stored(id, || Cancelled { cancelled: false, after: Vec::new() }),
        }
    }

    /// Cancels, waits, disposes of the agent. The log stays.
    pub fn close(&self, id: &SessionId, cause: CloseCause) -> Answer<()> {
        let (answer_by, answer) = Answer::channel();
        match self.shared.submit_loaded(id, Command::Close { cause, answer: answer_by }) {
            Ok(()) => answer,
            Err(_) => self.if_stored(id, || ()),
        }
    }

    /// Closes it and removes all that is stored of it; then the sessions of its subagents, too.
    pub fn delete(&self, id: &SessionId) -> Answer<()> {
        if self.shared.is_stopping() {
            return Answer::ready(Err(SessionError::ShuttingDown { message_id: None }));
        }
        let deleted = self.submit(id, |answer| Command::Delete { idle_only: false, answer });
        let (runtime, id) = (self.clone(), id.clone());
        self.later(async move {
            deleted.await?;
            runtime.delete_children(&id).await;
            Ok(())
        })
    }

    /// Deletes a session only if it does not work right now. Says whether it did.
    pub(crate) fn delete_idle(&self, id: &SessionId) -> Answer<bool> {
        self.submit(id, |answer| Command::Delete { idle_only: true, answer })
    }

    /// Answers when the session and its descendants are idle.
    pub fn wait(&self, id: &SessionId) -> Answer<()> {
        let (answer_by, answer) = Answer::channel();
        match self.shared.submit_loaded(id, Command::Wait { answer: answer_by }) {
            Ok(()) => answer,
            Err(_) => self.if_stored(id, || ()),
        }
    }

    /// Changes a session's settings, from its next step on. Tells where that is in its log, if it has one yet.
    pub fn update(&self, id: &SessionId, update: SessionUpdate) -> Answer<Option<Seq>> {
        self.submit(id, |answer| Command::Update { update: Box::new(update), answer })
    }

    /// Answers what a call of the running turn asks for. The first answer wins.
    pub fn answer(
        &self,
        id: &SessionId,
        approval: String,
        outcome: ApprovalOutcome,
        by: String,
    ) -> Answer<()> {
        let (answer_by, answer) = Answer::channel();
        let command = Command::Answer { id: approval.clone(), outcome, by: Some(by), answer: answer_by };
        match self.shared.submit_loaded(id, command) {
            Ok(()) => answer,
            Err(_) => Answer::ready(Err(SessionError::NoSuchApproval { session: id.clone(), approval })),
        }
    }

    /// What a session's clients have allowed for it, less what is revoked.
    pub(crate) fn rules(&self, id: &SessionId, revoke: Option<String>) -> Answer<Vec<Rule>> {
        self.submit(id, |answer| Command::Rules { revoke, answer })
    }

    /// What waits for an approval in a session and in those that work for it, the oldest first.
    pub(crate) fn waiting(&self, feed: &SharedFeed) -> Vec<Waiting> {
        let children = feed.children(feed.position().0.last);
        let feeds = children.iter().filter_map(|child| self.shared.feed(child));
        let all = std::iter::once(feed.clone()).chain(feeds).flat_map(|feed| {
            let session = feed.session().clone();
            let waiting = feed.approvals().into_iter();
            waiting.map(move |approval| Waiting { session: session.clone(), approval }).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// A session's working directory; an unknown session is made in memory.
    pub fn working_directory(&self, id: &SessionId, new: NewSession) -> Answer<PathBuf> {
        self.submit(id, |answer| Command::GetDirectory { new: Box::new(new), answer })
    }

    /// Changes it; relative paths are taken from the current one.
    pub fn set_working_directory(&self, id: &SessionId, new: NewSession, path: PathBuf) -> Answer<PathBuf> {
        self.submit(id, |answer| Command::SetDirectory { new: Box::new(new), path, answer })
    }

    /// The sessions in memory.
    pub fn loaded(&self) -> Vec<SessionState> {
        let state = |feed: SharedFeed| {
            let (position, status) = feed.position();
            SessionState { id: feed.session().clone(), status, position }
        };
        self.shared.loaded().into_iter().map(state).collect()
    }

    /// The feeds of the sessions in memory.
    pub fn loaded_feeds(&self) -> Vec<SharedFeed> {
        self.shared.loaded()
    }

    /// Changes each time a session comes into memory.
    pub fn loads(&self) -> watch::Receiver<u64> {
        self.shared.loads()
    }

    /// Of the sessions in memory the most requests that wait for one, and the most bytes of recent events of one.
    pub fn fullest(&self) -> (usize, usize) {
        self.shared.fullest()
    }

    /// Child processes of all tools that run now.
    pub fn children_running(&self) -> usize {
        self.shared.tools().children_running()
    }

    /// Takes no new session and no new prompt from here on.
    pub fn stop_taking(&self) {
        self.shared.stop_taking();
    }

    /// Waits until no session is being made or opened.
    pub async fn creations_done(&self) {
        self.shared.openings_done().await;
    }

    /// Whether a turn runs anywhere.
    pub fn is_busy(&self) -> bool {
        self.shared.loaded().iter().any(|feed| feed.position().1 == Status::Running)
    }

    /// Waits until no turn runs, at most `limit`. Says whether none runs.
    pub async fn turns_done(&self, limit: Duration) -> bool {
        let waits: Vec<Answer<()>> =
            self.shared.loaded().iter().map(|feed| self.wait(feed.session())).collect();
        tokio::time::timeout(limit, futures_util::future::join_all(waits)).await.is_ok()
    }

    /// Cancels what still runs, disposes of every session, brings everything to stable storage. Says what failed; no
    /// failure stops the rest.
    pub async fn end(&self) -> Vec<String> {
        let grace = self.shared.config().shutdown.cancel_grace;
        let mut failures = Vec::new();
        let closes = self.shared.loaded().into_iter().map(|feed| {
            let id = feed.session().clone();
            let closed = self.close(&id, CloseCause::ShuttingDown);
            async move { (id, tokio::time::timeout(grace + DISPOSE_MAX, closed).await) }
        });
        // Calls of servers' tools are over when their turns are, or with them.
        let servers = self.shared.tools().servers().cloned();
        let servers_ended = async {
            match servers {
                Some(servers) => servers.end(grace / SERVERS_SHARE).await,
                None => true,
            }
        };
        let (closed, servers_ended) =
            futures_util::future::join(futures_util::future::join_all(closes), servers_ended).await;
        if !servers_ended {
            tracing::warn!("MCP servers did not end in time and were killed");
        }
        for (id, closed) in closed {
            match closed {
                Ok(Ok(()) | Err(SessionError::NotFound(_))) => {}
                Ok(Err(error)) => failures.push(format!("session {id}: {error}")),
                Err(_) => failures.push(format!("session {id} did not end in time")),
            }
        }
        if let Err(error) = self.shared.store.flush().await {
            failures.push(format!("flush: {error}"));
        }
        failures
    }

    fn submit<T>(
        &self,
        id: &SessionId,
        command: impl FnOnce(crate::session::Answerer<T>) -> Command,
    ) -> Answer<T> {
        let (answer_by, answer) = Answer::channel();
        self.shared.submit(id, command(answer_by));
        answer
    }
}
