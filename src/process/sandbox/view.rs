//! What one program sees of the file system: real paths, looked at when it starts.

use std::path::{Path, PathBuf};

use super::Unconfinable;
use super::places::Places;

const RESOLVER: &str = "/etc/resolv.conf";

/// The view. All paths are real ones: absolute, there, and without symbolic links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::process) struct View {
    /// Not there, or empty.
    pub(in crate::process) hidden: Vec<PathBuf>,
    /// An empty one of its own, or none, but for what is shown below it.
    pub(in crate::process) private: Vec<PathBuf>,
    /// Writable.
    pub(in crate::process) writable: Vec<PathBuf>,
    /// Visible although something above is private.
    pub(in crate::process) shown: Vec<PathBuf>,
    /// Read-only inside of what is writable.
    pub(in crate::process) frozen: Vec<PathBuf>,
    /// Whether it reaches the network.
    pub(in crate::process) network: bool,
}

impl View {
    pub(super) fn new(
        places: &Places,
        workspaces: &[PathBuf],
        writes: bool,
        network: bool,
    ) -> Result<Self, Unconfinable> {
        let hidden = real(&places.hidden);
        let workspaces = real(workspaces);
        for workspace in &workspaces {
            if let Some(hidden) = hidden.iter().find(|hidden| workspace.starts_with(hidden)) {
                return Err(Unconfinable::Hidden { workspace: workspace.clone(), hidden: hidden.clone() });
            }
        }
        let mut shown = real(&places.programs);
        if network {
            shown.extend(std::fs::canonicalize(RESOLVER));
        }
        // What is hidden and not there yet could be made, and then it would be the user's.
        let missing = missing(&places.hidden);
        let (writable, read): (Vec<_>, Vec<_>) =
            workspaces.into_iter().partition(|workspace| writes && !holds(workspace, &missing));
        shown.extend(read);
        let frozen = writable.iter().flat_map(|workspace| frozen_in(workspace)).collect();
        let private = real(&places.private);
        Ok(Self { hidden, private, writable, shown, frozen, network })
    }

    /// With these, too: directories, or the file of a program that is named by its path.
    pub(super) fn showing<'a>(mut self, paths: impl Iterator<Item = &'a Path>) -> Self {
        let absolute = paths.filter(|path| path.is_absolute());
        self.shown.extend(absolute.filter_map(|path| std::fs::canonicalize(path).ok()));
        self
    }

    /// A program that would start in a directory that it can't see would not say why it fails.
    pub(super) fn require_visible(&self, directory: &Path) -> Result<(), Unconfinable> {
        let Ok(real) = std::fs::canonicalize(directory) else { return Ok(()) };
        let deepest = |paths: &[PathBuf]| {
            let above = paths.iter().filter(|path| real.starts_with(path));
            above.max_by_key(|path| path.components().count()).cloned()
        };
        let visible = [&self.writable, &self.shown].into_iter().filter_map(|paths| deepest(paths));
        let visible = visible.map(|path| path.components().count()).max().unwrap_or(0);
        let covering = deepest(&self.hidden).into_iter().chain(deepest(&self.private));
        match covering.max_by_key(|path| path.components().count()) {
            Some(hidden) if hidden.components().count() > visible => {
                Err(Unconfinable::Hidden { workspace: real, hidden })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The real paths of those that are there.
pub(super) fn real(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut real: Vec<PathBuf> = paths.iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect();
    real.sort();
    real.dedup();
    real
}

/// Where those would be that are not there: below the real path of what is.
pub(super) fn missing(paths: &[PathBuf]) -> Vec<PathBuf> {
    let missing = paths.iter().filter(|path| std::fs::canonicalize(path).is_err());
    missing.filter_map(|path| path.ancestors().find_map(|above| below(path, above))).collect()
}

fn below(path: &Path, above: &Path) -> Option<PathBuf> {
    Some(std::fs::canonicalize(above).ok()?.join(path.strip_prefix(above).ok()?))
}

/// Whether a workspace holds any of these places.
pub(super) fn holds(workspace: &Path, places: &[PathBuf]) -> bool {
    places.iter().any(|place| place.starts_with(workspace))
}

/// What would let a program act later, as whoever uses the repository: its hooks, and where they are said to be.
pub(super) fn frozen_in(workspace: &Path) -> Vec<PathBuf> {
    let git = workspace.join(".git");
    if !git.symlink_metadata().is_ok_and(|entry| entry.is_dir()) {
        return Vec::new();
    }
    vec![git.join("hooks"), git.join("config")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(hidden: &[&Path], private: &[&Path]) -> Places {
        let owned = |paths: &[&Path]| paths.iter().map(|path| path.to_path_buf()).collect();
        Places { hidden: owned(hidden), private: owned(private), programs: Vec::new() }
    }

    #[test]
    fn links_are_followed_and_what_is_not_there_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("keys")).unwrap();
        std::fs::create_dir(root.join("work")).unwrap();
        std::os::unix::fs::symlink(root.join("keys"), root.join("link")).unwrap();
        let places = places(&[&root.join("link"), &root.join("none")], &[]);
        let view = View::new(&places, &[root.join("work")], true, false).unwrap();
        assert_eq!((view.hidden, view.writable), (vec![root.join("keys")], vec![root.join("work")]));
    }

    #[test]
    fn a_workspace_where_secrets_are_is_refused_and_one_in_a_private_place_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let work = root.join("work");
        std::fs::create_dir(&work).unwrap();
        let refused = View::new(&places(&[&root], &[]), std::slice::from_ref(&work), true, false);
        assert!(matches!(refused, Err(Unconfinable::Hidden { .. })), "{refused:?}");
        let view = View::new(&places(&[], &[&root]), std::slice::from_ref(&work), false, false).unwrap();
        assert_eq!((&view.shown, &view.writable), (&vec![work.clone()], &Vec::new()));
        view.require_visible(&work).unwrap();
        assert!(view.require_visible(&root).is_err());
    }

    #[test]
    fn a_workspace_in_which_secrets_could_be_made_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("work")).unwrap();
        let places = places(&[&root.join(".ssh")], &[]);
        let view = View::new(&places, &[root.clone(), root.join("work")], true, false).unwrap();
        assert_eq!((view.writable, view.shown), (vec![root.join("work")], vec![root.clone()]));
        assert_eq!(missing(&[root.join("a/b")]), [root.join("a/b")]);
        assert_eq!(missing(&[root.join("work")]), Vec::<PathBuf>::new());
    }

    #[test]
    fn hooks_and_configuration_of_a_repository_are_frozen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(frozen_in(&root), Vec::<PathBuf>::new());
        std::fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(frozen_in(&root), [root.join(".git/hooks"), root.join(".git/config")]);
    }
}
