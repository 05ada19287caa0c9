//! A process group: started, watched, signalled and reaped as one.
//!
//! Its leader is not reaped before the last signal to the group: as long as it is a zombie, its id, which is the group's,
//! cannot become another's, so that a signal to the group never hits a stranger.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::unchecked;

/// Whether this process ever started a command.
static STARTED: AtomicBool = AtomicBool::new(false);

/// A group. Dropped with a leader that was not reaped, it is killed.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
    id: Pid,
    /// Readable when the leader has ended.
    watch: AsyncFd<OwnedFd>,
    reaped: bool,
}

/// Whether this process ever started a command.
pub(super) fn any_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

impl Group {
    /// Starts the command as leader of a new group.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        STARTED.store(true, Ordering::Relaxed);
        let mut leader = command.process_group(0).spawn()?;
        let id = leader
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or_else(|| io::Error::other("the child has no process id"))?;
        let watch = pidfd_open(id, PidfdFlags::empty()).map_err(io::Error::from).and_then(unchecked::watch);
        match watch {
            Ok(watch) => Ok(Self { leader, id, watch, reaped: false }),
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

    /// Waits until the leader has ended, without reaping it. Cancel safe.
    pub(super) async fn leader_ended(&self) -> io::Result<()> {
        // The guard is dropped with its readiness kept: an ended leader stays readable.
        self.watch.readable().await.map(drop)
    }

    /// Asks the whole group to end; one that is stopped is woken to hear it.
    pub(super) fn terminate(&self) {
        signal(self.id, Signal::TERM);
        signal(self.id, Signal::CONT);
    }

    /// Kills the whole group.
    pub(super) fn kill(&self) {
        if !self.reaped {
            signal(self.id, Signal::KILL);
        }
    }

    /// Kills what is left of the group, then reaps the leader.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        self.reap().await
    }

    /// Reaps the leader, which has ended. What else is in the group lives on. Cancel safe.
    pub(super) async fn reap(&mut self) -> io::Result<ExitStatus> {
        let status = self.leader.wait().await?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal(group: Pid, signal: Signal) {
    match kill_process_group(group, signal) {
        // Gone already; or, for root's children that changed their user, not ours to signal.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::warn!(group = group.as_raw_pid(), %error, "could not signal a process group"),
    }
}
