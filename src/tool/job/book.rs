//! The book of a session's background jobs: which run, which have ended, and who has heard of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::ended::Ended;
use crate::clock::now_ms;
use crate::event::{EventBody, JobCall, JobRegistered, JobSettled, JobStatus, SessionId};
use crate::process::{Running, Terms, View};
use crate::shutdown::Scope;
use crate::tool::Notify;
use crate::tool::bash::text::Composer;

/// The longest wait for jobs whose processes were killed.
const END_WAIT: Duration = Duration::from_secs(3);
/// Hexadecimal digits of a job's id.
const ID_DIGITS: usize = 16;

/// The background jobs of a session.
#[derive(Debug, Default)]
pub struct Jobs {
    /// In the order in which they started.
    jobs: Arc<Mutex<VecDeque<Job>>>,
    scope: Scope,
}

/// What a job is.
#[derive(Debug)]
pub(in crate::tool) struct NewJob {
    pub(in crate::tool) kind: &'static str,
    /// The command, shortened.
    pub(in crate::tool) label: String,
    pub(in crate::tool) session: SessionId,
    pub(in crate::tool) call_id: String,
    /// Jobs that have ended and are still in the book.
    pub(in crate::tool) kept_max: usize,
    pub(in crate::tool) composer: Composer,
    /// Hears of its end; none in tests.
    pub(in crate::tool) notify: Option<Arc<dyn Notify>>,
}

/// A command that runs as a job.
#[derive(Debug)]
pub(in crate::tool) struct Started {
    pub(in crate::tool) running: Running,
    /// Its place of `limits.children`.
    pub(in crate::tool) place: OwnedSemaphorePermit,
    pub(in crate::tool) timeout: Option<Duration>,
    pub(in crate::tool) grace: Duration,
}

/// A job as the tools see it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) about: JobRegistered,
    /// What it has written; none when it has ended, since its end has that.
    pub(super) view: Option<View>,
    pub(super) composer: Composer,
    pub(super) ended: watch::Receiver<Option<Arc<Ended>>>,
    kill: CancellationToken,
    why: Arc<Mutex<Option<&'static str>>>,
    /// Cancelled when its `job/registered` is in the log.
    logged: CancellationToken,
    /// A tool has told the agent of its end.
    heard: bool,
    /// Tools that wait for its end.
    waited_for: usize,
}

impl Jobs {
    /// How many run.
    pub fn running(&self) -> usize {
        self.lock().iter().filter(|job| job.ended.borrow().is_none()).count()
    }

    /// The events of a call are in the log: the ends of its jobs may be told from here on.
    pub fn logged(&self, call_id: &str) {
        for job in self.lock().iter().filter(|job| job.about.tool_call.call_id == call_id) {
            job.logged.cancel();
        }
    }

    /// How a job has ended, if it has.
    pub fn settled(&self, job_id: &str) -> Option<JobSettled> {
        let job = self.get(job_id)?;
        let ended = job.ended.borrow().clone();
        ended.map(|ended| job.settled(&ended))
    }

    /// Jobs that end from here on were ended by us, for this reason.
    pub(in crate::tool) fn give_up(&self, why: &'static str) {
        for job in self.lock().iter() {
            job.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        }
    }

    /// Ends all jobs whose processes have not ended yet, and waits for them.
    pub(in crate::tool) async fn end(&self) {
        for job in self.lock().iter() {
            job.kill.cancel();
        }
        if !self.scope.wait(END_WAIT).await {
            tracing::warn!(jobs = self.scope.len(), "background jobs did not end in time");
        }
    }

    /// Ends jobs that no event tells of: their call was lost with its turn.
    pub fn end_unlogged(&self) {
        for job in self.lock().iter().filter(|job| !job.logged.is_cancelled()) {
            job.kill.cancel();
        }
    }

    /// Takes a command into the book.
    pub(in crate::tool) fn add(&self, new: NewJob, started: Started) -> JobRegistered {
        let NewJob { kind, label, session, call_id, kept_max, composer, notify } = new;
        let uuid = uuid::Uuid::new_v4().simple().to_string();
        let about = JobRegistered {
            job_id: format!("{kind}-{}", &uuid[..ID_DIGITS]),
            owner: session,
            kind: kind.to_owned(),
            label,
            started_at: now_ms(),
            tool_call: JobCall { call_id },
        };
        let (tell, ended) = watch::channel(None);
        let job = Job {
            about: about.clone(),
            view: Some(started.running.view()),
            composer,
            ended,
            kill: CancellationToken::new(),
            why: Arc::default(),
            logged: CancellationToken::new(),
            heard: false,
            waited_for: 0,
        };
        let work = Work { job: job.clone(), jobs: self.jobs.clone(), tell, notify };
        self.scope.spawn(work.run(started));
        let mut jobs = self.lock();
        let is_over = |job: &Job| job.ended.borrow().is_some();
        if jobs.iter().filter(|job| is_over(job)).count() >= kept_max
            && let Some(oldest) = jobs.iter().position(is_over)
        {
            jobs.remove(oldest);
        }
        jobs.push_back(job);
        about
    }

