//! The calls whose safety the compiler can't check. The one place of the program with unsafe code.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, setrlimit, setsid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

/// What a child does between fork and exec.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The limit on open files.
    pub(super) files: Option<Rlimit>,
    /// The limit that carries the mark.
    pub(super) mark: Option<Rlimit>,
    /// Descriptors that its program gets besides its pipes.
    pub(super) passed: Vec<RawFd>,
}

/// Lets the child begin a session of its own, away from any terminal of ours, set its limits, and keep descriptors.
#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to set a limit in the child before its program starts"
)]
pub(super) fn set_before(command: &mut Command, before: Before) {
    let set = move || {
        setsid()?;
        if let Some(mark) = before.mark {
            // A kernel that refuses leaves the mark in the environment.
            let _ = setrlimit(Resource::Locks, mark);
        }
        // A dump of a program's memory would be a file that nobody asked for.
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        for fd in &before.passed {
            // SAFETY: the descriptors are open in this child, which was forked while their owners lived.
            fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*fd) }, FdFlags::empty())?;
        }
        before.files.map_or(Ok(()), |files| setrlimit(Resource::Nofile, files).map_err(Into::into))
    };
    // SAFETY: the closure makes raw system calls; it allocates nothing and takes no lock, so it may run in the forked
    // child of a program with threads.
    unsafe {
        command.pre_exec(set);
    }
}

/// Lets the child of a process with one thread do something between fork and exec.
#[expect(unsafe_code, reason = "pre_exec is the only way to confine the child and not ourselves")]
pub(super) fn before_exec(
    command: &mut std::process::Command,
    act: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: only the supervisor calls this, which has one thread; so no lock is held when it forks, and its child may
    // allocate.
    unsafe {
        command.pre_exec(act);
    }
}

/// Takes over a descriptor that this program was started with, and keeps it from those that it starts.
#[expect(unsafe_code, reason = "descriptors that were inherited have no owner in this program")]
pub(super) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: whoever started this program has opened the descriptor for it and named it once. Were it not open, each use
    // would fail.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    let _ = fcntl_setfd(&owned, FdFlags::CLOEXEC);
    owned
}

/// A descriptor that tokio tells when it is readable.
#[expect(unsafe_code, reason = "tokio offers no safe way to wait for a pidfd")]
pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open, and stays the same descriptor, as long as it lives; `AsyncFd` owns it and ends
    // its registration before it drops it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(Into::into)
}

/// Marks a descriptor, by its number, to be closed in programs that are started from here on.
#[expect(unsafe_code, reason = "descriptors that were inherited have no owner in this program")]
pub(super) fn close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: the borrow ends with the call. Were the descriptor closed meanwhile, the call would fail; were its number
    // given to another, that one would be marked, as all that this program opens are already.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC).map_err(Into::into)
}

/// Becomes the owner of a descriptor that the process was started with. To be called once for each.
#[expect(unsafe_code, reason = "descriptors that were inherited have no owner in this program")]
pub(super) fn take(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller calls this once for a descriptor that the service manager has handed over, which nothing else in
    // this program knows of.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
