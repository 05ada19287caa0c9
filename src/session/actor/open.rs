//! Opening: find the log, or make the session in memory; the first prompt makes the log. And the turn's ingredients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::log::Journal;
use super::{Actor, Open};
use crate::clock::now_ms;
use crate::event::{Epoch, Failure, FailureCode, PermissionMode, SessionEvent, SessionId};
use crate::provider::registry::RouteError;
use crate::session::approve::Asker;
use crate::session::delegate::Spawner;
use crate::session::feed::Feed;
use crate::session::mailbox::{Mailbox, Notices};
use crate::session::registry::Shared;
use crate::session::state::State;
use crate::session::{Budget, NewSession, SessionError};
use crate::store::{Blobs, Extent, Header, Opened, StoreError};
use crate::tool::{Delegate, Offer, ToolState};
use crate::turn::{Facts, Fresh, Memory, Route, Turn};

/// Batches of replayed events that may wait.
const REPLAY_BATCHES_MAX: usize = 4;

/// What to do when there is no log.
pub(super) enum Missing<'a> {
    /// Make the session in memory.
    Make(&'a NewSession),
    /// Say so.
    Refuse,
}

impl Actor {
    /// Brings the session into memory, if it is not there yet. Says whether it was made anew.
    pub(super) async fn ensure_open(&mut self, missing: Missing<'_>) -> Result<bool, SessionError> {
        if self.open.is_some() {
            return Ok(false);
        }
        if let Some(reason) = self.shared.store.failure() {
            return Err(SessionError::StorageFailed(reason));
        }
        let (sender, mut batches) = mpsc::channel::<Vec<SessionEvent>>(REPLAY_BATCHES_MAX);
        let store = self.shared.store.clone();
        let mut state = self.blank_state();
        let tools = self.tool_state();
        let replay = async {
            while let Some(batch) = batches.recv().await {
                for event in &batch {
                    state.apply(event, true);
                    tools.replay(&event.body);
                }
            }
        };
        let (opened, ()) = tokio::join!(store.open(&self.id, sender), replay);
        match opened {
            Ok(opened) => self.opened(state, tools, opened).map(|()| false),
            Err(StoreError::NotFound) => match missing {
                Missing::Make(new) => self.make(new).map(|()| true),
                Missing::Refuse => Err(SessionError::NotFound(self.id.clone())),
            },
            Err(error) => Err(session_error(&self.id, error)),
        }
    }

    /// Makes the log of a session that has lived in memory only.
    pub(super) async fn ensure_log(&mut self) -> Result<(), SessionError> {
        let Some(Open { journal: Journal::Unwritten { header, epoch }, .. }) = &self.open else {
            return Ok(());
        };
        if let Some(reason) = self.shared.store.failure() {
            return Err(SessionError::StorageFailed(reason));
        }
        let (header, epoch) = (header.clone(), *epoch);
        let created = self.shared.store.create(header).await;
        let log = created.map_err(|error| session_error(&self.id, error))?;
        if let Some(open) = &mut self.open {
            open.journal = Journal::Written(log);
        }
        self.begin_life(epoch, 0)
    }

    /// A state to replay into; the route is the default one until the log says otherwise.
    fn blank_state(&self) -> State {
        let (provider, model) = self.shared.providers().default_route();
        let new = NewSession {
            cwd: None,
            provider,
            model,
            max_tokens: None,
            reasoning_effort: None,
            permission_mode: None,
            mode_max: PermissionMode::FullAccess,
            parent: None,
            budget: Budget::default(),
        };
        State::new(&new, PathBuf::new(), self.shared.config.borrow().sessions.permission_mode)
    }

    fn opened(
        &mut self,
        mut state: State,
        tools: Arc<ToolState>,
        opened: Opened,
    ) -> Result<(), SessionError> {
        let first = PathBuf::from(&opened.header.cwd);
        if state.settings.cwd.as_os_str().is_empty() {
            state.settings.cwd.clone_from(&first);
        }
        state.settings.first_cwd = first;
        // A header is written once in each process: it says with what the requests of this life are made.
        state.header = None;
        self.feed.opened(opened.extent);
        let parent = opened.header.parent_session;
        let cut_bytes = opened.cut_bytes;
        self.open = Some(Open { state, journal: Journal::Written(opened.log), tools, parent });
        self.shared.announce();
        self.begin_life(Epoch::random(), cut_bytes)
    }

    /// Opens a new life of the log: from here on the epoch is ours.
    fn begin_life(&mut self, epoch: Epoch, cut_bytes: u64) -> Result<(), SessionError> {
        let Some(open) = &self.open else { return Err(SessionError::Closed(self.id.clone())) };
        let policy = self.shared.config.borrow().sessions.approval_policy;
        let events = open.state.decide_opening(epoch, cut_bytes, policy);
        let root_settled = open.state.last.is_some();
        self.feed.begin_epoch(epoch);
        let appended = self.append(events);
        if appended.is_err() && root_settled {
            self.open = None;
        }
        appended.map(drop)
    }

    fn tool_state(&self) -> Arc<ToolState> {
        let notices = Notices { session: self.id.clone(), mailbox: self.mailbox.clone() };
        Arc::new(ToolState::new(Arc::new(notices)))
    }

