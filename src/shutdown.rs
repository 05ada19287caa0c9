//! `Scope`: the one shape of ending, used for a turn, a connection and the daemon.
//!
//! A scope owns the tasks spawned in it. *Drain* asks them to finish and take nothing new; *abort* asks them to stop
//! now. Ending a scope ends its children first by token, then by waiting for all tasks.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A set of tasks with one end. Cheap to clone; clones are the same scope.
#[derive(Clone, Debug)]
pub struct Scope {
    tasks: TaskTracker,
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Scope {
    /// A scope of its own.
    #[must_use]
    pub fn new() -> Self {
        Self { tasks: TaskTracker::new(), drain: CancellationToken::new(), abort: CancellationToken::new() }
    }

    /// A scope that drains and aborts with this one, but is waited for by itself.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { tasks: TaskTracker::new(), drain: self.drain.child_token(), abort: self.abort.child_token() }
    }

    /// Runs a task in this scope.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Runs blocking work in this scope.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tasks.spawn_blocking(work)
    }

    /// The token that says: finish, take nothing new.
    pub fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// The token that says: stop now.
    pub fn aborting(&self) -> &CancellationToken {
        &self.abort
    }

    /// Asks all tasks to finish.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Asks all tasks to stop now.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// How many tasks run.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task runs.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits until no task runs, at most `deadline`. Tasks may still be spawned meanwhile.
    /// Says whether all ended.
    pub async fn wait(&self, deadline: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(deadline, self.tasks.wait()).await.is_ok()
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}
