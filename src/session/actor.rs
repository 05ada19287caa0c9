//! The actor: the one task that owns a session. It takes requests in order, appends before it tells, and starts turns.
//!
//! It decides nothing itself: `decide` says which events follow, `state` is what they add up to. It waits for a disk
//! only when it opens a log and when a prompt brings pictures; barriers and turns run beside it.

mod approve;
mod log;
mod open;
mod request;
mod settle;
mod work;

pub(crate) use self::approve::Waiting;
pub(super) use self::approve::decided_event;
pub(crate) use self::open::session_error;
pub(super) use self::work::killed;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::log::Journal;
use self::settle::Waiters;
use super::feed::SharedFeed;
use super::mailbox::{Command, Mailbox};
use super::registry::Shared;
use super::state::State;
use super::{CloseCause, SessionError, Status};
use crate::event::{AbortCause, SessionId};
use crate::store::StoreError;
use crate::tool::ToolState;
use crate::turn::{Decided, Fact, Facts, Logged, Lost, Outcome};

/// What a cancelled turn gets beyond `shutdown.cancel_grace` before its task is stopped: as long again, and no longer
/// than this.
const FORCE_AFTER_GRACE_MAX: Duration = Duration::from_secs(3);

/// A session that is open: what it is, its log, and what its tools keep.
struct Open {
    state: State,
    journal: Journal,
    tools: Arc<ToolState>,
    /// The session that delegated to this one.
    parent: Option<SessionId>,
}

/// The turn that runs.
struct Running {
    facts: mpsc::Receiver<Fact>,
    task: JoinHandle<Outcome>,
    cancel: CancellationToken,
    cause: AbortCause,
    began: Instant,
    /// When a cancelled turn that does not end is stopped by force.
    deadline: Option<Instant>,
}

/// What a barrier was for.
enum Reached {
    /// A prompt is safe.
    Durable(super::Answerer<()>),
    /// A turn's facts are safe.
    Fact { ack: oneshot::Sender<Result<Logged, Lost>>, logged: Logged },
    /// A turn's end is safe: its prompt may be told.
    End(settle::Ended),
    /// The children that a turn had left are idle: it has ended.
    Alone { outcome: Result<Outcome, tokio::task::JoinError>, cause: AbortCause },
}

type Barrier = BoxFuture<'static, (Reached, Result<(), StoreError>)>;

/// The owner of one session.
pub(super) struct Actor {
    shared: Arc<Shared>,
    id: SessionId,
    mailbox: Arc<Mailbox>,
    feed: SharedFeed,
    open: Option<Open>,
    running: Option<Running>,
    barriers: FuturesUnordered<Barrier>,
    waiters: Waiters,
    /// Calls of the running turn that wait for an approval.
    asked: HashMap<String, oneshot::Sender<Decided>>,
    /// Set when the session leaves: why, and what its feed says then.
    leaving: Option<Leaving>,
    /// It was asked to leave memory, and does when it is at rest.
    unload_due: bool,
    /// Whether this actor still counts as opening.
    counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Out of memory only; subscribers stay.
    Unload,
    /// The same, and what still runs of it is ended.
    Retire,
    /// Its subscribers are told.
    Close(CloseCause),
    /// The same, and nothing of it stays.
    Delete,
}

/// What woke the actor.
enum Woken {
    Fact(Fact),
    TurnEnded(Result<Outcome, tokio::task::JoinError>),
    Barrier(Reached, Result<(), StoreError>),
    Command(Command),
    Overdue,
    IdleLong,
}

impl Actor {
    /// An actor for a session whose first request is in the mailbox.
    pub(super) fn new(shared: Arc<Shared>, id: SessionId, mailbox: Arc<Mailbox>, feed: SharedFeed) -> Self {
        Self {
            shared,
            id,
            mailbox,
            feed,
            open: None,
            running: None,
            barriers: FuturesUnordered::new(),
            waiters: Waiters::default(),
            asked: HashMap::new(),
            leaving: None,
            unload_due: false,
            counted: true,
        }
    }