    fn make(&mut self, new: &NewSession) -> Result<(), SessionError> {
        let cwd = new.cwd.clone().ok_or(SessionError::NoDirectory)?;
        let header = Header {
            id: self.id.clone(),
            created_at: now_ms(),
            cwd: cwd.to_string_lossy().into_owned(),
            parent_session: new.parent.clone(),
        };
        let state = State::new(new, cwd, self.shared.config.borrow().sessions.permission_mode);
        let epoch = Epoch::random();
        self.feed.opened(Extent::default());
        self.feed.begin_epoch(epoch);
        if new.parent.is_some() {
            self.feed.delegated();
        }
        let journal = Journal::Unwritten { header, epoch };
        self.open = Some(Open { state, journal, tools: self.tool_state(), parent: new.parent.clone() });
        self.shared.announce();
        Ok(())
    }
}

impl Open {
    /// The turn that the state has just opened, with all that it needs.
    pub(super) fn turn(
        &self,
        shared: &Arc<Shared>,
        id: &SessionId,
        (feed, mailbox): (&Feed, &Arc<Mailbox>),
        facts: Facts,
        cancel: CancellationToken,
    ) -> Option<Turn> {
        let state = &self.state;
        let open = state.turn.as_ref()?;
        let prompt = state.claimed.clone()?;
        let resumed = open.turn > 1;
        Some(Turn {
            session: id.clone(),
            number: open.turn,
            prompt,
            conversation: state.conversation.iter().map(|told| told.message.clone()).collect(),
            cwd: working_directory(&state.settings.cwd, &state.settings.first_cwd),
            mode: state.settings.mode,
            route: self.route(shared),
            tools: shared.tools(),
            offer: Offer::none(),
            tool_state: self.tools.clone(),
            approver: Arc::new(Asker {
                session: id.clone(),
                config: shared.config.clone(),
                facts: facts.clone(),
                mailbox: mailbox.clone(),
            }),
            delegate: self.delegate(shared, id, &facts),
            config: shared.config(),
            header: state.header.clone(),
            header_reason: if resumed { "resume" } else { "initial" },
            context: state.context.clone(),
            measured: state.measured,
            memory: Memory::default(),
            titled: state.title.is_some(),
            blobs: Blobs::new(shared.store.clone(), id.clone()),
            facts,
            text: feed.text().clone(),
            cancel,
        })
    }

    /// Who runs the turn's subagents; nobody when this is one.
    fn delegate(&self, shared: &Arc<Shared>, id: &SessionId, facts: &Facts) -> Option<Arc<dyn Delegate>> {
        if self.parent.is_some() {
            return None;
        }
        let settings = &self.state.settings;
        let new = NewSession {
            cwd: Some(working_directory(&settings.cwd, &settings.first_cwd)),
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            max_tokens: settings.max_tokens,
            reasoning_effort: settings.reasoning_effort.clone(),
            permission_mode: Some(settings.mode),
            mode_max: settings.mode,
            parent: Some(id.clone()),
            budget: self.state.remaining(&shared.config.borrow().sessions),
        };
        Some(Arc::new(Spawner::of(shared, id, new, facts.clone())))
    }

    /// What a client may have changed while a turn runs.
    pub(super) fn fresh(&self, shared: &Shared) -> Fresh {
        let settings = &self.state.settings;
        Fresh {
            route: self.route(shared),
            cwd: working_directory(&settings.cwd, &settings.first_cwd),
            mode: settings.mode,
            exhausted: no_room(shared).or_else(|| self.state.exhausted(&shared.config.borrow().sessions)),
        }
    }

    fn route(&self, shared: &Shared) -> Route {
        let settings = &self.state.settings;
        let providers = shared.providers();
        let adapter = providers.get(&settings.provider).map_err(|error| {
            let code = match &error {
                RouteError::Unknown { .. } | RouteError::NoModel { .. } => FailureCode::InvalidRequest,
                RouteError::NoKey { .. } => FailureCode::MissingCredential,
            };
            Failure::new(code, error.to_string())
        });
        Route {
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            abilities: providers.abilities(&settings.provider, &settings.model),
            adapter,
            retry: providers.retry_policy(&settings.provider),
            max_tokens: settings.max_tokens,
            reasoning_effort: settings.reasoning_effort.clone(),
        }
    }
}

/// The directory that work happens in: the current one, or the first when it has vanished.
pub(super) fn working_directory(current: &Path, first: &Path) -> PathBuf {
    if current.is_dir() { current.to_path_buf() } else { first.to_path_buf() }
}

/// What a client is told of a store's error.
pub(crate) fn session_error(id: &SessionId, error: StoreError) -> SessionError {
    match error {
        StoreError::NotFound => SessionError::NotFound(id.clone()),
        StoreError::Exists => SessionError::Exists(id.clone()),
        StoreError::Locked { pid } => SessionError::Locked { pid },
        StoreError::Corrupt { path, seq, detail } => SessionError::Corrupt { path, seq, detail },
        StoreError::Version(version) => SessionError::Corrupt {
            path: id.to_string(),
            seq: crate::event::Seq(0),
            detail: format!("format version {version} is newer than this dshd"),
        },
        StoreError::Failed(reason) => SessionError::StorageFailed(reason),
        error @ StoreError::OutOfOrder { .. } => {
            let incident = uuid::Uuid::new_v4().to_string();
            tracing::error!(session = %id, %incident, %error, "the store and the session disagree");
            SessionError::Internal { incident }
        }
    }
}

/// The turn ends while its end still fits on the disk.
fn no_room(shared: &Shared) -> Option<Failure> {
    let error = shared.check_room().err()?;
    Some(Failure::new(FailureCode::StorageFull, error.to_string()))
}
