//! One command from start to end: output taken in as it comes, ended by itself, by its timeout or by a cancel.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::capture::{Caps, Captured};
use super::family::{self, Family, KILL_WAIT};
use super::group::Group;
use super::mark::{Mark, Of};
use super::output::{Output, View};
use super::sandbox::Confinement;
use super::spool::Spool;
use super::start::{self, StartError, What};
use crate::event::SessionId;

/// What to run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program, looked up in the PATH of `environment`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where.
    pub directory: PathBuf,
    /// All variables that it sees, but for its mark.
    pub environment: Vec<(OsString, OsString)>,
    /// What is kept of each stream in memory.
    pub caps: Caps,
    /// Where the rest goes, and for whom; none: nowhere.
    pub spool: Option<(Spool, SessionId)>,
    /// Whether it runs beside the turns of its session.
    pub is_job: bool,
    /// What holds it.
    pub confinement: Confinement,
}

/// How long to run.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Longest run.
    pub timeout: Option<Duration>,
    /// From the request to end until what is left is killed.
    pub grace: Duration,
    /// The request to end.
    pub cancel: &'a CancellationToken,
}

/// How the command's own process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// Killed, and not yet gone: it hangs in the kernel.
    Stuck,
}

/// Why we ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It ran too long.
    TimedOut,
    /// The call was cancelled.
    Cancelled,
}

/// A command that has ended. The facts are independent: one that was asked to stop may still exit with code 0.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// Whether and why we asked it to.
    pub stopped: Option<Stopped>,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
}

/// A command can't be watched; it was killed.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch a command")]
pub struct RunError(#[from] io::Error);

/// A command that runs. Dropped, it is killed with all that it started.
#[derive(Debug)]
pub struct Running {
    group: Group,
    output: Output,
    family: Arc<Family>,
    mark: Mark,
    /// Whether what it started is to be killed when this is dropped.
    armed: bool,
}

impl Running {
    /// Starts a command of a family.
    ///
    /// # Errors
    /// When it could not be started.
    pub async fn start(launch: &Launch, family: &Arc<Family>) -> Result<Self, StartError> {
        let mark = family.mark(launch.is_job);
        let what = What {
            program: &launch.program,
            arguments: &launch.arguments,
            directory: &launch.directory,
            environment: &launch.environment,
            confinement: &launch.confinement,
        };
        let starting = start::start(what, mark, Stdio::null()).await?;
        let (group, pipes) = starting.running().await?;
        let output = Output::new(pipes, launch.caps, launch.spool.as_ref());
        Ok(Self { group, output, family: family.clone(), mark, armed: true })
    }

    /// A look at its output, now and while it runs.
    pub fn view(&self) -> View {
        self.output.view()
    }

    /// Waits for its end. When it was not ended by us, what it left in the background lives on in its family; else
    /// nothing of it is left.
    ///
    /// # Errors
    /// When it could not be watched; then nothing of it is left either.
    pub async fn finish(mut self, terms: Terms<'_>) -> Result<Finished, RunError> {
        let stopped = tokio::select! {
            biased;
            ended = self.output.until(self.group.program_ended()) => { ended?; None }
            () = terms.cancel.cancelled() => Some(Stopped::Cancelled),
            () = run_out(terms.timeout) => Some(Stopped::TimedOut),
        };
        if stopped.is_some() {
            self.stop(terms.grace).await?;
        }
        let end = match timeout(KILL_WAIT, self.output.until(self.group.program_ended())).await {
            Ok(ended) => {
                ended?;
                self.output.drain_briefly().await;
                match timeout(KILL_WAIT, self.group.reap()).await {
                    Ok(end) => end?,
                    Err(_) => End::Stuck,
                }
            }
            Err(_) => End::Stuck,
        };
        self.output.settle().await;
        let (stdout, stderr) = self.output.view().now();
        self.armed = end == End::Stuck;
        self.leave();
        Ok(Finished { end, stopped, stdout, stderr })
    }

    /// Asks all that the command started to end, and kills what has not ended after the grace.
    async fn stop(&mut self, grace: Duration) -> io::Result<()> {
        let of = Of::Call(self.mark);
        let until = Instant::now() + grace;
        self.group.terminate();
        let all_gone = async {
            let escaped = self.output.until(family::ask(of, Some(self.group.id()))).await;
            self.output.until(self.group.program_ended()).await?;
            self.output.drain().await;
            family::ended(escaped.handles).await;
            Ok(())
        };
        let gone: io::Result<()> = timeout_at(until, all_gone).await.unwrap_or(Ok(()));
        self.group.kill();
        self.output.until(family::kill(of, Instant::now() + KILL_WAIT)).await;
        gone
    }

    /// Others may still hold the pipes.
    fn leave(&mut self) {
        if self.output.is_open() && !self.armed {
            self.family.keep_reading(self.output.take_pipes());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.armed {
            self.group.kill();
            family::kill_now(Of::Call(self.mark));
        }
    }
}

async fn run_out(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

pub(super) fn end_of(status: std::process::ExitStatus) -> End {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signalled(signal),
        (None, None) => End::Stuck,
    }
}

#[cfg(test)]
mod tests;
