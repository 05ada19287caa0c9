//! What the sandbox keeps from programs, for tools that look at files in the daemon itself: they keep to the same.

use std::path::{Path, PathBuf};

use super::{Sandbox, view};

impl Sandbox {
    /// What no agent sees: real paths of what is there now. Blocks on the disk.
    pub fn hidden(&self) -> Vec<PathBuf> {
        view::real(&self.places.hidden)
    }

    /// What no agent changes although it is in its workspace.
    pub fn frozen(workspace: &Path) -> Vec<PathBuf> {
        view::frozen_in(workspace)
    }
}
