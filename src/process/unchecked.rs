//! The two calls whose safety the compiler can't check. The one place of the program with unsafe code.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

/// Lets the child set its limit on open files between fork and exec.
#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to set a limit in the child before its program starts"
)]
pub(super) fn set_nofile_limit(command: &mut Command, limit: Rlimit) {
    let set = move || setrlimit(Resource::Nofile, limit).map_err(Into::into);
    // SAFETY: the closure makes one raw system call; it allocates nothing and takes no lock, so it may run in the forked
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
