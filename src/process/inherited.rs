//! Descriptors that this process was started with, beyond stdin, stdout and stderr. A program that outlives it must not get
//! them: who started it may wait for their end (make, bats, a pipe of the shell).

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::unchecked;

/// Descriptors that every program has.
const STANDARD: RawFd = 3;

/// Keeps all but the standard descriptors from programs that are started from here on.
///
/// # Errors
/// When the system does not say which descriptors are open.
pub fn keep_from_children() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(fd) = number.filter(|fd| *fd >= STANDARD)
            && let Err(error) = unchecked::close_on_exec(fd)
        {
            // The descriptor that this very listing had is closed by now.
            tracing::debug!(fd, %error, "not kept from children");
        }
    }
    Ok(())
}

/// The sockets that a service manager has handed over (`sd_listen_fds(3)`), each with its name. They are the caller's from
/// here on: whoever asks again gets none.
///
/// # Errors
/// What the manager said of them makes no sense.
pub fn sockets() -> io::Result<Vec<(String, OwnedFd)>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let handed = sd_notify::listen_fds_with_names()?;
    Ok(handed.map(|(fd, name)| (name, unchecked::take(fd))).collect())
}
