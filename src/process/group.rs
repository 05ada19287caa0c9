//! A process group: started, watched, signalled and reaped as one. It is a session of its own, too, without a terminal.
//!
//! Its leader is the program, or the program's supervisor, or what makes a namespace for that.
//!
//! Its leader is not reaped before the last signal to the group: as long as it is a zombie, its id, which is the group's,
//! cannot become another's, so that a signal to the group never hits a stranger.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::run::{End, end_of};
use super::supervise::{Report, ReportError, Reports};
use super::unchecked;

/// The end of a program whose supervisor was killed with it.
const KILLED: End = End::Signalled(libc::SIGKILL);

/// Whether this process ever started a command.
static STARTED: AtomicBool = AtomicBool::new(false);

/// A group. Dropped with a leader that was not reaped, it is killed.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
    id: Pid,
    /// Readable when the leader has ended.
    watch: AsyncFd<OwnedFd>,
    /// What the program's supervisor tells of it; none: the leader is the program.
    reports: Option<Reports>,
    /// Its directory for temporary files, if it has one, which goes with it.
    temporary: Option<PathBuf>,
    /// The last signal was sent.
    let_go: bool,
}

/// A supervised program did not start.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The system's error.
    Failed(i32),
    /// Its supervisor ended without a word of its own.
    Silent,
    /// The supervisor can't be heard.
    Unheard(io::Error),
}

/// Whether this process ever started a command.
pub(super) fn any_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// As if it had.
#[cfg(test)]
pub(super) fn say_started() {
    STARTED.store(true, Ordering::Relaxed);
}

impl Group {
    /// Starts the command as leader of a new group, which it makes itself.
    pub(super) fn start(
        command: &mut Command,
        reports: Option<Reports>,
        temporary: Option<PathBuf>,
    ) -> io::Result<Self> {
        STARTED.store(true, Ordering::Relaxed);
        let mut leader = command.spawn()?;
        let id = leader
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or_else(|| io::Error::other("the child has no process id"))?;
        let watch = pidfd_open(id, PidfdFlags::empty()).map_err(io::Error::from).and_then(unchecked::watch);
        match watch {
            Ok(watch) => Ok(Self { leader, id, watch, reports, temporary, let_go: false }),
            Err(error) => {
                signal(id, Signal::KILL);
                // The leader is killed with its group; this only leaves no zombie.
                leader.start_kill()?;
                Err(error)
            }
        }
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    pub(super) fn take_input(&mut self) -> Option<ChildStdin> {
        self.leader.stdin.take()
    }

    pub(super) fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.leader.stdout.take(), self.leader.stderr.take())
    }

    /// Waits until a supervised program runs. Cancel safe.
    pub(super) async fn started(&self) -> Result<(), NotStarted> {
        let Some(reports) = &self.reports else { return Ok(()) };
        match reports.started().await {
            Ok(Report::Started) => Ok(()),
            Ok(Report::Failed(error)) => Err(NotStarted::Failed(error)),
            Ok(Report::Ended { .. }) | Err(ReportError::Silent) => Err(NotStarted::Silent),
            Err(ReportError::Io(error)) => Err(NotStarted::Unheard(error)),
        }
    }

    /// Waits until the program has ended, without reaping anything. Cancel safe.
    pub(super) async fn program_ended(&self) -> io::Result<()> {
        match &self.reports {
            Some(reports) => reports.ended().await,
            // The guard is dropped with its readiness kept: an ended leader stays readable.
            None => self.watch.readable().await.map(drop),
        }
    }

    /// Asks the whole group to end; one that is stopped is woken to hear it.
    pub(super) fn terminate(&self) {
        signal(self.id, Signal::TERM);
        signal(self.id, Signal::CONT);
    }

    /// Kills the whole group.
    pub(super) fn kill(&self) {
        if !self.let_go {
            signal(self.id, Signal::KILL);
        }
    }

    /// Kills what is left of the group, then reaps the leader.
    pub(super) async fn end(mut self) -> io::Result<End> {
        self.kill();
        self.reap().await
    }

    /// How the program ended, which it has. What else is in the group lives on, and under a supervisor this, too, which
    /// is reaped when it ends. Cancel safe.
    pub(super) async fn reap(&mut self) -> io::Result<End> {
        let told = self.reports.as_ref().map(Reports::how_ended);
        if let Some(Some((end, true))) = told {
            self.let_go = true;
            self.temporary = None;
            return Ok(end);
        }
        let status = self.leader.wait().await?;
        self.let_go = true;
        Ok(match told {
            None => end_of(status),
            Some(None) => KILLED,
            Some(Some((end, _))) => end,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if let Some(temporary) = &self.temporary {
            // Its supervisor has removed it, unless it was killed.
            let _ = std::fs::remove_dir_all(temporary);
        }
    }
}

fn signal(group: Pid, signal: Signal) {
    match kill_process_group(group, signal) {
        // Gone already; or, for root's children that changed their user, not ours to signal.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::warn!(group = group.as_raw_pid(), %error, "could not signal a process group"),
    }
}