    /// Serves the session until it leaves memory.
    pub(super) async fn run(mut self) {
        loop {
            let woken = self.wait().await;
            match woken {
                Woken::Fact(fact) => self.take_fact(fact),
                Woken::TurnEnded(outcome) => self.turn_stopped(outcome),
                Woken::Barrier(reached, result) => self.barrier_reached(reached, result),
                Woken::Command(command) => self.take_command(command).await,
                Woken::Overdue => self.stop_by_force(),
                Woken::IdleLong => self.unload_if_at_rest().await,
            }
            if self.counted && (self.open.is_some() || self.mailbox.is_empty()) {
                self.counted = false;
                self.shared.opening_done();
            }
            let at_rest = self.running.is_none() && self.barriers.is_empty();
            if self.unload_due && (at_rest || self.running.is_some()) {
                self.unload_due = false;
                self.unload_if_at_rest().await;
                if self.leaving.is_none() {
                    self.mailbox.stays();
                }
            }
            let unopened = self.open.is_none() && self.mailbox.is_empty();
            if at_rest && (self.leaving.is_some() || unopened) {
                self.end_work().await;
                self.erase().await;
                if self.leave() {
                    break;
                }
            }
        }
        if self.counted {
            self.shared.opening_done();
        }
    }

    async fn wait(&mut self) -> Woken {
        let idle_unload = self.shared.config.borrow().sessions.idle_unload;
        let idle = self.running.is_none() && self.barriers.is_empty();
        tokio::select! {
            biased;
            woken = turn_signal(&mut self.running) => woken,
            Some((reached, result)) = self.barriers.next(), if !self.barriers.is_empty() => {
                Woken::Barrier(reached, result)
            }
            command = self.mailbox.pop(), if self.leaving.is_none() => Woken::Command(command),
            () = tokio::time::sleep(idle_unload), if idle => Woken::IdleLong,
        }
    }

    /// Lets go of the log and leaves the registry; comes back as unopened when requests have arrived meanwhile.
    fn leave(&mut self) -> bool {
        let cause = match self.leaving {
            Some(Leaving::Close(cause)) => Some(cause),
            Some(Leaving::Delete) => Some(CloseCause::Deleted),
            Some(Leaving::Unload | Leaving::Retire) | None => None,
        };
        let keep_feed = cause.is_none();
        if let Some(cause) = cause {
            let closed = SessionError::Closed(self.id.clone());
            self.waiters.refuse_all((cause != CloseCause::ShuttingDown).then_some(&closed));
            self.feed.end(cause);
        } else if !self.feed.is_known() {
            // The log could not be opened: nobody may wait for this feed.
            self.feed.end(CloseCause::Closed);
        } else {
            self.feed.rest();
        }
        self.open = None;
        self.leaving = None;
        self.mailbox.stays();
        let removed = self.shared.remove(&self.id, &self.mailbox, keep_feed);
        self.waiters.tell_closed();
        match removed {
            Ok(()) => true,
            Err(feed) => {
                self.feed = feed;
                false
            }
        }
    }

    fn status(&self) -> Status {
        match &self.open {
            Some(open) if open.state.turn.is_some() => Status::Running,
            Some(_) | None => Status::Idle,
        }
    }

    fn cancel_turn(&mut self, cause: AbortCause) {
        if let Some(running) = &mut self.running
            && !running.cancel.is_cancelled()
        {
            running.cause = cause;
            running.cancel.cancel();
            let grace = self.shared.config.borrow().shutdown.cancel_grace;
            let force = grace + grace.min(FORCE_AFTER_GRACE_MAX);
            // Children are stopped by force before it.
            let delegates = self.open.as_ref().is_some_and(|open| !open.state.children.is_empty());
            running.deadline = Some(Instant::now() + if delegates { force * 2 } else { force });
        }
    }

    /// A cancelled turn did not end in time: a tool ignores its token.
    fn stop_by_force(&mut self) {
        if let Some(running) = &mut self.running {
            tracing::warn!(session = %self.id, "a cancelled turn did not end by itself and is stopped");
            running.deadline = None;
            running.task.abort();
        }
    }

    /// Starts the turn that the state has just opened.
    fn start_turn(&mut self) {
        let Some(open) = &self.open else { return };
        let (facts, receiver) = Facts::channel();
        let cancel = CancellationToken::new();
        let Some(turn) =
            open.turn(&self.shared, &self.id, (&self.feed, &self.mailbox), facts, cancel.clone())
        else {
            return;
        };
        let task = self.shared.scope.spawn(turn.run());
        let (cause, began) = (AbortCause::User, Instant::now());
        self.running = Some(Running { facts: receiver, task, cancel, cause, began, deadline: None });
    }
}

/// What the running turn tells next: its facts in order, then its end. Cancel safe.
async fn turn_signal(running: &mut Option<Running>) -> Woken {
    let Some(running) = running else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(fact) = running.facts.recv() => Woken::Fact(fact),
        outcome = &mut running.task => Woken::TurnEnded(outcome),
        () = overdue(running.deadline) => Woken::Overdue,
    }
}

async fn overdue(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
