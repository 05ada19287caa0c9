//! A session's mailbox: requests in the order in which they were submitted.
//!
//! Ordinary requests are bounded by `limits.mailbox`. Those that let things go (cancel, close) always get in: each is
//! bounded by its connection, which stops reading when too many of them wait. Pushing and the registry's removal of a
//! session happen under the registry's lock, so nothing is pushed into a mailbox that nobody empties.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::state::Rule;
use super::{
    Accepted, Answerer, Cancelled, CloseCause, NewSession, Position, PromptRequest, QueueView, SessionError,
    Settled,
};
use crate::event::{AbortCause, ApprovalOutcome, EventBody, MessageId, Seq, SessionId, SessionUpdate};

/// The answering ends of a prompt's ticket.
#[derive(Debug)]
pub(crate) struct PromptAnswers {
    pub(crate) accepted: Answerer<Accepted>,
    pub(crate) durable: Answerer<()>,
    pub(crate) settled: Answerer<Settled>,
}

impl PromptAnswers {
    /// Answers all three with an error.
    pub(super) fn refuse(self, error: &SessionError) {
        let _ = self.durable.send(Err(error.clone()));
        let _ = self.settled.send(Err(error.clone()));
        let _ = self.accepted.send(Err(error.clone()));
    }
}

/// A request to a session.
#[derive(Debug)]
pub(crate) enum Command {
    Prompt {
        new: Box<NewSession>,
        request: PromptRequest,
        answers: PromptAnswers,
    },
    Create {
        new: Box<NewSession>,
        answer: Answerer<Position>,
    },
    Resume {
        answer: Answerer<Position>,
    },
    Cancel {
        message_id: Option<MessageId>,
        /// Whose wish it is.
        cause: AbortCause,
        answer: Answerer<Cancelled>,
    },
    Close {
        cause: CloseCause,
        answer: Answerer<()>,
    },
    /// Close, and remove all that is stored; `idle_only`: not while it works, which is answered with no.
    Delete {
        idle_only: bool,
        answer: Answerer<bool>,
    },
    Wait {
        answer: Answerer<()>,
    },
    Queue {
        answer: Answerer<QueueView>,
    },
    GetDirectory {
        new: Box<NewSession>,
        answer: Answerer<PathBuf>,
    },
    SetDirectory {
        new: Box<NewSession>,
        path: PathBuf,
        answer: Answerer<PathBuf>,
    },
    Update {
        update: Box<SessionUpdate>,
        answer: Answerer<Option<Seq>>,
    },
    /// Something happened beside the turns: these facts are logged, and the model is told the text.
    Notice {
        events: Vec<EventBody>,
        text: Option<String>,
    },
    /// Allow or reject what a call asks for; `by` none: its time is over.
    Answer {
        id: String,
        outcome: ApprovalOutcome,
        by: Option<String>,
        answer: Answerer<()>,
    },
    /// The rules of the session, less one.
    Rules {
        revoke: Option<String>,
        answer: Answerer<Vec<Rule>>,
    },
    /// Leave memory if idle.
    Unload,
    /// End what the session's commands left, and leave memory; not while a turn runs, which is somebody else's then.
    Retire {
        answer: Answerer<()>,
    },
}

impl Command {
    /// Answers with an error, whatever was asked.
    pub(crate) fn refuse(self, error: SessionError) {
        match self {
            Self::Prompt { answers, .. } => answers.refuse(&error),
            Self::Create { answer, .. } | Self::Resume { answer } => drop(answer.send(Err(error))),
            Self::Cancel { answer, .. } => drop(answer.send(Err(error))),
            Self::Delete { answer, .. } => drop(answer.send(Err(error))),
            Self::Close { answer, .. }
            | Self::Wait { answer }
            | Self::Retire { answer }
            | Self::Answer { answer, .. } => {
                drop(answer.send(Err(error)));
            }
            Self::Rules { answer, .. } => drop(answer.send(Err(error))),
            Self::Queue { answer } => drop(answer.send(Err(error))),
            Self::GetDirectory { answer, .. } | Self::SetDirectory { answer, .. } => {
                drop(answer.send(Err(error)));
            }
            Self::Update { answer, .. } => drop(answer.send(Err(error))),
            Self::Notice { .. } | Self::Unload => {}
        }
    }

    fn lets_go(&self) -> bool {
        // A notice ends what a tool had begun: there are no more of them than running jobs.
        matches!(
            self,
            Self::Cancel { .. }
                | Self::Close { .. }
                | Self::Answer { .. }
                | Self::Notice { .. }
                | Self::Unload
                | Self::Retire { .. }
        )
    }
}

/// How a session's tools tell it of what ends after their call.
#[derive(Debug)]
pub(super) struct Notices {
    pub(super) session: SessionId,
    pub(super) mailbox: Arc<Mailbox>,
}

impl crate::tool::Notify for Notices {
    fn tell(&self, events: Vec<EventBody>, text: Option<String>) {
        self.mailbox.push(&self.session, Command::Notice { events, text });
    }
}

/// The mailbox.
#[derive(Debug)]
pub(super) struct Mailbox {
    queue: Mutex<Queue>,
    arrived: Notify,
    ordinary_max: usize,
    /// The session must stay in memory although it is idle.
    held: AtomicBool,
    /// The session was asked to leave memory and has not answered yet.
    leaving: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    commands: VecDeque<Command>,
    ordinary: usize,
}

impl Mailbox {
    /// An empty mailbox for at most `ordinary_max` ordinary requests.
    pub(super) fn new(ordinary_max: usize) -> Self {
        Self {
            queue: Mutex::default(),
            arrived: Notify::new(),
            ordinary_max,
            held: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
        }
    }

    /// Adds a request at the end; refuses it when too many wait.
    pub(super) fn push(&self, session: &SessionId, command: Command) {
        let mut queue = self.lock();
        if !command.lets_go() {
            if queue.ordinary >= self.ordinary_max {
                drop(queue);
                return command.refuse(SessionError::Overloaded(session.clone()));
            }
            queue.ordinary += 1;
        }
        queue.commands.push_back(command);
        drop(queue);
        self.arrived.notify_one();
    }

    /// Takes the oldest request.
    pub(super) fn try_pop(&self) -> Option<Command> {
        let mut queue = self.lock();
        let command = queue.commands.pop_front()?;
        if !command.lets_go() {
            queue.ordinary -= 1;
        }
        if queue.commands.is_empty() && queue.commands.capacity() > 64 {
            queue.commands = VecDeque::new();
        }
        Some(command)
    }

    /// Waits for a request. Cancel safe. Only the session's actor may call it.
    pub(super) async fn pop(&self) -> Command {
        loop {
            if let Some(command) = self.try_pop() {
                return command;
            }
            self.arrived.notified().await;
        }
    }

    /// Whether the session must stay in memory although it is idle.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Says whether it must. Only the session's actor may call it.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// Asks the session to leave memory. Called under the registry's lock.
    pub(super) fn ask_to_leave(&self, session: &SessionId) {
        self.leaving.store(true, Ordering::Release);
        self.push(session, Command::Unload);
    }

    /// Whether the session was asked to leave memory and has not answered.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// The session does not leave: it is used. Only its actor may call it.
    pub(super) fn stays(&self) {
        self.leaving.store(false, Ordering::Release);
    }

    /// Ordinary requests that wait.
    pub(super) fn ordinary(&self) -> usize {
        self.lock().ordinary
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().commands.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
