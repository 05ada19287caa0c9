//! A family: all processes that the calls of one session started, from the session's coming into memory to its end.
//!
//! A call ends with its command; what that left in the background lives on in the family, and somebody goes on reading
//! what it writes, since it would be killed by a pipe that nobody reads.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::mark::{self, Mark, Of};
use super::output::Pipes;
use super::walk::{self, Struck};
use super::{group, temporary, unchecked};
use crate::shutdown::Scope;

/// The longest wait for processes that were killed; one that hangs in the kernel is left to it.
pub(super) const KILL_WAIT: Duration = Duration::from_secs(1);
/// Before the next walk, where the last one gave nothing to wait for.
const WALK_PAUSE: Duration = Duration::from_millis(5);
/// Ended commands of a session whose pipes are still read for those that hold them. Over it the oldest are closed.
const READERS_MAX: usize = 64;
/// Walks where nobody can wait between them.
const LAST_WALKS: usize = 3;

/// What the calls of a session started. Dropped, it is killed.
#[derive(Debug)]
pub struct Family {
    life: u64,
    calls: AtomicU64,
    /// The first call of the turn that runs.
    turn: AtomicU64,
    /// Whether something may be left that no walk has looked for.
    unsure: AtomicBool,
    readers: Mutex<VecDeque<CancellationToken>>,
    scope: Scope,
}

impl Default for Family {
    fn default() -> Self {
        Self {
            life: mark::next_life(),
            calls: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            unsure: AtomicBool::new(false),
            readers: Mutex::default(),
            scope: Scope::new(),
        }
    }
}

impl Family {
    /// A mark for a new call.
    pub(super) fn mark(&self, is_job: bool) -> Mark {
        self.unsure.store(true, Ordering::Release);
        Mark::new(self.life, self.calls.fetch_add(1, Ordering::AcqRel), is_job)
    }

    /// A turn starts: what its calls leave is told apart from what was there.
    pub fn begin_turn(&self) {
        self.turn.store(self.calls.load(Ordering::Acquire), Ordering::Release);
    }

    /// Ends what the turn's calls have left, but for background jobs: the turn was cancelled.
    pub async fn end_turn(&self, grace: Duration) {
        let first = self.turn.load(Ordering::Acquire);
        if first < self.calls.load(Ordering::Acquire) {
            end(Of::Since(self.life, first), grace).await;
        }
    }

    /// Whether any process of it lives.
    pub async fn lives(&self) -> bool {
        if !self.unsure.swap(false, Ordering::AcqRel) {
            return false;
        }
        let lives = match in_walk(Of::Life(self.life), walk::find).await {
            Ok(found) => !found.is_empty(),
            Err(error) => {
                tracing::warn!(%error, "cannot look for processes that commands left");
                true
            }
        };
        if lives {
            self.unsure.store(true, Ordering::Release);
        }
        lives
    }

    /// Ends all of it: asks, waits at most `grace`, kills.
    pub async fn end(&self, grace: Duration) {
        if self.unsure.load(Ordering::Acquire) {
            end(Of::Life(self.life), grace).await;
            self.unsure.store(false, Ordering::Release);
        }
        self.scope.abort();
    }

    /// Goes on reading what others that hold an ended command's pipes write.
    pub(super) fn keep_reading(&self, pipes: Pipes) {
        let stop = self.scope.aborting().child_token();
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| !reader.is_cancelled());
        if readers.len() >= READERS_MAX
            && let Some(oldest) = readers.pop_front()
        {
            oldest.cancel();
        }
        readers.push_back(stop.clone());
        drop(readers);
        self.scope.spawn(async move {
            stop.run_until_cancelled(pipes.discard()).await;
            stop.cancel();
        });
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.scope.abort();
        if self.unsure.load(Ordering::Acquire) {
            kill_now(Of::Life(self.life));
        }
    }
}

/// Ends what any call of this process started and nobody has ended, at its own end.
pub async fn end_all() {
    if group::any_started() {
        end(Of::Process(mark::this_process()), Duration::ZERO).await;
        let removed = tokio::task::spawn_blocking(|| temporary::remove_all_of(mark::this_process())).await;
        if let Err(error) = removed {
            tracing::error!(%error, "temporary files of commands are left");
        }
    }
}

/// Ends what a process that crashed has left running. Blocks on `/proc`.
pub(super) fn end_left_by(process: u64) {
    kill_left_by(process);
    temporary::remove_all_of(process);
}

fn kill_left_by(process: u64) {
    for _ in 0..LAST_WALKS {
        match walk::strike_anywhere(Of::Process(process), &[Signal::KILL]) {
            Ok(Struck { count: 0, .. }) => return,
            Ok(Struck { count, .. }) => {
                tracing::info!(count, "ended commands that a crashed daemon had left");
            }
            Err(error) => tracing::error!(%error, "cannot look for commands that a crashed daemon has left"),
        }
    }
}

/// Asks a set of processes to end, waits at most `grace`, kills what is left.
async fn end(of: Of, grace: Duration) {
    if !grace.is_zero() {
        let struck = ask(of, None).await;
        let _ = timeout_at(Instant::now() + grace, ended(struck.handles)).await;
    }
    kill(of, Instant::now() + KILL_WAIT).await;
}

/// Asks processes outside of a group to end.
pub(super) async fn ask(of: Of, but_group: Option<Pid>) -> Struck {
    let asked = in_walk(of, move |of| walk::strike(of, &[Signal::TERM, Signal::CONT], but_group)).await;
    asked.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look for processes that commands left");
        Struck::default()
    })
}

/// Kills a set of processes until a walk finds none, at most until the deadline. Says whether none is left.
pub(super) async fn kill(of: Of, deadline: Instant) -> bool {
    loop {
        let struck = match in_walk(of, |of| walk::strike(of, &[Signal::KILL], None)).await {
            Ok(struck) => struck,
            Err(error) => {
                tracing::error!(%error, "cannot look for processes that commands left");
                return false;
            }
        };
        if struck.count == 0 {
            return true;
        }
        if struck.handles.is_empty() {
            tokio::time::sleep(WALK_PAUSE).await;
        }
        if timeout_at(deadline, ended(struck.handles)).await.is_err() || Instant::now() >= deadline {
            tracing::warn!(
                count = struck.count,
                "processes that commands left were killed and are not yet gone"
            );
            return false;
        }
    }
}

/// The same from where nobody can wait.
pub(super) fn kill_now(of: Of) {
    for _ in 0..LAST_WALKS {
        match walk::strike(of, &[Signal::KILL], None) {
            Ok(Struck { count: 0, .. }) => return,
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "cannot look for processes that commands left"),
        }
    }
}

/// Waits until processes have ended. Cancel safe.
pub(super) async fn ended(handles: Vec<OwnedFd>) {
    for handle in handles {
        match unchecked::watch(handle) {
            // An error is the runtime's end.
            Ok(watch) => drop(watch.readable().await),
            Err(error) => tracing::warn!(%error, "cannot wait for a process"),
        }
    }
}

async fn in_walk<T: Send + 'static>(
    of: Of,
    walk: impl FnOnce(Of) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(move || walk(of)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
