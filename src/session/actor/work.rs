//! What a session's tools keep running between turns: background jobs, and processes that commands have left. Both hold
//! the session in memory, and end with it.

use super::log::Journal;
use super::{Actor, Leaving, Open, session_error};
use crate::clock::now_ms;
use crate::event::{EventBody, JobRegistered, JobSettled, JobStatus};
use crate::session::CloseCause;
use crate::store::StoreError;
use crate::turn::FactEvent;

/// What of `shutdown.cancel_grace` they get to end by themselves; the rest is for killing them.
const GRACE_SHARE: u32 = 2;

impl Actor {
    /// Leaves memory, unless something of the session's runs. One that nobody has prompted yet would be lost by that, so
    /// it stays, too.
    pub(super) async fn unload_if_at_rest(&mut self) {
        // While the daemon stops, a queued prompt has no turn, and who waits for it is told at the session's end.
        if self.running.is_some() || !self.barriers.is_empty() || self.waiters.has_prompts() {
            return;
        }
        let rests = match &self.open {
            Some(Open { journal: Journal::Unwritten { .. }, .. }) => return,
            Some(open) if !open.state.jobs.is_empty() => false,
            Some(open) => {
                let tools = open.tools.clone();
                tools.is_at_rest().await
            }
            None => true,
        };
        self.mailbox.hold(!rests);
        if rests {
            self.leaving = self.leaving.or(Some(Leaving::Unload));
        }
    }

    /// A job came or went.
    pub(super) fn jobs_changed(&self) {
        self.mailbox.hold(self.open.as_ref().is_some_and(|open| !open.state.jobs.is_empty()));
    }

    /// Ends what still runs of a session that is closed, or whose parent is done with it, and logs how.
    pub(super) async fn end_work(&mut self) {
        let cause = match self.leaving {
            Some(Leaving::Close(cause)) => Some(cause),
            Some(Leaving::Delete) => Some(CloseCause::Deleted),
            Some(Leaving::Retire) => None,
            Some(Leaving::Unload) | None => return,
        };
        let Some((jobs, tools)) =
            self.open.as_ref().map(|open| (open.state.jobs.clone(), open.tools.clone()))
        else {
            return;
        };
        let why = match cause {
            Some(CloseCause::Closed) => "the session was closed",
            Some(CloseCause::Deleted) => "the session was deleted",
            Some(CloseCause::ShuttingDown) => "the daemon stopped",
            Some(CloseCause::Disposed) => "the session was disposed of",
            Some(CloseCause::StorageFailed) => "storage failed",
            None => "the subagent had ended",
        };
        let grace = self.shared.config.borrow().shutdown.cancel_grace / GRACE_SHARE;
        tools.end(why, grace).await;
        let settled =
            |job: &JobRegistered| tools.jobs().settled(&job.job_id).unwrap_or_else(|| killed(job, why));
        let events: Vec<FactEvent> =
            jobs.iter().map(|job| EventBody::JobSettled(settled(job)).into()).collect();
        if cause != Some(CloseCause::StorageFailed)
            && !events.is_empty()
            && let Err(error) = self.append(events)
        {
            tracing::warn!(session = %self.id, %error, "the ends of background jobs could not be logged");
        }
        // What it names in its answer can still be read when its parent is done with it.
        if cause.is_some() {
            self.forget_spool().await;
        }
    }

    /// Removes all that is stored of a session that is deleted, while its lease is still held.
    pub(super) async fn erase(&mut self) {
        if self.leaving != Some(Leaving::Delete) {
            return;
        }
        self.forget_spool().await;
        let was_open = self.open.is_some();
        let error = match self.shared.store.remove(&self.id).await {
            Ok(()) => return,
            // Nobody has prompted it yet.
            Err(StoreError::NotFound) if was_open => return,
            Err(error) => session_error(&self.id, error),
        };
        tracing::debug!(session = %self.id, %error, "a session could not be deleted");
        self.waiters.refuse_deletes(&error);
        self.leaving = was_open.then_some(Leaving::Close(CloseCause::Closed));
    }

    async fn forget_spool(&mut self) {
        let Some(spool) = self.shared.spool.clone() else { return };
        let id = self.id.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || spool.forget(&id)).await {
            tracing::error!(session = %self.id, %error, "the session's spool could not be removed");
        }
    }
}

/// The end of a job that nobody has seen.
pub(in crate::session) fn killed(job: &JobRegistered, why: &str) -> JobSettled {
    let JobRegistered { job_id, owner, kind, label, started_at, tool_call } = job.clone();
    JobSettled {
        job_id,
        owner,
        kind,
        label,
        started_at,
        tool_call,
        finished_at: now_ms(),
        status: JobStatus::Killed,
        detail: Some(why.to_owned()),
    }
}
