//! The calls whose safety the compiler can't check. The one place of the program with unsafe code.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

/// Lets the child set its limit on open files, and the one that marks it, between fork and exec.
#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to set a limit in the child before its program starts"
)]
pub(super) fn set_limits(command: &mut Command, files: Option<Rlimit>, mark: Option<Rlimit>) {
    let set = move || {
        if let Some(mark) = mark {
            // A kernel that refuses leaves the mark in the environment.
            let _ = setrlimit(Resource::Locks, mark);
        }
        files.map_or(Ok(()), |files| setrlimit(Resource::Nofile, files).map_err(Into::into))
    };
    // SAFETY: the closure makes raw system calls; it allocates nothing and takes no lock, so it may run in the forked
    // child of a program with threads.
    unsafe {
        command.pre_exec(set);
    }
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
