//! Sessions: the registry that finds them, the actor that owns one, the pure state that decides, the feed that tells.
//!
//! Nothing here knows the wire. A request is submitted in the caller's order and never waits; its outcome is an
//! [`Answer`].

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::config::ByteSize;
use crate::event::{Block, Epoch, Message, MessageId, PermissionMode, Seq, SessionId, TurnEndReason};
use crate::store::BlobId;

mod actor;
mod approve;
mod decide;
mod delegate;
pub mod feed;
mod mailbox;
pub(crate) mod registry;
mod state;

pub use self::registry::Parts;
pub(crate) use self::state::Rule;

pub(crate) use self::actor::{Waiting, session_error};
pub(crate) use self::mailbox::{Command, PromptAnswers};
pub(crate) use self::state::{Budget, QueueFold};

/// What a session is made with when its id is new.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The working directory, absolute; none: the request that would create fails with [`SessionError::NoDirectory`].
    pub cwd: Option<PathBuf>,
    /// The route's provider.
    pub provider: String,
    /// The route's model.
    pub model: String,
    /// Output limit in tokens.
    pub max_tokens: Option<u64>,
    /// How hard to think.
    pub reasoning_effort: Option<String>,
    /// What its agent may touch; none: the configured mode.
    pub permission_mode: Option<PermissionMode>,
    /// The highest mode that it may get; the one above is lowered to it.
    pub mode_max: PermissionMode,
    /// The session that delegates to it.
    pub parent: Option<SessionId>,
    /// What it may use; what is not named is the configured budget.
    pub(crate) budget: Budget,
}

/// What to do with a prompt while a turn runs or is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// Refuse it.
    Reject,
    /// Make it its own turn, first in first out.
    Queue,
    /// Tell it to the running turn before its next model call.
    Steer,
}

/// A prompt.
#[derive(Clone, Debug)]
pub struct PromptRequest {
    /// What it says.
    pub content: Vec<Block>,
    /// The pictures that it names, kept before it is logged.
    pub pictures: Vec<(BlobId, Bytes)>,
    /// What to do while busy.
    pub when_busy: WhenBusy,
    /// The same key again gets the first outcome and starts nothing.
    pub idempotency_key: Option<String>,
    /// The highest mode of a session that who asks may prompt.
    pub mode_max: PermissionMode,
    /// Whether [`PromptTicket::durable`] is waited for: only then is the disk made to.
    pub receipt: bool,
}

/// The three answers to one prompt. Drop those that are not wanted.
#[derive(Debug)]
pub struct PromptTicket {
    /// It is in the log.
    pub accepted: Answer<Accepted>,
    /// It is on stable storage.
    pub durable: Answer<()>,
    /// Its turn ended and the agent is idle or goes on with the next.
    pub settled: Answer<Settled>,
}

/// A prompt that is in the log.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Its message.
    pub message_id: MessageId,
    /// The first event that this request appended: follow from just before it. `None`: it repeated a known key and
    /// appended nothing.
    pub first_seq: Option<Seq>,
    /// What a connection must have been sent before it may be told.
    pub after: Vec<(SessionId, Seq)>,
}

/// How a prompt ended.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Its message.
    pub message_id: MessageId,
    /// How its turn ended.
    pub reason: TurnEndReason,
    /// What the model said last in it, when that was just now.
    pub answer: Option<Arc<Message>>,
    /// What a connection must have been sent before it may be told.
    pub after: Vec<(SessionId, Seq)>,
}

/// How a cancel ended.
#[derive(Clone, Debug)]
pub struct Cancelled {
    /// Whether anything was cancelled.
    pub cancelled: bool,
    /// What a connection must have been sent before it may be told.
    pub after: Vec<(SessionId, Seq)>,
}

/// Where a session's log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its current life.
    pub epoch: Epoch,
    /// Its last event.
    pub last: Option<Seq>,
}

/// Whether an agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A turn runs or is about to.
    Running,
    /// Nothing to do.
    Idle,
}

/// What waits in a session.
#[derive(Clone, Debug, Default)]
pub struct QueueView {
    /// The prompt whose turn runs.
    pub running: Option<MessageId>,
    /// Those that wait, in the order in which the model will hear them, with their text.
    pub queued: Vec<(MessageId, String)>,
}

/// Why a session no longer exists for its subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// A client closed it.
    Closed,
    /// It was deleted, with its log.
    Deleted,
    /// The daemon stops.
    ShuttingDown,
    /// The connection that created it said `shutdown`.
    Disposed,
    /// Its storage failed.
    StorageFailed,
}

