//! How a job ended, and what is kept of it then.

use crate::clock::now_ms;
use crate::event::{JobStatus, SessionId};
use crate::process::{End, Finished, RunError, Stopped};
use crate::tool::bash::text::{Composer, end_text};

/// A job's end. Its text is all that is kept of its output.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) finished_at: u64,
    pub(super) status: JobStatus,
    pub(super) detail: String,
    /// For the model, with its end as the last line.
    pub(super) text: String,
}

impl Ended {
    /// The end of a command that ran as a job; `why`: for which reason we ended it, if we did.
    pub(super) async fn of(
        outcome: Result<Finished, RunError>,
        why: Option<&'static str>,
        (job_id, session): (&str, &SessionId),
        composer: &Composer,
    ) -> Self {
        let (status, detail, streams) = match outcome {
            Ok(finished) => {
                let (status, detail) = judge(&finished, why);
                (status, detail, (finished.stdout, finished.stderr))
            }
            Err(error) => (JobStatus::Failed, error.to_string(), Default::default()),
        };
        let line = status_line(job_id, &format!("{}, {detail}", word(status)));
        let text = composer.compose(session, String::new(), streams, vec![line]).await;
        Self { finished_at: now_ms(), status, detail, text }
    }

    /// In a few words.
    pub(super) fn summary(&self) -> String {
        format!("{}, {}", word(self.status), self.detail)
    }
}

/// The last line of a job's output.
pub(super) fn status_line(job_id: &str, status: &str) -> String {
    format!("[job {job_id}: {status}]")
}

fn judge(finished: &Finished, why: Option<&'static str>) -> (JobStatus, String) {
    match (why, finished.stopped, finished.end) {
        (Some(why), _, _) => (JobStatus::Killed, why.to_owned()),
        (None, Some(Stopped::TimedOut), _) => (JobStatus::Killed, "timed out".to_owned()),
        (None, Some(Stopped::Cancelled), end) => (JobStatus::Killed, end_text(end)),
        (None, None, end @ End::Exited(_)) => (JobStatus::Completed, end_text(end)),
        (None, None, end @ (End::Signalled(_) | End::Stuck)) => (JobStatus::Failed, end_text(end)),
    }
}

fn word(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Completed => "completed",
        JobStatus::Failed => "failed",
        JobStatus::Killed => "killed",
    }
}
