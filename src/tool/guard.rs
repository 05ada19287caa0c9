//! What a session's tools on files never look at, and never change in its workspace. The sandbox keeps commands to the same.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Failed, ToolOutput, clip, paths};
use crate::event::{PermissionMode, SessionId};
use crate::policy::Need;
use crate::process::{Sandbox, Spool};

/// The guard of one call. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Real paths.
    hidden: Arc<[PathBuf]>,
    /// What is hidden but for the session's own.
    spool: Option<(Spool, SessionId)>,
}

impl Guard {
    /// The guard of a session. With full access there is none. Blocks for a few looks at the disk.
    pub fn new(sandbox: &Sandbox, spool: Option<&Spool>, session: &SessionId, mode: PermissionMode) -> Self {
        if mode == PermissionMode::FullAccess {
            return Self::default();
        }
        let spool = spool.map(|spool| (spool.clone(), session.clone()));
        Self { hidden: sandbox.hidden().into(), spool }
    }

    /// Whether a real path is hidden.
    pub(super) fn hides(&self, real: &Path) -> bool {
        let own = || self.spool.as_ref().is_some_and(|(spool, session)| spool.has(session, real));
        self.hidden.iter().any(|hidden| real.starts_with(hidden)) && !own()
    }

    /// Whether an open file is hidden, whatever its path led over when it was opened.
    pub(super) fn hides_open(&self, file: impl AsFd) -> bool {
        if self.hidden.is_empty() {
            return false;
        }
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        // What has no path any more was not hidden when it had one: nothing hidden is given out by name.
        std::fs::read_link(path).is_ok_and(|real| self.hides(&real))
    }

    /// What a call needs to look at a path: somebody's word, if it is hidden.
    pub(super) async fn need(&self, path: PathBuf) -> Option<Need> {
        let (guard, named) = (self.clone(), path.clone());
        let looked =
            tokio::task::spawn_blocking(move || paths::resolve(&named).ok().filter(|real| guard.hides(real)));
        let real = looked.await.ok()??;
        Some(Need {
            reason: format!(
                "may not look at {}: it is hidden from agents",
                clip::line(&path.display().to_string())
            ),
            command: None,
            diff: None,
            denied: Failed::SandboxDenied.info(),
            rule: real.to_str().map(str::to_owned),
        })
    }

    /// The failure of a call that came to something hidden all the same.
    pub(super) fn denial(path: &Path) -> ToolOutput {
        let shown = clip::line(&path.display().to_string());
        ToolOutput::failed(
            Failed::SandboxDenied,
            &format!("may not look at {shown}: it is hidden from agents"),
        )
    }
}
