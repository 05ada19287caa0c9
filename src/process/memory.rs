//! The memory of the daemon and of supervisors, where keys are.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Keeps this process's memory from dumps and from other processes of the same user.
///
/// # Errors
/// When the system refuses.
pub fn keep_memory_private() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into)
}
