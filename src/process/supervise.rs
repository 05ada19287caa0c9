//! The supervisor: this program, started anew between the daemon and a program that runs for an agent.
//!
//! It is small and has one thread. It puts Landlock and seccomp in force for the program, tells the daemon how that ended,
//! goes on as long as anything that the program left does, and ends it all when the daemon ends, however that was: the
//! daemon holds the other end of a pipe, and a pipe is closed by the kernel. Inside of a pid namespace it is the first
//! process, whose end the kernel makes the end of all others; elsewhere it is the parent of all that lose theirs.

mod orders;
mod report;
mod run;

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) use self::orders::{Filter, Orders};
pub(super) use self::report::{Report, ReportError, Reports};
pub(super) use self::run::UNCONFINED;

/// The first argument that makes this program a supervisor. Nobody types it.
pub(super) const ARGUMENT: &str = "__confine";

/// Whether this process's program becomes a supervisor when it is started with [`ARGUMENT`].
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Says that this program calls [`run_if_asked`] first. Where it does not, programs run without a supervisor, and those
/// that must be confined don't run.
pub fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
}

/// Whether programs run under supervisors.
pub(super) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Is the supervisor, if these arguments say so, until its end; the exit code then. To be called before anything else:
/// the process must have one thread.
pub fn run_if_asked(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    Some(run::run(arguments))
}
