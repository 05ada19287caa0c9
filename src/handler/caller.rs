//! Whom a handler works for: one connection, what it may do, and what its `initialize` bound to it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio_util::task::TaskTracker;

use super::error;
use super::follow::Follow;
use super::shared::Shared;
use super::submitted::Submitted;
use crate::auth::Scope;
use crate::event::{PermissionMode, SessionId};
use crate::protocol::{ClientInfo, Completion, Mode, OnDisconnect, SessionScope, WhenBusy};
use crate::rpc::{ErrorKind, RpcError};
use crate::session::{Budget, NewSession};

/// What a client that says nothing gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// When prompts are answered.
    pub completion: Completion,
    /// What becomes of prompts while a turn runs.
    pub when_busy: WhenBusy,
    /// Whose events it hears.
    pub sessions: SessionScope,
    /// Whether it gets text while it is written.
    pub deltas: bool,
    /// What becomes of its turns when it ends.
    pub on_disconnect: OnDisconnect,
    /// The in-flight limit is not below this.
    pub in_flight_min: usize,
    /// `shutdown` ends the process.
    pub owns_process: bool,
}

impl Defaults {
    /// For clients of sockets.
    pub fn sockets() -> Self {
        Self {
            completion: Completion::Settled,
            when_busy: WhenBusy::Reject,
            sessions: SessionScope::Own,
            deltas: true,
            on_disconnect: OnDisconnect::Keep,
            in_flight_min: 0,
            owns_process: false,
        }
    }

    /// For the client of stdio.
    pub fn stdio() -> Self {
        Self { on_disconnect: OnDisconnect::Abort, owns_process: true, ..Self::sockets() }
    }

    /// For official SDKs, on stdio (docs/protocol.md, section 9).
    pub fn sdk(deltas: bool) -> Self {
        Self {
            completion: Completion::Receipt,
            when_busy: WhenBusy::Queue,
            sessions: SessionScope::All,
            deltas,
            in_flight_min: 1024,
            ..Self::stdio()
        }
    }
}

/// What `initialize` bound to a connection.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Directory of the sessions that it makes.
    pub cwd: Option<PathBuf>,
    /// Their provider.
    pub provider: String,
    /// Their model.
    pub model: String,
    /// Their output limit in tokens.
    pub max_tokens: Option<u64>,
    /// How hard they think.
    pub reasoning_effort: Option<String>,
    /// What their agents may touch.
    pub permission_mode: Option<PermissionMode>,
    /// What each may use.
    pub(super) budget: Budget,
    /// When prompts are answered.
    pub completion: Completion,
    /// What becomes of prompts while a turn runs.
    pub when_busy: WhenBusy,
    /// Whether it gets text while it is written.
    pub deltas: bool,
    /// What becomes of its turns when it ends.
    pub on_disconnect: OnDisconnect,
    /// Who it is.
    pub client: Option<ClientInfo>,
}

/// One connection, as handlers see it.
pub struct Caller {
    /// What all connections share.
    pub shared: Arc<Shared>,
    /// What it gets when it says nothing.
    pub defaults: Defaults,
    /// Its number.
    pub connection: u64,
    /// What it may do.
    pub scope: Scope,
    /// The highest mode that its way in and its token allow.
    mode_max: PermissionMode,
    /// Its subscriptions.
    pub follows: Arc<dyn Follow>,
    /// Its requests that may be making a session.
    pub creations: TaskTracker,
    /// Its prompts that have not ended.
    pub submitted: Submitted,
    bound: OnceLock<Bound>,
    created: Mutex<HashSet<SessionId>>,
}

impl Caller {
    /// A connection that has said nothing yet.
    pub fn new(
        shared: Arc<Shared>,
        defaults: Defaults,
        connection: u64,
        (scope, mode_max): (Scope, PermissionMode),
        follows: Arc<dyn Follow>,
    ) -> Self {
        Self {
            shared,
            defaults,
            connection,
            scope,
            mode_max,
            follows,
            creations: TaskTracker::new(),
            submitted: Submitted::default(),
            bound: OnceLock::new(),
            created: Mutex::default(),
        }
    }

    /// What `initialize` bound.
    ///
    /// # Errors
    /// `not_initialized`.
    pub fn bound(&self) -> Result<&Bound, RpcError> {
        self.bound.get().ok_or_else(|| {
            RpcError::new(ErrorKind::NotInitialized, "send initialize first; it binds this connection")
        })
    }

    /// The highest permission mode of sessions that it may make, prompt, or answer for: the lowest of what its way in,
    /// its token and `auth.mode_max` say.
    pub fn mode_max(&self) -> PermissionMode {
        self.mode_max.min(self.shared.config.borrow().auth.mode_max)
    }

    /// A mode that it asks for.
    ///
    /// # Errors
    /// `permission_denied` when it is above the ceiling.
    pub fn allowed_mode(&self, asked: Option<Mode>) -> Result<Option<PermissionMode>, RpcError> {
        let (asked, mode_max) = (asked.map(PermissionMode::from), self.mode_max());
        match asked {
            Some(mode) if mode > mode_max => {
                let (mode_name, max_name) = (mode.as_str(), mode_max.as_str());
                let message =
                    format!("permissionMode {mode_name} is above what this client may ask for, {max_name}");
                Err(error::above(&message, mode, mode_max))
            }
            asked => Ok(asked),
        }
    }

    /// What a session is made with that a request names and nobody knows.
    ///
    /// # Errors
    /// `not_initialized`.
    pub fn new_session(&self) -> Result<NewSession, RpcError> {
        let bound = self.bound()?;
        Ok(NewSession {
            cwd: bound.cwd.clone(),
            provider: bound.provider.clone(),
            model: bound.model.clone(),
            max_tokens: bound.max_tokens,
            reasoning_effort: bound.reasoning_effort.clone(),
            permission_mode: bound.permission_mode,
            mode_max: self.mode_max(),
            parent: None,
            budget: bound.budget,
        })
    }

    /// Binds what `initialize` says, once.
    ///
    /// # Errors
    /// `already_initialized`.
    pub fn bind(&self, bound: Bound) -> Result<(), RpcError> {
        self.bound.set(bound).map_err(|_| {
            RpcError::new(ErrorKind::AlreadyInitialized, "this connection is initialized already")
        })
    }

    /// The connection made a session.
    pub fn created(&self, session: &SessionId) {
        let max = self.shared.config.borrow().limits.loaded_sessions;
        let mut created = self.lock_created();
        if created.len() >= max {
            // Those that have left memory have nothing to dispose of.
            created.retain(|session| self.shared.runtime.loaded_feed(session).is_some());
        }
        created.insert(session.clone());
    }

    /// The sessions that the connection made.
    pub fn take_created(&self) -> HashSet<SessionId> {
        std::mem::take(&mut self.lock_created())
    }

    /// The connection is gone, and nothing of it runs any more: its turns become what its `initialize` said.
    pub async fn disconnected(&self) {
        if self.bound.get().is_some_and(|bound| bound.on_disconnect == OnDisconnect::Abort) {
            self.submitted.cancel_all(&self.shared.runtime).await;
        }
    }

    /// The set is whole between any two statements that could panic.
    fn lock_created(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
