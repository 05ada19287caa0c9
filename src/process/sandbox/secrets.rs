//! What the sandbox keeps from programs, for tools that look at files in the daemon itself: they keep to the same.

use std::path::{Path, PathBuf};

use super::{Sandbox, view};

impl Sandbox {
    /// What no agent sees: real paths of what is there now, and of what is not there yet. Blocks on the disk.
    pub fn hidden(&self) -> Vec<PathBuf> {
        let mut hidden = view::real(&self.places.hidden);
        hidden.extend(view::missing(&self.places.hidden));
        hidden
    }

    /// Whether commands may write in a workspace: not where something that is hidden could be made, as in a home.
    pub(super) fn writes_in(&self, workspace: &Path) -> bool {
        let workspace = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
        !view::holds(&workspace, &view::missing(&self.places.hidden))
    }

    /// What no agent changes although it is in its workspace.
    pub fn frozen(workspace: &Path) -> Vec<PathBuf> {
        view::frozen_in(workspace)
    }
}
