//! The runtime that all connections share: sessions, models, tools, store. It knows no wire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Config;
use crate::event::{MessageId, SessionId};
use crate::session::feed::{Framing, SharedFeed};
use crate::session::{
    Answer, Cancelled, CloseCause, NewSession, Position, PromptRequest, PromptTicket, QueueView,
    SessionError, Status,
};
use crate::shutdown::Scope;
use crate::store::{Page, PageLimit, SessionStore, Summary};

/// What the runtime is made of.
pub struct Parts {
    /// Where sessions live.
    pub store: Arc<dyn SessionStore>,
    /// The configuration in force; read at use, so that a reload applies.
    pub config: watch::Receiver<Arc<Config>>,
    /// How events become lines.
    pub framing: Framing,
    /// Where its tasks run.
    pub scope: Scope,
    /// Built-in providers, keys and clients.
    pub providers: crate::provider::registry::Providers,
}

/// A session in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What the store knows.
    pub summary: Summary,
    /// Whether its agent works.
    pub status: Status,
}

/// What `server/status` tells of sessions.
#[derive(Clone, Debug)]
pub struct SessionState {
    /// Which.
    pub id: SessionId,
    /// Whether its agent works.
    pub status: Status,
    /// Prompts that wait.
    pub queued: usize,
    /// Where its log is.
    pub position: Position,
}

/// The runtime. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    _private: (),
}

impl Runtime {
    /// Builds it; nothing is opened yet.
    pub fn new(_parts: Parts) -> Self {
        unimplemented!()
    }

    /// Checks a route that a client named, filling in the configured defaults: (provider, model).
    ///
    /// # Errors
    /// [`SessionError::ProviderUnavailable`] when the provider is unknown or lacks its key.
    pub fn route(
        &self,
        _provider: Option<&str>,
        _model: Option<&str>,
    ) -> Result<(String, String), SessionError> {
        unimplemented!()
    }

    /// Submits a prompt to a session, which is resumed or made when needed.
    ///
    /// # Errors
    /// At once when stopping or over a bound; everything else comes through the ticket.
    pub fn prompt(
        &self,
        _id: &SessionId,
        _new: NewSession,
        _request: PromptRequest,
    ) -> Result<PromptTicket, SessionError> {
        unimplemented!()
    }

    /// Makes a session, in memory until its first prompt.
    pub fn create(&self, _id: &SessionId, _new: NewSession) -> Answer<Position> {
        unimplemented!()
    }

    /// Opens a session that is on disk or in memory.
    pub fn resume(&self, _id: &SessionId) -> Answer<Position> {
        unimplemented!()
    }

    /// Cancels the running turn, or the turn or queued prompt of one message.
    pub fn cancel(&self, _id: &SessionId, _message_id: Option<MessageId>) -> Answer<Cancelled> {
        unimplemented!()
    }

    /// Cancels, waits, disposes of the agent. The log stays.
    pub fn close(&self, _id: &SessionId, _cause: CloseCause) -> Answer<()> {
        unimplemented!()
    }

    /// Answers when the session and its descendants are idle.
    pub fn wait(&self, _id: &SessionId) -> Answer<()> {
        unimplemented!()
    }

    /// What waits in a session; never opens a log for writing.
    pub fn queue(&self, _id: &SessionId) -> Answer<QueueView> {
        unimplemented!()
    }

    /// A session's working directory; an unknown session is made in memory.
    pub fn working_directory(&self, _id: &SessionId, _new: NewSession) -> Answer<PathBuf> {
        unimplemented!()
    }

    /// Changes it; relative paths are taken from the current one.
    pub fn set_working_directory(
        &self,
        _id: &SessionId,
        _new: NewSession,
        _path: PathBuf,
    ) -> Answer<PathBuf> {
        unimplemented!()
    }

    /// The feed of a session that is in memory, without waiting.
    pub fn loaded_feed(&self, _id: &SessionId) -> Option<SharedFeed> {
        unimplemented!()
    }

    /// The feed of a session, loaded or not; never opens a log for writing.
    pub fn feed(&self, _id: &SessionId) -> Answer<SharedFeed> {
        unimplemented!()
    }

    /// A page of events. Never opens a log for writing. The position is where the log is now.
    pub fn read(
        &self,
        _id: &SessionId,
        _after: Option<crate::event::Seq>,
        _limit: PageLimit,
    ) -> Answer<(Page, Position)> {
        unimplemented!()
    }

    /// All sessions, newest first.
    pub fn list(&self) -> Answer<Vec<Listed>> {
        unimplemented!()
    }

    /// The sessions in memory.
    pub fn loaded(&self) -> Vec<SessionState> {
        unimplemented!()
    }

    /// Takes no new session and no new prompt from here on.
    pub fn stop_taking(&self) {
        unimplemented!()
    }

    /// Waits until no session is being made or opened.
    pub async fn creations_done(&self) {
        unimplemented!()
    }

    /// Lets running turns finish for `drain`, then cancels them, then disposes of every session. Says what failed.
    pub async fn end(&self, _drain: Duration) -> Vec<String> {
        unimplemented!()
    }
}