    /// All jobs in the book.
    pub(super) fn all(&self) -> Vec<Job> {
        self.lock().iter().cloned().collect()
    }

    /// The job of an id.
    pub(super) fn get(&self, job_id: &str) -> Option<Job> {
        self.lock().iter().find(|job| job.about.job_id == job_id).cloned()
    }

    /// A tool waits for the job's end, until the guard is dropped.
    pub(super) fn wait_for(&self, job_id: &str) -> Waiting<'_> {
        self.with(job_id, |job| job.waited_for += 1);
        Waiting { jobs: self, job_id: job_id.to_owned() }
    }

    /// A tool tells the agent of the job's end.
    pub(super) fn heard(&self, job_id: &str) {
        self.with(job_id, |job| job.heard = true);
    }

    fn with(&self, job_id: &str, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.lock().iter_mut().find(|job| job.about.job_id == job_id) {
            change(job);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        lock(&self.jobs)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.lock().iter() {
            job.kill.cancel();
        }
    }
}

impl Job {
    /// Asks it to end, for this reason.
    pub(super) fn kill(&self, why: &'static str) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.kill.cancel();
    }

    /// Whether a tool tells the agent of its end.
    fn is_heard(&self) -> bool {
        self.heard || self.waited_for > 0
    }

    fn settled(&self, ended: &Ended) -> JobSettled {
        let JobRegistered { job_id, owner, kind, label, started_at, tool_call } = self.about.clone();
        let (finished_at, status, detail) = (ended.finished_at, ended.status, Some(ended.detail.clone()));
        JobSettled { job_id, owner, kind, label, started_at, tool_call, finished_at, status, detail }
    }

    /// What wakes the agent.
    fn notice(&self, ended: &Ended) -> String {
        format!(
            "Background job {} has ended: {}.\nCommand: {}\njob_output gives what it has written.",
            self.about.job_id,
            ended.summary(),
            self.about.label
        )
    }

    /// Its end, once it has ended. Cancel safe.
    pub(super) async fn ended(&self) -> Arc<Ended> {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| {
            // Its task is gone without a word: a bug, told in the daemon's log.
            Arc::new(Ended {
                finished_at: now_ms(),
                status: JobStatus::Failed,
                detail: "lost".to_owned(),
                text: String::new(),
            })
        })
    }
}

/// Somebody waits for a job.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    jobs: &'a Jobs,
    job_id: String,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.jobs.with(&self.job_id, |job| job.waited_for -= 1);
    }
}

/// The task of a job.
struct Work {
    job: Job,
    jobs: Arc<Mutex<VecDeque<Job>>>,
    tell: watch::Sender<Option<Arc<Ended>>>,
    notify: Option<Arc<dyn Notify>>,
}

impl Work {
    async fn run(self, started: Started) {
        let Self { job, jobs, tell, notify } = self;
        let Started { running, place, timeout, grace } = started;
        let outcome = running.finish(Terms { timeout, grace, cancel: &job.kill }).await;
        drop(place);
        let why = *job.why.lock().unwrap_or_else(PoisonError::into_inner);
        let about = (job.about.job_id.as_str(), &job.about.owner);
        let ended = Arc::new(Ended::of(outcome, why, about, &job.composer).await);
        // From before anybody can hear of the end: whoever waits for it will tell the agent.
        let is_heard =
            lock(&jobs).iter().any(|other| other.about.job_id == job.about.job_id && other.is_heard());
        tell.send_replace(Some(ended.clone()));
        if let Some(job) = lock(&jobs).iter_mut().find(|other| other.about.job_id == job.about.job_id) {
            job.view = None;
        }
        let Some(notify) = notify else { return };
        tokio::select! {
            biased;
            () = job.logged.cancelled() => {
                let text = (!is_heard).then(|| job.notice(&ended));
                notify.tell(vec![EventBody::JobSettled(job.settled(&ended))], text);
            }
            // No event tells of it, so none tells of its end.
            () = job.kill.cancelled() => {}
        }
    }
}

fn lock(jobs: &Mutex<VecDeque<Job>>) -> MutexGuard<'_, VecDeque<Job>> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}
