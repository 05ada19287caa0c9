//! One command from start to end: output taken in as it comes, ended by itself, by its timeout or by a cancel.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::capture::{Caps, Capture, Captured};
use super::group::Group;
use super::{nofile, unchecked};

/// After the command has ended, silence that ends the wait for output of others that hold its pipes, and the longest
/// such wait for those that are not silent.
const DRAIN_IDLE: Duration = Duration::from_millis(100);
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// The longest wait for a process that was killed; one that hangs in the kernel is left to it.
const KILL_WAIT: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 32 * 1024;

/// What to run and how long.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, looked up in the PATH of `environment`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where.
    pub directory: PathBuf,
    /// All variables that it sees.
    pub environment: Vec<(OsString, OsString)>,
    /// Longest run.
    pub timeout: Duration,
    /// From the request to end until what is left is killed.
    pub grace: Duration,
    /// What is kept of each stream.
    pub caps: Caps,
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

/// The command did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {}", .program.display())]
pub struct StartError {
    /// The program.
    pub program: OsString,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Runs a command. When this returns, or its future is dropped, nothing is left in the command's process group.
///
/// # Errors
/// When it could not be started or watched.
pub async fn run(job: Job, cancel: &CancellationToken) -> Result<Finished, StartError> {
    let failed = |source| StartError { program: job.program.clone(), source };
    let mut group = Group::start(&mut command(&job)).map_err(failed)?;
    let (stdout, stderr) = group.take_output();
    let mut output = Output { stdout: Stream::new(stdout, job.caps), stderr: Stream::new(stderr, job.caps) };

    let stopped = tokio::select! {
        biased;
        ended = output.until(group.leader_ended()) => { ended.map_err(failed)?; None }
        () = cancel.cancelled() => Some(Stopped::Cancelled),
        () = tokio::time::sleep(job.timeout) => Some(Stopped::TimedOut),
    };
    if stopped.is_some() {
        group.terminate();
        let all_gone = async {
            output.until(group.leader_ended()).await?;
            output.drain().await;
            Ok(())
        };
        if let Ok(gone) = timeout(job.grace, all_gone).await {
            gone.map_err(failed)?;
        }
        group.kill();
    }
    let end = match timeout(KILL_WAIT, output.until(group.leader_ended())).await {
        Ok(ended) => {
            ended.map_err(failed)?;
            output.drain_briefly().await;
            match timeout(KILL_WAIT, group.end()).await {
                Ok(status) => end_of(status.map_err(failed)?),
                Err(_) => End::Stuck,
            }
        }
        Err(_) => End::Stuck,
    };
    Ok(Finished {
        end,
        stopped,
        stdout: output.stdout.capture.finish(),
        stderr: output.stderr.capture.finish(),
    })
}

fn command(job: &Job) -> Command {
    let mut command = Command::new(&job.program);
    command
        .args(&job.arguments)
        .current_dir(&job.directory)
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(limit) = nofile::limit_of_children() {
        unchecked::set_nofile_limit(&mut command, limit);
    }
    command
}

pub(super) fn end_of(status: std::process::ExitStatus) -> End {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signalled(signal),
        (None, None) => End::Stuck,
    }
}

/// Both streams of a command.
struct Output {
    stdout: Stream<ChildStdout>,
    stderr: Stream<ChildStderr>,
}

struct Stream<R> {
    pipe: Option<R>,
    chunk: Vec<u8>,
    capture: Capture,
}

impl Output {
    /// Takes in what comes until `event`. Cancel safe, if `event` is.
    async fn until<T>(&mut self, event: impl Future<Output = T>) -> T {
        tokio::pin!(event);
        loop {
            tokio::select! {
                biased;
                happened = &mut event => return happened,
                () = self.stdout.take_in(), if self.stdout.pipe.is_some() => {}
                () = self.stderr.take_in(), if self.stderr.pipe.is_some() => {}
            }
        }
    }

    /// Takes in what comes until nobody holds the pipes. Cancel safe.
    async fn drain(&mut self) {
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            self.take_in().await;
        }
    }

    /// The same for the output of a command that has ended: others that hold its pipes are not waited for.
    async fn drain_briefly(&mut self) {
        let deadline = Instant::now() + DRAIN_MAX;
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            let until = deadline.min(Instant::now() + DRAIN_IDLE);
            // What is there already is read before the time is looked at.
            if timeout_at(until, self.take_in()).await.is_err() || Instant::now() >= deadline {
                return;
            }
        }
    }

    async fn take_in(&mut self) {
        tokio::select! {
            () = self.stdout.take_in(), if self.stdout.pipe.is_some() => {}
            () = self.stderr.take_in(), if self.stderr.pipe.is_some() => {}
            else => {}
        }
    }
}

impl<R: AsyncRead + Unpin> Stream<R> {
    fn new(pipe: Option<R>, caps: Caps) -> Self {
        Self { pipe, chunk: Vec::new(), capture: Capture::new(caps) }
    }

    /// One read, or the end. Cancel safe: what was read is kept in the same poll.
    async fn take_in(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        self.chunk.resize(CHUNK_BYTES, 0);
        match pipe.read(&mut self.chunk).await {
            Ok(0) => self.pipe = None,
            Ok(count) => self.capture.push(&self.chunk[..count]),
            Err(error) => {
                tracing::warn!(%error, "could not read a command's output");
                self.pipe = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
