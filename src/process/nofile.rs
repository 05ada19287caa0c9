//! The limit on open files: raised for the daemon, put back in children, since programs that size tables by it or use
//! `select` break with a large one.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before we raised it. Set once, at start.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit on open files to the hard one. Called once, at start, before any child.
///
/// # Errors
/// When the system refuses; the limit is then as it was.
pub fn raise_nofile_limit() -> io::Result<()> {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum })?;
    BEFORE.get_or_init(|| before);
    Ok(())
}

/// What children get back; none when nothing was raised.
pub(super) fn limit_of_children() -> Option<Rlimit> {
    BEFORE.get().copied()
}