impl CloseCause {
    /// As it stands on the wire.
    pub fn as_text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Deleted => "deleted",
            Self::ShuttingDown => "shutting_down",
            Self::Disposed => "disposed",
            Self::StorageFailed => "storage_failed",
        }
    }
}

/// Why a request to a session failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No such session.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// There is one already.
    #[error("session {0} exists already")]
    Exists(SessionId),
    /// A turn runs.
    #[error("session {session} is busy with another prompt")]
    Busy {
        /// The session.
        session: SessionId,
        /// The prompt that runs, or waits at the head of the queue.
        message_id: MessageId,
        /// Since when, in epoch milliseconds.
        since_ms: u64,
    },
    /// It may touch more than who prompts it may ask for.
    #[error(
        "session {session} has the permission mode {}, and this client may go up to {}", .mode.as_str(), .mode_max.as_str()
    )]
    AboveCeiling {
        /// The session.
        session: SessionId,
        /// Its mode.
        mode: PermissionMode,
        /// The highest that the client may use.
        mode_max: PermissionMode,
    },
    /// Another process writes it.
    #[error("another process (pid {pid}) has this session open; close it there, or connect to that daemon")]
    Locked {
        /// Which.
        pid: u32,
    },
    /// Its log is damaged.
    #[error("the log {path} is damaged at seq {seq}: {detail}; it was left untouched")]
    Corrupt {
        /// Where it is.
        path: String,
        /// The first event that can't be read.
        seq: Seq,
        /// What is wrong.
        detail: String,
    },
    /// Too many requests wait for it.
    #[error("session {0} has too many requests waiting; try again later")]
    Overloaded(SessionId),
    /// Too many sessions are in memory and none of them is idle.
    #[error("{max} sessions are loaded and busy")]
    TooManySessions {
        /// `limits.loaded_sessions`.
        max: usize,
    },
    /// The daemon stops.
    #[error("the daemon is stopping")]
    ShuttingDown {
        /// The prompt that stays queued for the next life.
        message_id: Option<MessageId>,
    },
    /// The disk failed.
    #[error("storage failed: {0}")]
    StorageFailed(String),
    /// The file system of the data directory is nearly full.
    #[error(
        "no turn begins: {free} free in the data directory's file system, and store.reserve_bytes keeps {reserve}; \
         make room, and it goes on by itself"
    )]
    NoRoom {
        /// What is free.
        free: ByteSize,
        /// What is kept.
        reserve: ByteSize,
    },
    /// The route does not exist or lacks its key.
    #[error("{0}")]
    ProviderUnavailable(String),
    /// A new session has no directory to begin in.
    #[error("a new session needs a working directory: pass cwd to initialize or session/create")]
    NoDirectory,
    /// A path is not a directory.
    #[error("{path} is not a directory")]
    BadDirectory {
        /// Which.
        path: String,
    },
    /// A prompt's content is larger than an event may be.
    #[error(
        "the prompt's content is over limits.event_bytes ({max} bytes of JSON); put the rest into a file"
    )]
    PromptTooLarge {
        /// `limits.event_bytes`.
        max: u64,
    },
    /// A prompt has pictures, and the session's model takes none.
    #[error(
        "the model {provider}/{model} takes no images; if it does, set images = true in \
         [providers.{provider}.models.{model:?}]"
    )]
    TakesNoImages {
        /// The route's provider.
        provider: String,
        /// The route's model.
        model: String,
    },
    /// No call waits for this approval, or no rule came of it.
    #[error(
        "session {session} has no approval {approval} that waits, and no rule of it; somebody was first, or its turn has ended"
    )]
    NoSuchApproval {
        /// The session.
        session: SessionId,
        /// The id that was given.
        approval: String,
    },
    /// A key came again with other content.
    #[error("this idempotencyKey was used with other content")]
    KeyReused,
    /// The session was closed under the request.
    #[error("session {0} was closed")]
    Closed(SessionId),
    /// Our bug.
    #[error("internal error (incident {incident})")]
    Internal {
        /// Also in the daemon's log.
        incident: String,
    },
}

/// The outcome of a submitted request, later.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<Result<T, SessionError>>);

/// The other end of an [`Answer`].
pub type Answerer<T> = oneshot::Sender<Result<T, SessionError>>;

impl<T> Answer<T> {
    /// A pair of ends.
    pub fn channel() -> (Answerer<T>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(receiver))
    }

    /// An answer that is there already.
    pub fn ready(result: Result<T, SessionError>) -> Self {
        let (sender, answer) = Self::channel();
        let _ = sender.send(result);
        answer
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, SessionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|received| {
            received.unwrap_or_else(|_| Err(SessionError::Internal { incident: "dropped".to_owned() }))
        })
    }
}
