//! Where a path of the model's really leads, and whether the session may change what is there.
//!
//! Used by `read`, `write` and `edit`. Blocks: runs on threads for blocking work.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::Guard;
use crate::event::PermissionMode;
use crate::process::Sandbox;

/// Symbolic links that one path may lead over, as in the kernel.
const LINKS_MAX: usize = 40;

/// A path as it is shown, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Absolute, as the model named it.
    pub(super) shown: PathBuf,
    /// Absolute, without symbolic links and `..`; its last parts may not exist.
    pub(super) real: PathBuf,
}

/// Why a path may not be changed, or leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    /// Nothing may change.
    #[error("the session is read-only")]
    ReadOnly,
    /// It leads out of the workspace.
    #[error("{real} is outside the workspace {workspace}", real = real.display(), workspace = workspace.display())]
    Outside {
        /// Where it leads.
        real: PathBuf,
        /// Where it should have led.
        workspace: PathBuf,
    },
    /// It leads to what no agent sees.
    #[error("it is hidden from agents")]
    Hidden,
    /// It would let somebody's later commands do what the agent wants.
    #[error("agents don't change a repository's hooks and configuration")]
    Frozen,
    /// It can't be followed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The place that a call may change under this mode.
pub(super) fn writable(
    cwd: &Path,
    asked: &Path,
    mode: PermissionMode,
    guard: &Guard,
) -> Result<Place, PathError> {
    let place = |shown: PathBuf| resolve(&shown).map(|real| Place { shown, real });
    match mode {
        PermissionMode::ReadOnly => Err(PathError::ReadOnly),
        PermissionMode::FullAccess => Ok(place(cwd.join(asked))?),
        PermissionMode::WorkspaceWrite => {
            let place = place(cwd.join(asked))?;
            let workspace = resolve(cwd)?;
            if !place.real.starts_with(&workspace) {
                return Err(PathError::Outside { real: place.real, workspace });
            }
            if guard.hides(&place.real) {
                return Err(PathError::Hidden);
            }
            let frozen = Sandbox::frozen(&workspace);
            if frozen.iter().any(|frozen| place.real.starts_with(frozen)) {
                return Err(PathError::Frozen);
            }
            Ok(place)
        }
    }
}

/// Follows an absolute path, link by link, as far as it exists; what does not exist is kept as it is named.
///
/// # Errors
/// Too many links, `..` below what does not exist, or a directory that may not be searched.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = parts(path);
    let mut links = 0;
    let mut exists = true;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            if !exists {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "`..` below a directory that is not there",
                ));
            }
            real.pop();
            continue;
        }
        real.push(&part);
        if !exists {
            continue;
        }
        match std::fs::symlink_metadata(&real) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::other("too many symbolic links"));
                }
                let target = std::fs::read_link(&real)?;
                real.pop();
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    rest.push_front(part);
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => exists = false,
            Err(error) => return Err(error),
        }
    }
    Ok(real)
}

/// The names of a path; `..` is one of them, `.` and the root are not.
fn parts(path: &Path) -> VecDeque<OsString> {
    let mut parts = VecDeque::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push_back(name.to_owned()),
            Component::ParentDir => parts.push_back("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace `w` with a file and links, beside a directory `out`.
    fn scene() -> (tempfile::TempDir, PathBuf) {
        let scene = tempfile::tempdir().unwrap();
        let root = scene.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("w/sub")).unwrap();
        fs::create_dir(root.join("out")).unwrap();
        fs::write(root.join("w/file"), "").unwrap();
        symlink("file", root.join("w/inside")).unwrap();
        symlink("../out", root.join("w/outside")).unwrap();
        symlink(root.join("out/new"), root.join("w/dangling")).unwrap();
        symlink("loop", root.join("w/loop")).unwrap();
        (scene, root)
    }

    #[test]
    fn links_are_followed_to_where_they_lead_even_when_nothing_is_there() {
        let (_scene, root) = scene();
        for (asked, expected) in [
            ("w/file", "w/file"),
            ("w/inside", "w/file"),
            ("w/outside/x", "out/x"),
            ("w/dangling", "out/new"),
            ("w/new/deep/./file", "w/new/deep/file"),
            ("w/sub/../file", "w/file"),
            ("w/outside/../file", "file"),
        ] {
            assert_eq!(resolve(&root.join(asked)).unwrap(), root.join(expected), "{asked}");
        }
        assert_eq!(resolve(&root.join("w/loop")).unwrap_err().to_string(), "too many symbolic links");
        assert_eq!(resolve(&root.join("w/none/../file")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_may_change_is_decided_by_where_the_path_leads() {
        let (_scene, root) = scene();
        let cwd = root.join("w");
        let check = |asked: &str, mode| writable(&cwd, Path::new(asked), mode, &Guard::default());
        for asked in ["file", "inside", "new/file", "sub/../file", cwd.join("x").to_str().unwrap()] {
            assert!(check(asked, PermissionMode::WorkspaceWrite).is_ok(), "{asked}");
            assert!(matches!(check(asked, PermissionMode::ReadOnly), Err(PathError::ReadOnly)));
        }
        for asked in ["outside/x", "dangling", "../out/x", "/etc/x", "../w2/x", "outside/../w2"] {
            let refused = check(asked, PermissionMode::WorkspaceWrite);
            assert!(matches!(refused, Err(PathError::Outside { .. })), "{asked}: {refused:?}");
            assert!(check(asked, PermissionMode::FullAccess).is_ok(), "{asked}");
        }
    }

    #[test]
    fn a_workspace_that_is_named_by_a_link_is_the_directory_behind_it() {
        let (_scene, root) = scene();
        symlink("w", root.join("link")).unwrap();
        let place = writable(
            &root.join("link"),
            Path::new("file"),
            PermissionMode::WorkspaceWrite,
            &Guard::default(),
        )
        .unwrap();
        assert_eq!(place, Place { shown: root.join("link/file"), real: root.join("w/file") });
    }
}
